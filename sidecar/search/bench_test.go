package search_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// ready answers searches with prepared lists, so that a benchmark measures the sidecar's own work:
// probes, union, table, score, top K, certificate.
type ready struct {
	*embedded.Store
	made []rerank.List
}

func (r *ready) Search(_ context.Context, req adapters.SearchRequest) ([]rerank.List, error) {
	return r.made[:len(req.Probes)], nil
}

func BenchmarkSearch(b *testing.B) {
	const dim = 8 // makes the kernel's share negligible
	for _, c := range []struct{ lists, depth int }{{1, 1000}, {16, 200}} {
		for _, text := range []bool{false, true} {
			b.Run(fmt.Sprintf("lists=%d/depth=%d/text=%t", c.lists, c.depth, text), func(b *testing.B) {
				benchSearch(b, dim, c.lists, c.depth, text)
			})
		}
	}
}

func benchSearch(b *testing.B, dim, lists, depth int, text bool) {
	var sim rerank.Similarity = &toy{dim: lists * dim, blocks: lists}
	strategy := rerank.PerEmbedding
	if lists == 1 {
		var err error
		sim, err = dot.New(dot.Config{Dim: dim}, nil)
		must(b, err)
		strategy = rerank.Average
	}
	w := newWorld(b, sim, random(1, 4000, lists*dim))
	if text {
		for i := range w.owners {
			w.owners[i] = rerank.TextID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		}
		w.table = w.tabulate(b, w.table.Features(), len(w.owners))
	}
	store := &ready{Store: w.store}
	rng := rand.New(rand.NewPCG(1, 1))
	for range lists {
		l := rerank.List{Exact: true, Scores: make([]float32, depth)}
		for i, at := range rng.Perm(len(w.owners))[:depth] {
			l.IDs = append(l.IDs, w.owners[at])
			l.Scores[i] = -float32(i)
		}
		store.made = append(store.made, l)
	}
	p := pipe(b, w.route(route.PlacementTable, func(r *route.Route) {
		r.Store, r.Strategy, r.Depth, r.MaxRounds = store, strategy, depth, 1
	}))
	r := search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, lists*dim).Row(0)}, K: 10}
	var a search.Answer
	for b.Loop() {
		var err error
		if a, err = p.Search(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(a.Certificate.Candidates), "candidates")
	b.ReportMetric(float64(a.Timings.Score.Nanoseconds()), "score-ns")
}

func BenchmarkScan(b *testing.B) {
	sim, err := dot.New(dot.Config{Dim: 64}, nil)
	must(b, err)
	w := newWorld(b, sim, random(1, 100_000, 64))
	p := pipe(b, w.route(route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.Scan }))
	r := search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 64).Row(0)}, K: 10}
	for b.Loop() {
		if _, err := p.Search(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}
