package rbe

import (
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
)

// BenchmarkL2Greedy chooses 100 of 10,000 items by 4,000 queries. cpu-s is user
// time, of all cores.
func BenchmarkL2Greedy(b *testing.B) {
	scores := fittest.NormalMatrix(rand.New(rand.NewPCG(5, 5)), 10_000, 4_000)
	before := fittest.UserTime()
	for b.Loop() {
		if chosen, err := Select(b.Context(), scores, 100, SelectL2Greedy, 1, nil); err != nil || len(chosen) != 100 {
			b.Fatalf("%d, %v", len(chosen), err)
		}
	}
	b.ReportMetric((fittest.UserTime()-before)/float64(b.N), "cpu-s/op")
}
