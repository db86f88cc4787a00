package relevance

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// Base makes the base vectors of a relevance-based model: of each row, the ranker's
// scores for the support queries, in their order.
type Base struct {
	*Asker

	Questions []plugin.Query

	// Unknown counts the rows of which a score is not kept, where the Asker may only
	// look at what is kept. Those rows are not finite.
	Unknown int64
}

// Vectors implements index.Base. It is not safe for concurrent use.
func (b *Base) Vectors(ctx context.Context, rows adapters.Rows) (rerank.Matrix, error) {
	base := rerank.NewMatrix(len(rows.IDs), len(b.Questions))
	items, err := b.Items(rows)
	if err != nil {
		return base, err
	}
	if b.o.KeptOnly {
		b.Unknown += int64(b.unknown(items))
	}
	return base, b.Fill(ctx, base, items, b.Questions, b.columns())
}

func (b *Base) columns() []int {
	all := make([]int, len(b.Questions))
	for i := range all {
		all[i] = i
	}
	return all
}

// unknown counts the items of which a score is not kept.
func (b *Base) unknown(items Items) int {
	all := map[int]bool{}
	for _, q := range b.Questions {
		for _, at := range b.take(items, queryKey(q), func(int, float32) {}) {
			all[at] = true
		}
	}
	return len(all)
}

// Count adds what the base vectors of some rows will cost to an estimate, and returns
// the items that they are.
func (b *Base) Count(e *Estimate, rows adapters.Rows) (Items, error) {
	items, err := b.Items(rows)
	if err == nil {
		b.Add(e, items, b.Questions, b.columns())
	}
	return items, err
}

// Measure is Probe with some items.
func (b *Base) Measure(ctx context.Context, e *Estimate, items Items) error {
	return b.Probe(ctx, e, items, b.Questions, b.columns())
}
