package rerank_test

import (
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// BenchmarkTopK keeps 1,000 of 10,003 random scores and sorts them, as a first
// stage of a thousand candidates does.
func BenchmarkTopK(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	scores := make([]float32, 10_003)
	for i := range scores {
		scores[i] = random.Float32()
	}
	var top rerank.TopK
	var rows []rerank.Scored
	b.ReportAllocs()
	for b.Loop() {
		top.Reset(1000)
		for i, s := range scores {
			top.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: s, Index: i})
		}
		rows = top.AppendSorted(rows[:0])
	}
}
