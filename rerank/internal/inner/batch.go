package inner

import (
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Batch converts the encoded queries of a batch to products with asProduct. It returns
// rerank.ErrQuery for a query that another similarity encoded.
func Batch(queries []rerank.Encoded, asProduct func(rerank.Encoded) (*Product, bool)) ([]*Product, error) {
	products := make([]*Product, len(queries))
	for i, q := range queries {
		p, ok := asProduct(q)
		if !ok {
			return nil, fmt.Errorf("%w: query %d of the batch was encoded by another similarity", rerank.ErrQuery, i)
		}
		products[i] = p
	}
	return products, nil
}

// Same returns an asProduct function for Batch that accepts a Product of the given spec.
func Same(s rerank.Spec) func(rerank.Encoded) (*Product, bool) {
	return func(q rerank.Encoded) (*Product, bool) {
		p, ok := q.(*Product)
		return p, ok && p.Spec == s
	}
}

// batchRows is how many rows are multiplied at a time, so that they stay in the cache for
// all queries of the batch. It is a multiple of the kernel's rows and fills whole cache
// lines of scores.
const batchRows = 192

// batch is the scratch memory of a ScoreBatch call. It is pooled.
type batch struct {
	rows, products, best, tops []float32
	vectors                    [][]float32
	packed                     kernel.Vectors
	unpacker                   unpacker
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// ScoreBatch scores the same items for several queries: see rerank.BatchScorer.
// It returns rerank.ErrItems.
func ScoreBatch(dst []float32, products []*Product, items rerank.Items) error {
	if len(products) == 0 {
		return nil
	}
	if err := rerank.CheckBatch(len(dst), len(products), items, products[0].Spec); err != nil {
		return err
	}
	n := items.Len()
	if len(products) == 1 {
		return products[0].Score(dst, items)
	}
	b := batches.Get().(*batch)
	defer batches.Put(b)
	b.vectors = b.vectors[:0]
	for _, p := range products {
		b.vectors = append(b.vectors, p.U)
	}
	products[0].Kernels.PackVectors(&b.packed, b.vectors)
	for from := 0; from < n; {
		to, first, rows := block(items, from, n)
		if to > from {
			b.score(dst[from:], n, products, items, from, to, first, rows)
			from = to
			continue
		}
		b.scoreLarge(dst[from:], n, products, items, from)
		from++
	}
	return nil
}

// block returns the end `to` of a run of items [from, to) that have at most batchRows rows
// together, the run's first row, and its number of rows. to == from means that the item has
// too many rows.
func block(items rerank.Items, from, end int) (to, first, rows int) {
	if items.Starts == nil {
		to = min(from+batchRows, end)
		return to, from, to - from
	}
	first, to = int(items.Starts[from]), from
	for to < end && int(items.Starts[to+1])-first <= batchRows {
		to++
	}
	if n := to - from; to < end && n > kernel.Lanes { // end at a whole cache line of scores
		to -= n % kernel.Lanes
	}
	return to, first, int(items.Starts[to]) - first
}

// score scores the items [from, to), which own the given rows. The scores of query q begin
// at dst[q·n].
func (b *batch) score(dst []float32, n int, products []*Product, items rerank.Items, from, to, first, rows int) {
	k, width := products[0].Kernels, b.packed.Width()
	b.products = grow(b.products, max(rows, to-from)*width)
	b.cross(products, items, first, rows)
	if items.Starts != nil {
		b.fold(k, items.Starts[from:to+1], width)
	}
	b.spread(dst, n, products, to-from)
}

// scoreLarge scores an item with more rows than a block, block after block.
func (b *batch) scoreLarge(dst []float32, n int, products []*Product, items rerank.Items, item int) {
	k, width := products[0].Kernels, b.packed.Width()
	first, end := int(items.Starts[item]), int(items.Starts[item+1])
	blocks := (end - first + batchRows - 1) / batchRows
	b.products, b.tops = grow(b.products, max(batchRows, blocks)*width), grow(b.tops, blocks*width)
	for i := range blocks {
		from := first + i*batchRows
		rows := min(batchRows, end-from)
		b.cross(products, items, from, rows)
		k.Fold(b.tops[i*width:], b.products, width, rows)
	}
	k.Fold(b.products, b.tops, width, blocks)
	b.spread(dst, n, products, 1)
}

// cross multiplies rows of the items, in their order from `first` on, with all queries.
func (b *batch) cross(products []*Product, items rerank.Items, first, rows int) {
	k := products[0].Kernels
	m := b.matrix(k, items, first, rows)
	k.Cross(b.products, b.packed, m)
	if products[0].Norm == 0 {
		top := largest(k, m, nil, rows)
		for _, p := range products {
			kernel.RaiseMax(&p.seen, top)
		}
	}
}

// spread writes the scores of some items to dst, in which the scores of query q begin at dst[q·n].
func (b *batch) spread(dst []float32, n int, products []*Product, items int) {
	products[0].Kernels.Spread(dst, n, b.products, b.packed.Width(), items, len(products))
	for q, p := range products {
		if p.Scale == 1 {
			continue
		}
		scores := dst[q*n:][:items]
		for i := range scores {
			scores[i] *= p.Scale
		}
	}
}

// fold replaces the products of an item's rows by their maximum, for every item. An item
// without rows scores −Inf.
func (b *batch) fold(k *kernel.Set, starts []int32, width int) {
	items := len(starts) - 1
	b.best = grow(b.best, items*width)
	for i := range items {
		best := b.best[i*width:][:width]
		at, rows := int(starts[i]-starts[0])*width, int(starts[i+1]-starts[i])
		if rows == 0 {
			for l := range best {
				best[l] = float32(math.Inf(-1))
			}
			continue
		}
		k.Fold(best, b.products[at:], width, rows)
	}
	b.products, b.best = b.best, b.products
}

// matrix returns a range of the items' rows as a matrix: a view if they are contiguous,
// otherwise a copy.
func (b *batch) matrix(k *kernel.Set, items rerank.Items, first, rows int) rerank.Matrix {
	if items.Packed == nil && items.Rows == nil {
		return items.Features.Slice(first, first+rows)
	}
	if items.Packed != nil {
		return b.unpacker.rows(k, items, first, rows)
	}
	cols := items.Features.Cols
	b.rows = grow(b.rows, rows*cols)
	for i := range rows {
		copy(b.rows[i*cols:][:cols], items.Features.Row(rowNumber(items, first+i)))
	}
	return rerank.Matrix{Rows: rows, Cols: cols, Data: b.rows[:rows*cols]}
}

// largest returns an upper bound of the norms of n rows of m, including rounding. rows has
// the same meaning as in kernel.Rows. Rows that are not finite are ignored.
func largest(k *kernel.Set, m rerank.Matrix, rows []int32, n int) float32 {
	var top float64
	var squares [64]float32
	for from := 0; from < n; from += len(squares) {
		some := squares[:min(len(squares), n-from)]
		if rows != nil {
			k.Squares(some, m, rows[from:])
		} else {
			k.Squares(some, m.Slice(from, from+len(some)), nil)
		}
		for i, square := range some {
			if square-square == 0 && square > 1e-30 {
				top = max(top, float64(square))
				continue
			}
			r := from + i // the square is too small to be accurate, or too large
			if rows != nil {
				r = int(rows[r])
			}
			if norm := kernel.Norm(m.Row(r)); norm-norm == 0 {
				top = max(top, float64(norm)*float64(norm))
			}
		}
	}
	return float32(math.Sqrt(top*(1+2*kernel.Gamma(m.Cols+2))) * (1 + 0x1p-22))
}

// grow returns a slice of n elements, reusing v if it is large enough. The contents are
// unspecified.
func grow[T float32 | uint32 | int32](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}
