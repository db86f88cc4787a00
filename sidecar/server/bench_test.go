package server_test

import (
	"context"
	"testing"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search"
)

// BenchmarkCall is a call over loopback TCP without its search: transport,
// decoding of a query of 768 elements, its rules, and encoding of 100 items.
func BenchmarkCall(b *testing.B) {
	answer := search.Answer{Hits: make([]search.Hit, 100)}
	for i := range answer.Hits {
		answer.Hits[i] = search.Hit{ID: rerank.UintID(uint64(i)), Score: float32(i)}
	}
	w := start(b, answering(func(context.Context, search.Request) (search.Answer, error) { return answer, nil }))
	r := &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: make([]float32, 768)}, K: 100}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.search.Search(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
