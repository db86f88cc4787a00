package inner

import (
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// unpackedRows is how many packed rows are unpacked at a time.
const unpackedRows = 32

// fewRows is the most rows that are unpacked one by one, because a tile of them would be
// mostly empty.
const fewRows = 4

// unpacker converts packed rows to float32, sixteen at a time by way of a tile.
type unpacker struct {
	buf, tile []float32
	words     []uint32
}

var unpackers = sync.Pool{New: func() any { return new(unpacker) }}

// rows returns n rows of the items as float32, beginning with row `first` in the order of
// the items. The result is valid until the next call.
func (u *unpacker) rows(k *kernel.Set, items rerank.Items, first, n int) rerank.Matrix {
	q := items.Packed
	u.buf = grow(u.buf, n*q.Cols)
	for at := 0; at < n; {
		dst, some := u.buf[at*q.Cols:], min(n-at, kernel.Lanes)
		if some <= fewRows {
			q.Row32(dst[:q.Cols], rowNumber(items, first+at))
			at++
			continue
		}
		u.words, u.tile = grow(u.words, kernel.Lanes*q.RowWords()), grow(u.tile, kernel.Lanes*q.Cols)
		gatherRows(k, u.words, items, first+at, some)
		k.Widen(u.tile, q.Packing, u.words)
		k.Spread(dst, q.Cols, u.tile, kernel.Lanes, q.Cols, some)
		at += some
	}
	return rerank.Matrix{Rows: n, Cols: q.Cols, Data: u.buf}
}

// rowNumber returns the feature row of the i-th row in the order of the items.
func rowNumber(items rerank.Items, i int) int {
	if items.Rows != nil {
		return int(items.Rows[i])
	}
	return i
}

// gatherRows copies n rows, in the order of the items, into a tile. Lanes beyond n repeat
// the last row.
func gatherRows(k *kernel.Set, words []uint32, items rerank.Items, first, n int) {
	var rows [kernel.Lanes]int32
	for l := range rows {
		rows[l] = int32(rowNumber(items, first+min(l, n-1)))
	}
	k.Gather(words, items.Packed, &rows)
}

// scorePacked unpacks packed rows in pieces and scores them like float32 rows.
func (p *Product) scorePacked(dst []float32, items rerank.Items) {
	u := unpackers.Get().(*unpacker)
	defer unpackers.Put(u)
	score := func(dst []float32, from int) {
		for len(dst) > 0 {
			n := min(len(dst), unpackedRows)
			p.scoreRows(dst[:n], u.rows(p.Kernels, items, from, n), nil)
			dst, from = dst[n:], from+n
		}
	}
	if items.Starts == nil {
		score(dst, 0)
		return
	}
	scoreBestRows(dst, items.Starts, score)
}

// scoreBestRows writes the best score of each item's rows to dst. score must write the
// scores of len(dst) rows, beginning with the row `from`; it is called with blocks that can
// span many items.
func scoreBestRows(dst []float32, starts []int32, score func(dst []float32, from int)) {
	var block [256]float32
	first, end, last := 0, 0, int(starts[len(dst)]) // the block holds rows [first, end); last is the end of all rows
	for i := range dst {
		best := float32(math.Inf(-1))
		for from, to := int(starts[i]), int(starts[i+1]); from < to; {
			if from >= end {
				first, end = from, min(from+len(block), last)
				score(block[:end-first], first)
			}
			some := block[from-first : min(to, end)-first]
			best = fold(best, some)
			from += len(some)
		}
		dst[i] = best
	}
}

var _ rerank.Rounder = (*Product)(nil)

// RoundingError implements rerank.Rounder. |⟨u, x̂ − x⟩| is at most ‖u‖·‖x̂ − x‖, and at
// most Σ_b ‖u_b‖·‖x̂_b − x_b‖ over the blocks of the row. The maximum over several rows
// moves by no more than the rows do.
func (p *Product) RoundingError(l rerank.Loss) float32 {
	bound := rerank.Norm(p.U) * float64(l.Row.Lost)
	if size := p.Spec.Block; size > 0 && size == l.Block {
		var sum float64
		for b, e := range l.Blocks {
			sum += rerank.Norm(p.U[min(b*size, len(p.U)):min((b+1)*size, len(p.U))]) * float64(e.Lost)
		}
		bound = min(bound, sum)
	}
	return RoundUp(math.Abs(float64(p.Scale)) * bound * (1 + 1e-6))
}

// RoundUp returns a float32 that is not below x.
func RoundUp(x float64) float32 {
	f := float32(x)
	if float64(f) < x {
		return math.Nextafter32(f, float32(math.Inf(1)))
	}
	return f
}
