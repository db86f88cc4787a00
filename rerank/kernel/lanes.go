package kernel

import "github.com/likenessdb/likeness/rerank"

// gemmGo adds a·b to c. The rows of c are stride apart, and a consists of panels of four
// rows. It keeps four rows times two lanes in registers.
func gemmGo(c []float32, stride int, a, b []float32, m, k int) {
	for p := 0; p < m; p += 4 {
		panel, out := a[p*k:(p+4)*k], c[p*stride:]
		for l := 0; l < Lanes; l += 2 {
			gemmStrip(out[l:], stride, panel, b[min(l, len(b)):])
		}
	}
}

func gemmStrip(c []float32, stride int, a, b []float32) {
	c0, c1, c2, c3 := c[:2], c[stride:][:2], c[2*stride:][:2], c[3*stride:][:2]
	c00, c01, c10, c11 := c0[0], c0[1], c1[0], c1[1]
	c20, c21, c30, c31 := c2[0], c2[1], c3[0], c3[1]
	for i, at := 0, 0; i+3 < len(a) && at+1 < len(b); i, at = i+4, at+Lanes {
		x, y := b[at], b[at+1]
		w := a[i]
		c00, c01 = c00+w*x, c01+w*y
		w = a[i+1]
		c10, c11 = c10+w*x, c11+w*y
		w = a[i+2]
		c20, c21 = c20+w*x, c21+w*y
		w = a[i+3]
		c30, c31 = c30+w*x, c31+w*y
	}
	c0[0], c0[1], c1[0], c1[1] = c00, c01, c10, c11
	c2[0], c2[1], c3[0], c3[1] = c20, c21, c30, c31
}

func mixGo(out *[Lanes]float32, logits, gates []float32) {
	var top, sum, acc [Lanes]float32
	copy(top[:], gates)
	for i := Lanes; i < len(gates); i += Lanes {
		for l, g := range gates[i : i+Lanes] {
			top[l] = max(top[l], g)
		}
	}
	for i := 0; i < len(gates); i += Lanes {
		g, x := (*[Lanes]float32)(gates[i:]), (*[Lanes]float32)(logits[i:])
		for l := range Lanes {
			d := g[l] - top[l]
			e := Exp(d)
			sum[l] += e + d*0 // NaN for a gate that is not finite: Exp alone maps −Inf to 0
			acc[l] += e * x[l]
		}
	}
	for l := range Lanes {
		out[l] = acc[l] / sum[l]
	}
}

func divideGo(v []float32, by float32) {
	for i := range v {
		v[i] /= by
	}
}

func maddGo(c, a, b []float32) {
	for i, v := range a {
		c[i] += v * b[i]
	}
}

func tileGo(dst []float32, rows *[Lanes][]float32) {
	for l, row := range rows {
		lane := dst[l:]
		for c, v := range row {
			lane[c*Lanes] = v
		}
	}
}

// gatherGo writes columns of sixteen rows to lanes. The columns begin at `from`, as many as
// dst has room for; the first skip of them are left out.
func gatherGo(dst []float32, m rerank.Matrix, rows *[Lanes]int32, from, skip int) {
	n := len(dst) / Lanes
	for l, r := range rows {
		lane := dst[l:]
		for c, v := range m.Row(int(r))[from+skip : from+n] {
			lane[(skip+c)*Lanes] = v
		}
	}
}

// rowsGo is Rows, or, if v is nil, the product of each row with itself.
func rowsGo(dst, v []float32, m rerank.Matrix, rows []int32) {
	if v != nil {
		Rows(dst, v, m, rows)
		return
	}
	for i := range dst {
		r := i
		if rows != nil {
			r = int(rows[i])
		}
		dst[i] = Dot(m.Row(r), m.Row(r))
	}
}
