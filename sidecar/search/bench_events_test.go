//go:build unix

package search_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// BenchmarkEvents compares searches of a route that keeps every answer with searches of one that keeps
// none: the difference of cpu-ns/op is what events cost, the writing goroutine's work included, and
// allocs/op must not grow with the number of items by more than without events.
func BenchmarkEvents(b *testing.B) {
	const dim, depth = 768, 100
	sim, err := dot.New(dot.Config{Dim: dim}, nil)
	must(b, err)
	w := newWorld(b, sim, random(1, 200, dim))
	store := &ready{Store: w.store, made: []rerank.List{{Exact: true, IDs: w.owners[:depth], Scores: make([]float32, depth)}}}
	for _, k := range []int{10, 100} {
		for _, keeps := range []bool{false, true} {
			b.Run(fmt.Sprintf("k=%d/events=%t", k, keeps), func(b *testing.B) {
				book := events.Book{}
				if keeps {
					kept, err := events.OpenRoute(b.TempDir(), "r", events.RouteOptions{Share: 1, Keep: []string{events.FieldVector, events.FieldUser}, Hash: []string{events.FieldUser}})
					must(b, err)
					book["r"] = kept
				}
				e, err := search.New([]*route.Route{w.route(route.PlacementTable, func(r *route.Route) {
					r.Store, r.Strategy, r.MaxK, r.Depth, r.MaxRounds = store, rerank.Average, depth, depth, 1
				})}, search.Options{Events: book})
				must(b, err)
				must(b, e.Open(b.Context()))
				r := search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, dim).Row(0)}, K: k, Shown: true, User: "ann"}
				b.ReportAllocs()
				before := processorTime(b)
				for b.Loop() {
					if _, err := e.Search(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
				if keeps {
					b.ReportMetric(float64(book["r"].Stats().Dropped)/float64(b.N), "dropped/op")
				}
				must(b, book.Close())
			})
		}
	}
}

// processorTime returns the time that the process has kept a processor busy.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
