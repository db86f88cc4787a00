package qdrant_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

// BenchmarkSearch is the first stage of the questions collection on a real
// server: exact probes of 200 rows over 10,003 rows of 384.
func BenchmarkSearch(b *testing.B) {
	server := servers.QdrantForTest(b, servers.QdrantNewest, servers.Options{})
	s := open(b, qdrant.Options{Address: server.Address})
	defer s.Close()
	sc := schema("questions", adapters.VectorField{Dim: 384})
	if err := s.Create(b.Context(), sc); err != nil {
		b.Fatal(err)
	}
	write(b, s, sc, adapters.Rows{IDs: ids(10_003), Vectors: []rerank.Matrix{matrix(rand.New(rand.NewPCG(1, 2)), 10_003, 384)}})
	for _, n := range []int{1, 16} {
		for _, vectors := range []bool{false, true} {
			if n > 1 && vectors {
				continue
			}
			b.Run(fmt.Sprintf("probes=%d/vectors=%v", n, vectors), func(b *testing.B) {
				r := adapters.SearchRequest{Collection: "questions", Exact: true, WithVectors: vectors, Probes: probes(n, 384, 200)}
				for b.Loop() {
					if err := search(b, s, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
