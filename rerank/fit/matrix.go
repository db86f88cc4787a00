package fit

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/likenessdb/likeness/rerank"
)

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
