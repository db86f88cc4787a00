//go:build arm64 && !noasm

package kernel

import "github.com/likenessdb/likeness/rerank"

// accelerated returns the NEON set, which every arm64 processor runs. It has assembly for
// products with tiles, activations, and inner products of rows. The rest is plain Go.
func accelerated() []*Set { return []*Set{{name: "neon", isa: neon}} }

func (i isa) gemm(c []float32, stride int, a, b []float32, m, k int) {
	if i == plain || k == 0 {
		gemmGo(c, stride, a, b, m, k)
		return
	}
	for p := 0; p < m; p += 4 {
		gemmNEON(&c[p*stride], stride*4, &a[p*k], &b[0], k)
	}
}

func (i isa) silu(x []float32) {
	whole := len(x) / Lanes
	if i == plain || whole == 0 {
		SiLU(x)
		return
	}
	siluNEON(&x[0], whole)
	SiLU(x[whole*Lanes:])
}

func (i isa) mix(out *[Lanes]float32, logits, gates []float32) {
	if i == plain {
		mixGo(out, logits, gates)
		return
	}
	mixNEON(&out[0], &logits[0], &gates[0], len(logits)/Lanes)
}

func (i isa) madd(c, a, b []float32) {
	if whole := len(c) / Lanes; i != plain && whole > 0 {
		maddNEON(&c[0], &a[0], &b[0], whole)
		return
	}
	maddGo(c, a, b)
}

// rows passes four rows at a time to the assembly, repeating the last row if fewer are
// left, and adds the products of the columns after the last multiple of eight in Go.
func (i isa) rows(dst, v []float32, m rerank.Matrix, rows []int32) {
	n := len(v)
	if v == nil {
		n = m.Cols
	}
	if i == plain || n < 8 || v == nil {
		rowsGo(dst, v, m, rows)
		return
	}
	var r [4][]float32
	var out [4]float32
	for from := 0; from < len(dst); from += len(r) {
		for j := range r {
			number := min(from+j, len(dst)-1)
			if rows != nil {
				number = int(rows[number])
			}
			r[j] = m.Row(number)[:n]
		}
		rowsNEON(&out[0], &v[0], &r[0][0], &r[1][0], &r[2][0], &r[3][0], n/8)
		for j := range r {
			for k := n &^ 7; k < n; k++ {
				out[j] += v[k] * r[j][k]
			}
		}
		copy(dst[from:], out[:])
	}
}
