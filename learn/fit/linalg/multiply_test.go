package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// normalMatrix returns a matrix of standard normal numbers. fittest, which makes such matrices for others, imports this package.
func normalMatrix(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// at is element (r, c) of op(m).
func at(m rerank.Matrix, transposed bool, r, c int) float64 {
	if transposed {
		r, c = c, r
	}
	return float64(m.Data[r*m.Cols+c])
}

// operandOf is a random op(m) of that shape.
func operandOf(rng *rand.Rand, rows, cols int, transposed bool) rerank.Matrix {
	if transposed {
		rows, cols = cols, rows
	}
	return normalMatrix(rng, rows, cols)
}

func TestMultiply(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][3]int{
		{1, 1, 1}, {4, 16, 8}, {5, 17, 3}, {3, 2, 700}, {blockRows + 5, 33, 20}, {37, 50, 2*blockInner + 1}, {2, 3, 0}, {0, 3, 2}, {3, 0, 2},
	} {
		for flags := range 4 {
			ta, tb := flags&1 > 0, flags&2 > 0
			a, b := operandOf(rng, shape[0], shape[2], ta), operandOf(rng, shape[2], shape[1], tb)
			dst := normalMatrix(rng, shape[0], shape[1])
			Multiply(dst, a, ta, b, tb)
			for r := range dst.Rows {
				for c := range dst.Cols {
					var want, size float64
					for k := range shape[2] {
						p := at(a, ta, r, k) * at(b, tb, k, c)
						want, size = want+p, size+math.Abs(p)
					}
					if got := float64(dst.Row(r)[c]); !(math.Abs(got-want) <= 1e-5*(size+1e-30)) {
						t.Fatalf("%v, transposed %t %t: (%d, %d) is %g, want %g", shape, ta, tb, r, c, got, want)
					}
				}
			}
			again := rerank.NewMatrix(dst.Rows, dst.Cols)
			before := runtime.GOMAXPROCS(1)
			Multiply(again, a, ta, b, tb)
			runtime.GOMAXPROCS(before)
			if !slices.Equal(dst.Data, again.Data) {
				t.Errorf("%v: one core gives another product", shape)
			}
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		m, n, k int
		ta, tb  bool
	}{{256, 10000, 384, false, true}, {256, 384, 10000, false, false}, {384, 384, 256, true, false}, {512, 77, 384, false, true}, {64, 64, 64, false, false}} {
		b.Run(fmt.Sprintf("%dx%dx%d", c.m, c.n, c.k), func(b *testing.B) {
			x, y, dst := operandOf(rng, c.m, c.k, c.ta), operandOf(rng, c.k, c.n, c.tb), rerank.NewMatrix(c.m, c.n)
			for b.Loop() {
				Multiply(dst, x, c.ta, y, c.tb)
			}
			b.ReportMetric(2*float64(c.m*c.n*c.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
