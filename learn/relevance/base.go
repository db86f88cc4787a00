package relevance

import (
	"context"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// Base computes the base vectors of a relevance-based model. The base vector of a row
// holds the ranker's scores for the support queries, in their order.
type Base struct {
	*Asker

	Questions []plugin.Query

	// Unknown counts the rows without a stored score, if the Asker only reads stored
	// scores. The base vectors of those rows are not finite.
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
		b.Unknown += int64(b.countUnknown(items))
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

// countUnknown counts the items without a stored score.
func (b *Base) countUnknown(items Items) int {
	all := map[int]bool{}
	for _, q := range b.Questions {
		for _, at := range b.takeStored(items, queryKey(q), func(int, float32) {}) {
			all[at] = true
		}
	}
	return len(all)
}

// Count adds the cost of the rows' base vectors to an estimate, and returns the rows
// as items.
func (b *Base) Count(e *Estimate, rows adapters.Rows) (Items, error) {
	items, err := b.Items(rows)
	if err == nil {
		b.Add(e, items, b.Questions, b.columns())
	}
	return items, err
}

// Measure runs Asker.Probe with the given items.
func (b *Base) Measure(ctx context.Context, e *Estimate, items Items) error {
	return b.Probe(ctx, e, items, b.Questions, b.columns())
}
