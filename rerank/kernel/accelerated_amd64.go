//go:build amd64 && !noasm

package kernel

import (
	"golang.org/x/sys/cpu"

	"github.com/likenessdb/likeness/rerank"
)

// accelerated returns the assembly kernels that this processor can run.
func accelerated() []*Set {
	var sets []*Set
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, assembly("avx2", gemmAVX2, siluAVX2, mixAVX2, dot4AVX2))
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, assembly("avx512", gemmAVX512, siluAVX512, mixAVX512, dot4AVX512))
	}
	return sets
}

// assembly makes a Set of functions that take pointers; the slices that Set's
// methods pass are never empty.
func assembly(
	name string,
	gemm func(c, a, b *float32, m, k int),
	silu func(x *float32, n int),
	mix func(out, logits, gates *float32, n int),
	dot4 func(dst, u, r0, r1, r2, r3 *float32, n int),
) *Set {
	return &Set{
		name: name,
		gemm: func(c, a, b []float32, m, k int) { gemm(&c[0], &a[0], &b[0], m, k) },
		silu: func(x []float32) {
			whole := len(x) / Lanes
			if whole > 0 {
				silu(&x[0], whole)
			}
			SiLU(x[whole*Lanes:])
		},
		mix:  func(out, logits, gates []float32) { mix(&out[0], &logits[0], &gates[0], len(logits)/Lanes) },
		tile: tileAssembly,
		rows: func(dst, v []float32, m rerank.Matrix, rows []int32) {
			var out [4]float32
			var r [4][]float32
			for i := 0; i < len(dst); i += len(r) {
				for j := range r {
					r[j] = rowOf(m, rows, min(i+j, len(dst)-1))[:len(v)] // absent rows repeat the last
				}
				dot4(&out[0], &v[0], &r[0][0], &r[1][0], &r[2][0], &r[3][0], len(v))
				copy(dst[i:], out[:])
			}
		},
	}
}

func rowOf(m rerank.Matrix, rows []int32, i int) []float32 {
	if rows != nil {
		i = int(rows[i])
	}
	return m.Row(i)
}

func tileAssembly(dst []float32, rows *[Lanes][]float32) {
	n := len(rows[0])
	whole := n &^ 7
	if whole > 0 {
		for half := 0; half < Lanes; half += 8 {
			r := (*[8][]float32)(rows[half:])
			transpose8(&dst[half], &r[0][0], &r[1][0], &r[2][0], &r[3][0], &r[4][0], &r[5][0], &r[6][0], &r[7][0], whole)
		}
	}
	for c := whole; c < n; c++ {
		for l, row := range rows {
			dst[c*Lanes+l] = row[c]
		}
	}
}
