package embedded_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
)

func randomMatrix(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// BenchmarkSearch is the first stage of the questions collection: 10,003 rows
// of 384, by one probe and by 16.
func BenchmarkSearch(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := embedded.New()
	if err := s.Load("questions", embedded.Collection{Fields: []embedded.Field{{Vectors: randomMatrix(rng, 10_003, 384)}}}); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("probes=%d", n), func(b *testing.B) {
			r := adapters.SearchRequest{Collection: "questions"}
			vectors := randomMatrix(rng, n, 384)
			for i := range n {
				r.Probes = append(r.Probes, rerank.Probe{Vector: vectors.Row(i), Depth: 200})
			}
			for b.Loop() {
				if _, err := s.Search(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
