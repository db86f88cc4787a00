package server_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
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

// BenchmarkFeedback sends feedback over loopback TCP in batches of a hundred, four callers at a time, each
// batch synced to disk before it is acknowledged. With -cpu 1 client and sidecar share one processor.
func BenchmarkFeedback(b *testing.B) {
	kept, err := events.OpenRoute(b.TempDir(), "things", events.RouteOptions{Share: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = kept.Close() })
	w := start(b, func(o *server.Options) { o.Events = events.Book{"things": kept} })
	answer := events.AnswerID{Call: kept.NewCall()}.String()
	const batch = 100
	var number atomic.Int64
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		client := likenessv1.NewFeedbackServiceClient(w.conn)
		for p.Next() {
			r := &likenessv1.FeedbackRequest{Route: "things"}
			for range batch {
				r.Events = append(r.Events, &likenessv1.FeedbackEvent{
					AnswerId: answer, Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 7}}, Kind: "click", EventId: fmt.Sprint("event ", number.Add(1)),
				})
			}
			if got, err := client.Feedback(b.Context(), r); err != nil || got.GetAccepted() != batch {
				b.Error(got, err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}
