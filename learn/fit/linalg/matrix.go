// Package linalg multiplies matrices and adds vectors for training. Its results do
// not depend on the number of cores, so that a fit is the same to the bit anywhere
// on one kind of machine.
package linalg

import (
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Resize returns a matrix of the given shape with arbitrary content. It uses the
// memory of m if there is enough.
func Resize(m rerank.Matrix, rows, cols int) rerank.Matrix {
	if cap(m.Data) < rows*cols {
		return rerank.NewMatrix(rows, cols)
	}
	return rerank.Matrix{Rows: rows, Cols: cols, Data: m.Data[:rows*cols]}
}

// GatherRows copies the named rows of m to dst, one after the other.
func GatherRows(dst, m rerank.Matrix, rows []int32) {
	for i, r := range rows {
		copy(dst.Row(i), m.Row(int(r)))
	}
}

// Gather returns the named rows of m, one after the other.
func Gather(m rerank.Matrix, rows []int32) rerank.Matrix {
	out := rerank.NewMatrix(len(rows), m.Cols)
	GatherRows(out, m, rows)
	return out
}

// AddScaled adds scale·v to dst.
func AddScaled(dst, v []float32, scale float64) {
	dst = dst[:len(v)]
	factor := float32(scale)
	for i, x := range v {
		dst[i] += factor * x
	}
}

// AddPull adds the gradient of λ‖v − start‖² to grad, and returns the value of that term.
func AddPull(grad, v, start []float32, lambda float64) float64 {
	grad, start = grad[:len(v)], start[:len(v)]
	factor := float32(2 * lambda)
	var sum float64
	for i, x := range v {
		d := x - start[i]
		sum += float64(d) * float64(d)
		grad[i] += factor * d
	}
	return lambda * sum
}

// Softmax replaces v by exp(v − max v) / Σ exp(v − max v), summed in float32. If an element is NaN or +Inf, every
// result is NaN.
func Softmax(v []float32) {
	top := float32(math.Inf(-1))
	for _, x := range v {
		if x > top {
			top = x
		}
	}
	for i := range v {
		v[i] -= top
	}
	kernel.Best().Exps(v)
	scale := 1 / sum(v)
	for i := range v {
		v[i] *= scale
	}
}

// Logs replaces each element of v, a positive normal number, by its natural logarithm. The error is at
// most 2e-7 times the larger of 1 and the logarithm.
func Logs(v []float32) {
	const (
		mantissa = 1<<23 - 1
		half     = 0x3f3504f3 // √½ as bits
	)
	for i, x := range v {
		// x = m·2^e with √½ ≤ m < √2, and log m = 2·artanh((m − 1)/(m + 1)), a series of odd powers.
		bits := math.Float32bits(x) - half
		e := int32(bits) >> 23
		m := math.Float32frombits(bits&mantissa + half)
		r := (m - 1) / (m + 1)
		q := r * r
		v[i] = float32(e)*math.Ln2 + 2*r*(1+q*(1.0/3+q*(1.0/5+q*(1.0/7+q/9))))
	}
}

// sum adds up v in four parts, which do not wait for each other.
func sum(v []float32) float32 {
	var a, b, c, d float32
	for ; len(v) >= 4; v = v[4:] {
		a, b, c, d = a+v[0], b+v[1], c+v[2], d+v[3]
	}
	for _, x := range v {
		a += x
	}
	return a + b + c + d
}

// Dot returns the inner product of a and b, summed in float64.
func Dot(a, b []float32) float64 {
	var sum float64
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// SumRows writes the sum of the rows of m to dst.
func SumRows(dst []float32, m rerank.Matrix) {
	clear(dst)
	kernels := kernel.Best()
	for r := range m.Rows {
		kernels.Add(dst, m.Row(r))
	}
}

// CloneArrays returns copies of the arrays.
func CloneArrays(arrays [][]float32) [][]float32 {
	copies := make([][]float32, len(arrays))
	for i, a := range arrays {
		copies[i] = slices.Clone(a)
	}
	return copies
}

// CopyArrays copies each source array to the array of dst at the same place.
func CopyArrays(dst, source [][]float32) {
	for i, a := range source {
		copy(dst[i], a)
	}
}
