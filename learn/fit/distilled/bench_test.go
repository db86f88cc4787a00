package distilled

import (
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// A step of both heads over 10,003 items of 384 numbers and 256 queries with
// lists of 256; tools/fitbench/distil.py is the same step in PyTorch.
func BenchmarkDistilStep(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	l := &lessons{items: fittest.NormalMatrix(rng, 10003, 384), queries: fittest.NormalMatrix(rng, 1024, 384), temperature: 0.3}
	for _, m := range []rerank.Matrix{l.items, l.queries} {
		for r := range m.Rows {
			rerank.Normalise(m.Row(r))
		}
	}
	for q := range int32(1024) {
		scores := fittest.NormalMatrix(rng, 1, 10003).Data
		l.train, l.lists = append(l.train, q), append(l.lists, teacher.Rank(scores, nil, 256))
	}
	for name, hidden := range map[string]int{HeadLinear: 0, HeadResidual: 512} {
		b.Run(name, func(b *testing.B) {
			h := newHead(fittest.NormalMatrix(rng, 384, 384), hidden, 1)
			h.startTraining(0.05)
			o := DefaultOptions()
			d := newLearner(l, h, o)
			d.batch = 256
			before := fittest.UserTime()
			for b.Loop() {
				d.computeGradients(rng.Perm(1024)[:256], rng)
				h.takeStep(1)
			}
			b.ReportMetric(1e3*(fittest.UserTime()-before)/float64(b.N), "cpu-ms/op")
		})
	}
}
