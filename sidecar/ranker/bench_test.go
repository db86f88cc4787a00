package ranker_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// zeros is a scorer that costs nothing.
type zeros struct{ scores []float32 }

func (z zeros) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Version: "1", MaxItems: len(z.scores), Parallel: 4}, nil
}

func (z zeros) Score(_ context.Context, _ plugin.Query, items []plugin.Item) ([]float32, error) {
	return z.scores[:len(items)], nil
}

// BenchmarkRank measures the Client's overhead over a scorer: 256 items with 64 KiB of payload, in
// one batch and in sixteen.
func BenchmarkRank(b *testing.B) {
	items := make([]plugin.Item, 256)
	for i := range items {
		items[i] = plugin.Item{ID: rerank.UintID(uint64(i)), Payload: make(json.RawMessage, 256)}
	}
	for name, batch := range map[string]int{"one_batch": 256, "batches_of_16": 16} {
		b.Run(name, func(b *testing.B) {
			c := ranker.New(zeros{make([]float32, batch)}, ranker.Options{RetryBudget: .1})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Rank(b.Context(), query, items); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
