package inner

import (
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// unpackedRows is how many packed rows are unpacked at once.
const unpackedRows = 32

// buffers are pooled for packed.
type buffers struct{ rows []float32 }

var unpacked = sync.Pool{New: func() any { return new(buffers) }}

// packed scores packed rows: some are unpacked, then scored as any others.
func (p *Product) packed(dst []float32, items rerank.Items) {
	b := unpacked.Get().(*buffers)
	defer unpacked.Put(b)
	if n := unpackedRows * items.Packed.Cols; cap(b.rows) < n {
		b.rows = make([]float32, n)
	}
	if items.Starts == nil {
		p.unpack(dst, items, b.rows, 0)
		return
	}
	var block [256]float32
	for i := range dst {
		best := float32(math.Inf(-1))
		for from, to := int(items.Starts[i]), int(items.Starts[i+1]); from < to; from += len(block) {
			scores := block[:min(len(block), to-from)]
			p.unpack(scores, items, b.rows, from)
			best = fold(best, scores)
		}
		dst[i] = best
	}
}

// unpack scores the rows from one on.
func (p *Product) unpack(dst []float32, items rerank.Items, buf []float32, from int) {
	cols := items.Packed.Cols
	for len(dst) > 0 {
		n := min(len(dst), unpackedRows)
		for i := range n {
			r := from + i
			if items.Rows != nil {
				r = int(items.Rows[r])
			}
			items.Packed.Row32(buf[i*cols:(i+1)*cols], r)
		}
		p.rows(dst[:n], rerank.Matrix{Rows: n, Cols: cols, Data: buf[:n*cols]}, nil)
		dst, from = dst[n:], from+n
	}
}

var _ rerank.Rounder = (*Product)(nil)

// RoundingError implements rerank.Rounder: ⟨u, x̂ − x⟩ is at most ‖u‖·‖x̂ − x‖,
// and at most Σ_b ‖u_b‖·‖x̂_b − x_b‖ over the blocks of the row. The greatest of
// several rows moves by no more than the rows do.
func (p *Product) RoundingError(l rerank.Loss) float32 {
	bound := rerank.Norm(p.U) * float64(l.Row.Lost)
	if size := p.Spec.Block; size > 0 && size == l.Block {
		var sum float64
		for b, e := range l.Blocks {
			sum += rerank.Norm(p.U[min(b*size, len(p.U)):min((b+1)*size, len(p.U))]) * float64(e.Lost)
		}
		bound = min(bound, sum)
	}
	return float32(math.Abs(float64(p.Scale)) * bound * (1 + 1e-6))
}
