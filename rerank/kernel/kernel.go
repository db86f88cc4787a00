// Package kernel computes inner products, small matrix products and activations over
// float32, which is where scoring spends its time.
//
// The functions are plain Go and serve as the reference. A Set has the same operations, in
// plain Go or with the processor's vector instructions; tests compare the sets with the
// functions and with float64. They agree within rounding. In every implementation, the
// order of a sum does not depend on other work in the same call: a row gets the same score
// alone and among others.
//
// No function allocates, and all are safe for concurrent use.
package kernel

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// Gamma returns γ_n = n·u / (1 − n·u) with u = 2⁻²⁴, which bounds the relative error of n
// float32 roundings (N. Higham, Accuracy and Stability of Numerical Algorithms, section
// 3.1). |computed ⟨a, b⟩ − ⟨a, b⟩| ≤ Gamma(len(a))·‖a‖·‖b‖.
func Gamma(n int) float64 {
	const unit = 1.0 / (1 << 24)
	return float64(n) * unit / (1 - float64(n)*unit)
}

// Dot returns ⟨a, b⟩. b must be at least as long as a.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var sum float32
	for k, x := range a {
		sum += x * b[k]
	}
	return sum
}

// MulT computes a·bᵀ + bias. It writes element (r, c) of the result, ⟨a.Row(r), b.Row(c)⟩ +
// bias[c], to dst[r*stride+c]. bias may be nil. a and b have the same Cols, and dst does
// not alias them.
func MulT(dst []float32, stride int, a, b rerank.Matrix, bias []float32) {
	r := 0
	for ; r+2 <= a.Rows; r += 2 {
		mulPair(dst[r*stride:][:b.Rows], dst[(r+1)*stride:][:b.Rows], a.Row(r), a.Row(r+1), b)
	}
	if r < a.Rows {
		mulRow(dst[r*stride:][:b.Rows], a.Row(r), b)
	}
	if bias == nil {
		return
	}
	for r := range a.Rows {
		out := dst[r*stride:][:len(bias)]
		for c, v := range bias {
			out[c] += v
		}
	}
}

// mulPair multiplies two rows with b, so that every row of b is read once for both.
func mulPair(d0, d1, x, y []float32, b rerank.Matrix) {
	c := 0
	for ; c+4 <= b.Rows; c += 4 {
		d0[c], d0[c+1], d0[c+2], d0[c+3], d1[c], d1[c+1], d1[c+2], d1[c+3] =
			dot2x4(x, y, b.Row(c), b.Row(c+1), b.Row(c+2), b.Row(c+3))
	}
	for ; c < b.Rows; c++ {
		d0[c], d1[c] = Dot(x, b.Row(c)), Dot(y, b.Row(c))
	}
}

func mulRow(dst, x []float32, b rerank.Matrix) {
	c := 0
	for ; c+8 <= b.Rows; c += 8 {
		d := dst[c : c+8 : c+8]
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = dot8(x,
			b.Row(c), b.Row(c+1), b.Row(c+2), b.Row(c+3), b.Row(c+4), b.Row(c+5), b.Row(c+6), b.Row(c+7))
	}
	for ; c < b.Rows; c++ {
		dst[c] = Dot(x, b.Row(c))
	}
}

// Rows writes ⟨v, m.Row(rows[i])⟩ to dst[i], or ⟨v, m.Row(i)⟩ if rows is nil, for all
// elements of dst.
func Rows(dst, v []float32, m rerank.Matrix, rows []int32) {
	if rows == nil {
		mulRow(dst, v, m.Slice(0, len(dst)))
		return
	}
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		d, r := dst[i:i+8:i+8], rows[i:i+8:i+8]
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = dot8(v,
			m.Row(int(r[0])), m.Row(int(r[1])), m.Row(int(r[2])), m.Row(int(r[3])),
			m.Row(int(r[4])), m.Row(int(r[5])), m.Row(int(r[6])), m.Row(int(r[7])))
	}
	for ; i < len(dst); i++ {
		dst[i] = Dot(v, m.Row(int(rows[i])))
	}
}

// dot2x4 computes Dot of each of two vectors with each of four.
func dot2x4(x, y, a, b, c, d []float32) (xa, xb, xc, xd, ya, yb, yc, yd float32) {
	n := len(x)
	y, a, b, c, d = y[:n], a[:n], b[:n], c[:n], d[:n]
	for k, p := range x {
		q, s, t, u, v := y[k], a[k], b[k], c[k], d[k]
		xa += p * s
		ya += q * s
		xb += p * t
		yb += q * t
		xc += p * u
		yc += q * u
		xd += p * v
		yd += q * v
	}
	return xa, xb, xc, xd, ya, yb, yc, yd
}

// dot8 computes Dot of one vector with each of eight.
func dot8(x, a, b, c, d, e, f, g, h []float32) (sa, sb, sc, sd, se, sf, sg, sh float32) {
	n := len(x)
	a, b, c, d, e, f, g, h = a[:n], b[:n], c[:n], d[:n], e[:n], f[:n], g[:n], h[:n]
	for k, p := range x {
		sa += p * a[k]
		sb += p * b[k]
		sc += p * c[k]
		sd += p * d[k]
		se += p * e[k]
		sf += p * f[k]
		sg += p * g[k]
		sh += p * h[k]
	}
	return sa, sb, sc, sd, se, sf, sg, sh
}

// Transpose returns the transpose of m.
func Transpose(m rerank.Matrix) rerank.Matrix {
	t := rerank.NewMatrix(m.Cols, m.Rows)
	for r := range m.Rows {
		for c, v := range m.Row(r) {
			t.Data[c*m.Rows+r] = v
		}
	}
	return t
}

// Norm returns ‖v‖. It sums in float64, so it does not overflow.
func Norm(v []float32) float32 { return float32(rerank.Norm(v)) }

// Normalise divides v by max(‖v‖, eps), as rerank.NormaliseClamped does.
func Normalise(v []float32, eps float32) {
	n := max(Norm(v), eps)
	if math.IsInf(float64(n), 1) {
		rerank.NormaliseClamped(v, float64(eps))
		return
	}
	for i := range v {
		v[i] /= n
	}
}

// MulTWide is MulT with sums in float64 that are rounded once. So each element has a
// relative error of 2⁻²⁴ unless its sum cancels almost completely.
func MulTWide(dst []float32, stride int, a, b rerank.Matrix, bias []float32) {
	for r := range a.Rows {
		x, out := a.Row(r), dst[r*stride:][:b.Rows]
		c := 0
		for ; c+4 <= b.Rows; c += 4 { // four independent sums
			out[c], out[c+1], out[c+2], out[c+3] = wide4(x, b.Row(c), b.Row(c+1), b.Row(c+2), b.Row(c+3), bias, c)
		}
		for ; c < b.Rows; c++ {
			y := b.Row(c)
			out[c], _, _, _ = wide4(x, y, y, y, y, bias, c)
		}
	}
}

// wide4 computes the inner products of x with four vectors. bias[number] is added to the
// first, and so on.
func wide4(x, a, b, c, d, bias []float32, number int) (float32, float32, float32, float32) {
	n := len(x)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	var s, t, u, v float64
	for k, p := range x {
		w := float64(p)
		s += w * float64(a[k])
		t += w * float64(b[k])
		u += w * float64(c[k])
		v += w * float64(d[k])
	}
	if bias != nil {
		s += float64(bias[number])
		if number+3 < len(bias) {
			t, u, v = t+float64(bias[number+1]), u+float64(bias[number+2]), v+float64(bias[number+3])
		}
	}
	return float32(s), float32(t), float32(u), float32(v)
}
