package score

import (
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// Batch is candidates with their feature rows, ready for one call of
// rerank.Encoded.Score.
type Batch struct {
	IDs   []rerank.ID
	Items rerank.Items
	// Rounded: the feature rows come from a table whose format rounds.
	Rounded bool
	// Numbers are the items' numbers in the table; nil if their rows are not from the table.
	Numbers []int32

	pooled *[]float32 // the memory of the feature rows, if Free returns it to the pool
}

// NewBatch makes a batch with room for feature rows of cols numbers each, which the caller writes
// to Items.Features. Free returns their memory.
func NewBatch(ids []rerank.ID, starts []int32, rows, cols int) Batch {
	pooled, n := rowPool.Get().(*[]float32), rows*cols
	if cap(*pooled) < n {
		*pooled = make([]float32, n)
	}
	*pooled = (*pooled)[:n]
	features := rerank.Matrix{Rows: rows, Cols: cols, Data: *pooled}
	return Batch{IDs: ids, Items: rerank.Items{Features: features, Starts: starts}, pooled: pooled}
}

var rowPool = sync.Pool{New: func() any { return new([]float32) }}

// maxPooled is the most that the pool keeps of one batch, in numbers: 16 MiB.
const maxPooled = 4 << 20

// Free allows later batches to reuse the memory of the feature rows. Nobody may read them
// afterwards.
func (b *Batch) Free() {
	if b.pooled != nil && cap(*b.pooled) <= maxPooled {
		rowPool.Put(b.pooled)
	}
	b.pooled = nil
}

// Item returns the feature rows of one item of the batch.
func (b Batch) Item(i int) rerank.Items { return b.Items.Pick([]int32{int32(i)}) }
