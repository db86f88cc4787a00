package search_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

func ptr(x float32) *float32 { return &x }

// inexact makes the lists of a store claim to be approximate.
func inexact(lists []rerank.List) []rerank.List {
	for i := range lists {
		lists[i].Exact = false
	}
	return lists
}

// TestStop: why the search for more candidates ended, and what it proved.
func TestStop(t *testing.T) {
	product, mixture := &toy{dim: 6, blocks: 1}, &toy{dim: 6, blocks: 3}
	for _, c := range []struct {
		name   string
		sim    *toy
		change func(*route.Route, *decorated)
		gap    *float32
		stop   rerank.Stop
		status rerank.Status
		proof  rerank.Proof
		rounds int
	}{
		{"one round", mixture, nil, nil, rerank.StopFixed, rerank.StatusUnknown, "", 1},
		{"one inner product", product, nil, nil, rerank.StopFixed, rerank.StatusExact, rerank.ProofInnerProduct, 1},
		{"gap already small", product, nil, ptr(0), rerank.StopGap, rerank.StatusExact, rerank.ProofInnerProduct, 1},
		{"wide gap allowed", mixture, nil, ptr(100), rerank.StopGap, rerank.StatusUnknown, "", 1},
		{"bound closes", mixture, nil, ptr(0), rerank.StopGap, rerank.StatusExact, rerank.ProofBound, 2},

		{"all rows", mixture, func(r *route.Route, _ *decorated) { r.Depth = 301 }, nil, rerank.StopExhausted, rerank.StatusExact, rerank.ProofExhausted, 1},
		{"most depth", mixture, func(r *route.Route, _ *decorated) { r.MaxDepth = 30 }, ptr(0), rerank.StopLimit, rerank.StatusUnknown, "", 2},
		{"most rounds", mixture, func(r *route.Route, _ *decorated) { r.MaxRounds = 1 }, ptr(0), rerank.StopLimit, rerank.StatusUnknown, "", 1},
		{"the store's limit", mixture, func(_ *route.Route, d *decorated) {
			d.before = func(_ context.Context, call string) error {
				if call == "search" {
					d.before = func(_ context.Context, call string) error {
						if call == "search" {
							return &adapters.LimitError{Limit: "message", Value: 2, Max: 1, Remedy: "none"}
						}
						return nil
					}
				}
				return nil
			}
		}, ptr(0), rerank.StopLimit, rerank.StatusUnknown, "", 1},
		{"inexact lists", mixture, func(_ *route.Route, d *decorated) { d.lists = inexact }, ptr(0), rerank.StopUnbounded, rerank.StatusUnknown, "", 1},
		{"inexact inner product", product, func(_ *route.Route, d *decorated) { d.lists = inexact }, ptr(0), rerank.StopUnbounded, rerank.StatusUnknown, "", 1},
		{"no bound", mixture, func(r *route.Route, _ *decorated) { r.Strategy = rerank.Distilled }, ptr(0), rerank.StopUnbounded, rerank.StatusUnknown, "", 1},
		{"scan", mixture, func(r *route.Route, _ *decorated) { r.Strategy = rerank.Scan }, ptr(0), rerank.StopExhausted, rerank.StatusExact, rerank.ProofScan, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.sim, random(1, 300, 6))
			d := &decorated{Store: w.store}
			r := w.route(route.PlacementTable, func(r *route.Route) {
				r.Store, r.Strategy = d, rerank.PerEmbedding
				if c.sim == product {
					r.Strategy = rerank.Average
				}
				if c.change != nil {
					c.change(r, d)
				}
			})
			q := random(2, 1, 6).Row(0)
			a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: q}, K: 5, MaxGap: c.gap})
			judge(t, a, w.exact(t, q, nil), 5)
			got := a.Certificate
			if got.Stop != c.stop || got.Status != c.status || got.Proof != c.proof || got.Rounds != c.rounds {
				t.Errorf("%+v, want %s, %s by %q after %d rounds", got, c.stop, c.status, c.proof, c.rounds)
			}
		})
	}
}

// slow makes calls of a store take that long, unless the caller gives up.
func slow(took time.Duration, slowCall string) func(context.Context, string) error {
	return func(ctx context.Context, call string) error {
		if call != slowCall {
			return nil
		}
		select {
		case <-time.After(took):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestDeadline uses the clock of a bubble.
func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		name    string
		slow    func(context.Context, string) error
		failure route.FailurePolicy
		rounds  int
		reason  string
		err     error
	}{
		{"another round would not fit", slow(300*time.Millisecond, "search"), route.FailOpen, 1, "", nil},
		{"a second round fits", slow(200*time.Millisecond, "search"), route.FailOpen, 2, "", nil},
		{"no time to rescore", slow(2*time.Second, "search"), route.FailOpen, 0, failure.Deadline, nil},
		{"no time to fetch", slow(2*time.Second, "fetch"), route.FailOpen, 0, failure.Deadline, nil},
		{"no time, closed", slow(2*time.Second, "search"), route.FailClosed, 0, "", failure.ErrDegraded},
		{"no time for anything", func(ctx context.Context, call string) error {
			if call == "describe" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, route.FailOpen, 0, "", context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
				r := w.route(route.PlacementStored, func(r *route.Route) {
					r.Strategy, r.Timeout, r.Failure = rerank.PerEmbedding, time.Second, c.failure
					r.Store = &decorated{Store: w.store, before: c.slow}
				})
				q := random(2, 1, 6).Row(0)
				began := time.Now()
				a, err := pipe(t, r).Search(context.Background(), search.Request{Route: "r", Query: rerank.Query{Vector: q}, K: 19, MaxGap: ptr(0)})
				if !errors.Is(err, c.err) || time.Since(began) > time.Second {
					t.Fatalf("error %v after %v, want %v within a second", err, time.Since(began), c.err)
				}
				if c.err != nil {
					return
				}
				if c.reason != "" {
					wantPlain(t, w, a, q, 19, c.reason)
					return
				}
				judge(t, a, w.exact(t, q, nil), 19)
				if a.Certificate.Stop != rerank.StopDeadline || a.Certificate.Rounds != c.rounds {
					t.Errorf("%+v, want %s after %d rounds", a.Certificate, rerank.StopDeadline, c.rounds)
				}
			})
		})
	}
}

// wantPlain wants the store's own answer to the query vector.
func wantPlain(t *testing.T, w *world, a search.Answer, q []float32, k int, reason string) {
	t.Helper()
	if a.Degraded == nil || a.Degraded.Reason != reason || a.Degraded.Detail == "" {
		t.Fatalf("degraded %+v, want %q", a.Degraded, reason)
	}
	if c := a.Certificate; c.Status != rerank.StatusUnknown || c.Proof != "" || c.Calibration != nil {
		t.Errorf("certificate of a degraded answer: %+v", c)
	}
	lists, err := w.store.Search(context.Background(), adapters.SearchRequest{
		Collection: collection, Probes: []rerank.Probe{{Vector: q, Depth: k}},
	})
	must(t, err)
	var want []rerank.Scored
	for i, id := range lists[0].IDs {
		want = append(want, rerank.Scored{ID: id, Score: lists[0].Scores[i]})
	}
	sameHits(t, a.Hits, want)
}

// TestGroupedLists: the first rows belong to few items, and the answer has K distinct items.
func TestGroupedLists(t *testing.T) {
	vectors := random(9, 240, 4)
	for r := range 30 { // ten items whose three rows lead every list
		for d := range 4 {
			vectors.Row(r)[d] = 5 + vectors.Row(r)[d]/10
		}
	}
	w := newWorld(t, &toy{dim: 4, blocks: 1, grouped: true}, vectors)
	q := []float32{1, 1, 1, 1}
	for _, p := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived} {
		a := searchRoute(t, w.route(p, func(r *route.Route) { r.Depth, r.Strategy = 5, rerank.Average }), search.Request{Query: rerank.Query{Vector: q}, K: 12})
		sameHits(t, a.Hits, w.exact(t, q, nil)[:12])
		if a.Certificate.Status != rerank.StatusExact || a.Certificate.Rounds < 2 {
			t.Errorf("%s: %+v, want exact after more rounds", p, a.Certificate)
		}
	}
}

// TestLimitsOfTheStore: the store's limits apply in addition to the route's.
func TestLimitsOfTheStore(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
	w.store = embedded.New(embedded.WithLimits(adapters.Limits{MaxDepth: 64, MaxProbes: 3}))
	must(t, w.store.Load(collection, embedded.Collection{Fields: []embedded.Field{{Vectors: w.vectors}}}))
	p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) { r.Strategy = rerank.PerEmbedding }))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	a, err := p.Search(context.Background(), search.Request{Route: "r", Query: q, K: 19, MaxGap: ptr(0)})
	must(t, err)
	if a.Certificate.Stop != rerank.StopLimit || a.Certificate.Depth != 64 || p.Routes()[0].MaxDepth != 64 {
		t.Errorf("%+v, route's max_depth %d; want %s at 64", a.Certificate, p.Routes()[0].MaxDepth, rerank.StopLimit)
	}
	var field *plan.FieldError
	for _, r := range []search.Request{{K: 65}, {K: 5, Depth: 65}, {K: 5, Strategy: rerank.Combined}} {
		r.Route, r.Query = "r", q
		if _, err := p.Search(context.Background(), r); !errors.As(err, &field) {
			t.Errorf("K %d, depth %d, strategy %q: error %v, want a *FieldError", r.K, r.Depth, r.Strategy, err)
		}
	}
}
