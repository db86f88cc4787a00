package offload_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/sidecar/plugins"
)

// BenchmarkDevice: what a question costs by way of a plugin process, beside the same
// work in this one.
func BenchmarkDevice(b *testing.B) {
	w := newWorld(b, 100_000)
	p, err := plugins.Start(b.Context(), plugins.Options{Name: "gpu", Path: os.Args[0], Env: []string{serves + "=1"}})
	must(b, err)
	b.Cleanup(func() { must(b, p.Close()) })
	s := w.scorer(b, p.Conn())
	ready(b, s)
	q := rerank.Query{Vector: random(9, 1, dim).Row(0)}
	enc, err := w.model.Encode(q)
	must(b, err)
	for _, n := range []int{64, 4096} {
		candidates := make([]int32, n)
		for i := range candidates {
			candidates[i] = int32(i * (100_000 / n))
		}
		b.Run(fmt.Sprintf("rescore/%d/plugin", n), func(b *testing.B) {
			for b.Loop() {
				_, err := s.Rescore(b.Context(), w.table, q, candidates, 31)
				must(b, err)
			}
		})
		b.Run(fmt.Sprintf("rescore/%d/here", n), func(b *testing.B) {
			scores := make([]float32, n)
			for b.Loop() {
				must(b, enc.Score(scores, w.table.Items(candidates, &rerank.Items{})))
				top := rerank.NewTopK(31)
				for i, x := range scores {
					top.Push(rerank.Scored{ID: rerank.UintID(uint64(candidates[i])), Score: x})
				}
				top.Sorted()
			}
		})
	}
	b.Run("scan/100000/plugin", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Scan(b.Context(), w.table, q, nil, 31)
			must(b, err)
		}
	})
	b.Run("scan/100000/here", func(b *testing.B) {
		here := scan.New(w.table, w.model.Spec())
		for b.Loop() {
			_, err := here.Scan(b.Context(), scan.Query{Encoded: enc, K: 31}, nil)
			must(b, err)
		}
	})
}
