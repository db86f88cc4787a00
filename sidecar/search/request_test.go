package search_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// searchOnly hides the optional abilities of a store.
type searchOnly struct{ adapters.Store }

// TestBadRequests: faulty requests are refused before any call to the store.
func TestBadRequests(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	var calls atomic.Int64
	counting := &decorated{Store: w.store, before: func(context.Context, string) error { calls.Add(1); return nil }}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := []float32{1, 2, 3, 4}
	for _, c := range []struct {
		name string
		r    search.Request
		want error
		says string
	}{
		{"no such route", search.Request{Route: "x", K: 1}, route.ErrUnknown, `"x"`},
		{"K of 0", search.Request{}, plan.ErrRequest, "k: 0"},
		{"K below 0", search.Request{K: -3}, plan.ErrRequest, "k: -3"},
		{"K over the limit", search.Request{K: 31}, plan.ErrRequest, "k: 31 is not between 1 and 30"},
		{"depth below 0", search.Request{K: 1, Depth: -1}, plan.ErrRequest, "depth"},
		{"depth over the limit", search.Request{K: 1, Depth: 41}, plan.ErrRequest, "41 is more than 40"},
		{"average depth over the limit", search.Request{K: 1, AverageDepth: 41}, plan.ErrRequest, "average_depth"},
		{"strategy", search.Request{K: 1, Strategy: "guess"}, plan.ErrRequest, `"guess"`},
		{"weights", search.Request{K: 1, Weights: "heavy"}, plan.ErrRequest, `"heavy"`},
		{"head", search.Request{K: 1, Head: "third", Strategy: rerank.Distilled}, rerank.ErrStrategy, `"third"`},
		{"gap below 0", search.Request{K: 1, MaxGap: ptr(-1)}, plan.ErrRequest, "max_gap"},
		{"gap not a number", search.Request{K: 1, MaxGap: &nan}, plan.ErrRequest, "max_gap"},
		{"gap infinite", search.Request{K: 1, MaxGap: &inf}, plan.ErrRequest, "max_gap"},
		{"no table", search.Request{K: 1, Strategy: rerank.Scan}, plan.ErrRequest, "table"},
		{"dimension", search.Request{K: 1, Query: rerank.Query{Vector: good[:3]}}, rerank.ErrQuery, "3"},
		{"no query", search.Request{K: 1, Query: rerank.Query{Vector: []float32{}}}, plan.ErrRequest, "query.vector"},
		{"not a number", search.Request{K: 1, Query: rerank.Query{Vector: []float32{1, 2, nan, 4}}}, rerank.ErrQuery, "[2]"},
		{"infinite", search.Request{K: 1, Query: rerank.Query{Vector: []float32{1, inf, 3, 4}}}, rerank.ErrQuery, "[1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) {
				r.Store, r.MaxK, r.MaxDepth = counting, 30, 40
			}))
			if c.r.Route == "" {
				c.r.Route = "r"
			}
			if c.r.Query.Vector == nil {
				c.r.Query.Vector = good
			}
			calls.Store(0)
			a, err := p.Search(context.Background(), c.r)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || len(a.Hits) > 0 {
				t.Errorf("error %v, want %v with %q", err, c.want, c.says)
			}
			if calls.Load() != 0 {
				t.Errorf("%d calls to the store", calls.Load())
			}
		})
	}
}

func TestRequestsThatTheStoreCannotServe(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.Store = searchOnly{w.store} }))
	q := rerank.Query{Vector: []float32{1, 2, 3, 4}}
	for _, r := range []search.Request{{Filter: even, Strategy: rerank.Scan}, {Payload: true}} {
		r.Route, r.Query, r.K = "r", q, 3
		if _, err := p.Search(context.Background(), r); !errors.Is(err, plan.ErrRequest) {
			t.Errorf("%+v: error %v, want ErrRequest", r, err)
		}
	}
	_, err := p.Search(context.Background(), search.Request{Route: "r", Query: q, K: 3})
	must(t, err)
}

// parted has partitions, and records those of each request.
type parted struct {
	*decorated
	asked []string
}

func (p *parted) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	p.asked, r.Partitions = r.Partitions, nil
	return p.decorated.Search(ctx, r)
}

// TestPartitions: the store searches the request's partitions, or the route's. Partitions that
// cannot be distinguished, or that are not the route's, are refused.
func TestPartitions(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	store := &parted{decorated: &decorated{Store: w.store}}
	for _, c := range []struct {
		route, asked, want []string
		strategy           rerank.Strategy
		says               string
	}{
		{want: nil},
		{route: []string{"a", "b"}, want: []string{"a", "b"}},
		{asked: []string{"a"}, want: []string{"a"}},
		{route: []string{"a", "b"}, asked: []string{"b"}, want: []string{"b"}},
		{route: []string{"a"}, asked: []string{"a", "b"}, says: `partitions: "b"`},
		{asked: []string{"a"}, strategy: rerank.Scan, says: "partitions: strategy scan"},
	} {
		store.asked = nil
		p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.Store, r.Partitions = store, c.route }))
		_, err := p.Search(context.Background(), search.Request{Route: "r", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, K: 3, Partitions: c.asked, Strategy: c.strategy})
		if c.says == "" {
			must(t, err)
		} else if !errors.Is(err, plan.ErrRequest) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q of %q: %v", c.asked, c.route, err)
		}
		if !slices.Equal(store.asked, c.want) {
			t.Errorf("%q of %q: the store is asked for %q", c.asked, c.route, store.asked)
		}
	}
}

func TestCancelled(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	for _, call := range []string{"describe", "search", "fetch"} {
		ctx, cancel := context.WithCancel(context.Background())
		d := &decorated{Store: w.store, before: func(_ context.Context, c string) error {
			if c == call {
				cancel()
			}
			return nil
		}}
		p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) { r.Store, r.Strategy = d, rerank.PerEmbedding }))
		if a, err := p.Search(ctx, search.Request{Route: "r", Query: rerank.Query{Vector: make([]float32, 4)}, K: 3}); !errors.Is(err, context.Canceled) || len(a.Hits) > 0 {
			t.Errorf("cancelled in %s: %d hits, error %v", call, len(a.Hits), err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.Scan }))
	if _, err := p.Search(ctx, search.Request{Route: "r", Query: rerank.Query{Vector: make([]float32, 4)}, K: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: error %v", err)
	}
}

// TestScanIfFaster: the answer names the planner's choice, and is exact if that is the scan. A
// request that names its strategy is not planned.
func TestScanIfFaster(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.ScanIfFaster, r.Strategy = true, rerank.Average }))
	if err := p.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := search.Request{Route: "r", Query: rerank.Query{Vector: make([]float32, 4)}, K: 3}
	r.Query.Vector[0] = 1
	for i := range 4 {
		a, err := p.Search(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(a.Plan, string(a.Strategy)) || i == 0 && a.Strategy == rerank.Scan {
			t.Errorf("search %d by %s is said to be %q", i, a.Strategy, a.Plan)
		}
		if a.Strategy == rerank.Scan && a.Certificate.Status != rerank.StatusExact {
			t.Errorf("a scan is %s", a.Certificate.Status)
		}
	}
	r.Strategy = rerank.Average
	if a, err := p.Search(context.Background(), r); err != nil || a.Plan != "" || a.Strategy != r.Strategy {
		t.Errorf("a request that names its strategy: %q, %s, %v", a.Plan, a.Strategy, err)
	}
}
