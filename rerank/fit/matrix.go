package fit

import (
	"runtime"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/likenessdb/likeness/rerank"
)

// multiply writes op(a)·op(b) to dst, where op transposes on request. Every
// element is summed by one goroutine in one order, so that the result does not
// depend on the number of cores.
func multiply(dst, a rerank.Matrix, ta bool, b rerank.Matrix, tb bool) {
	blas32.Gemm(transposed(ta), transposed(tb), 1, general(a), general(b), 0, general(dst))
}

func transposed(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

func general(m rerank.Matrix) blas32.General {
	return blas32.General{Rows: m.Rows, Cols: m.Cols, Stride: max(m.Cols, 1), Data: m.Data}
}

// grown returns a matrix of that shape with any content, in the memory of m if
// it has enough.
func grown(m rerank.Matrix, rows, cols int) rerank.Matrix {
	if cap(m.Data) < rows*cols {
		return rerank.NewMatrix(rows, cols)
	}
	return rerank.Matrix{Rows: rows, Cols: cols, Data: m.Data[:rows*cols]}
}

// gather writes the rows of m to dst, one after the other.
func gather(dst, m rerank.Matrix, rows []int32) {
	for i, r := range rows {
		copy(dst.Row(i), m.Row(int(r)))
	}
}

// spread calls f for blocks of the numbers below n, on every core. What f does
// with a number must not depend on the block.
func spread(n, block int, f func(from, to int)) {
	workers := min(runtime.GOMAXPROCS(0), (n+block-1)/block)
	if workers <= 1 {
		f(0, n)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(block))) - block
				if from >= n {
					return
				}
				f(from, min(from+block, n))
			}
		})
	}
	wg.Wait()
}
