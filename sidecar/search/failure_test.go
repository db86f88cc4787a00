package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// failing makes the named calls of a store fail.
func failing(err error, calls ...string) func(context.Context, string) error {
	return func(_ context.Context, call string) error {
		if slices.Contains(calls, call) {
			return fmt.Errorf("%w: by order of the test", err)
		}
		return nil
	}
}

// TestFailurePolicy: the answers of a route when a step fails.
func TestFailurePolicy(t *testing.T) {
	broken := errors.New("out of registers")
	for _, c := range []struct {
		name     string
		sim      toy
		place    route.Placement
		strategy rerank.Strategy
		store    decorated
		reason   string // of the fail_open route's answer; "" if it has none
		open     error  // of the fail_open route
		closed   error  // of the fail_closed route
	}{
		{"scoring", toy{broken: broken}, route.PlacementTable, rerank.PerEmbedding, decorated{}, failure.Scoring, nil, failure.ErrDegraded},
		{"scoring a scan", toy{broken: broken}, route.PlacementTable, rerank.Scan, decorated{}, failure.Scoring, nil, failure.ErrDegraded},
		{"encoding items", toy{broken: broken}, route.PlacementStored, rerank.PerEmbedding, decorated{}, failure.Scoring, nil, failure.ErrDegraded},
		{"features of the companion", toy{broken: broken}, route.PlacementDerived, rerank.PerEmbedding, decorated{}, failure.Scoring, nil, failure.ErrDegraded},
		{"fetch", toy{}, route.PlacementStored, rerank.PerEmbedding, decorated{before: failing(adapters.ErrStore, "fetch")}, failure.Features, nil, failure.ErrDegraded},
		{"fetch unavailable", toy{}, route.PlacementDerived, rerank.PerEmbedding, decorated{before: failing(adapters.ErrUnavailable, "fetch")}, failure.Features, nil, failure.ErrDegraded},
		{"search fails", toy{}, route.PlacementTable, rerank.PerEmbedding, decorated{before: failing(adapters.ErrStore, "search")}, failure.Store, nil, failure.ErrDegraded},
		{"companion gone", toy{}, route.PlacementDerived, rerank.PerEmbedding, decorated{before: failing(adapters.ErrNotFound, "search")}, failure.Store, nil, failure.ErrDegraded},
		{"store down", toy{}, route.PlacementTable, rerank.PerEmbedding, decorated{before: failing(adapters.ErrUnavailable, "search", "plain", "fetch")}, "", adapters.ErrUnavailable, adapters.ErrUnavailable},
		{"store goes down in mid-query", toy{}, route.PlacementStored, rerank.PerEmbedding, decorated{before: failing(adapters.ErrUnavailable, "plain", "fetch")}, "", adapters.ErrUnavailable, failure.ErrDegraded},
		{"filter refused", toy{}, route.PlacementTable, rerank.PerEmbedding, decorated{before: failing(adapters.ErrFilter, "search")}, "", adapters.ErrFilter, adapters.ErrFilter},
		{"access refused", toy{}, route.PlacementTable, rerank.PerEmbedding, decorated{before: failing(adapters.ErrRefused, "search")}, "", adapters.ErrRefused, adapters.ErrRefused},
		{"payload", toy{}, route.PlacementTable, rerank.PerEmbedding, decorated{before: failing(adapters.ErrStore, "payload")}, "", adapters.ErrStore, adapters.ErrStore},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := &toy{dim: 6, blocks: 3}
			w := newWorld(t, whole, random(1, 90, 6))
			w.sim = &toy{dim: 6, blocks: 3, broken: c.sim.broken}
			c.store.Store = w.store
			q := random(2, 1, 6).Row(0)
			for failed, want := range map[route.FailurePolicy]error{route.FailOpen: c.open, route.FailClosed: c.closed} {
				r := w.route(c.place, func(r *route.Route) { r.Strategy, r.Failure, r.Store = c.strategy, failed, &c.store })
				a, err := pipe(t, r).Search(context.Background(), search.Request{Route: "r", Query: rerank.Query{Vector: q}, K: 5, Payload: true})
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Fatalf("%s: error %v, want %v", failed, err, want)
				}
				if err != nil {
					if len(a.Hits) > 0 {
						t.Errorf("%s: %d hits with an error", failed, len(a.Hits))
					}
					continue
				}
				wantPlain(t, w, a, q, 5, c.reason)
				if a.Hits[0].Payload == nil {
					t.Errorf("%s: a plain answer lacks its payload", failed)
				}
			}
		})
	}
}

// TestDegradedNeedsOneSpace: there is no plain answer if queries and stored vectors cannot be
// compared, or if only the table is there.
func TestDegradedNeedsOneSpace(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 30, 6))
	w.sim = &toy{dim: 6, blocks: 3, broken: errors.New("no")}
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Store = rerank.Scan, nil })
	_, err := pipe(t, r).Search(context.Background(), search.Request{Route: "r", Query: rerank.Query{Vector: make([]float32, 6)}, K: 5})
	if !errors.Is(err, failure.ErrDegraded) {
		t.Errorf("error %v, want ErrDegraded", err)
	}
}

// TestGroupedFallback: the plain answer of a grouped route also lists items.
func TestGroupedFallback(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1, grouped: true}, random(1, 90, 6))
	r := w.route(route.PlacementStored, func(r *route.Route) {
		r.Store = &decorated{Store: w.store, before: failing(adapters.ErrStore, "fetch")}
	})
	q := random(2, 1, 6).Row(0)
	a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: q}, K: 4})
	sameHits(t, a.Hits, w.exact(t, q, nil)[:4]) // φ is the inner product here
	if a.Degraded == nil || a.Degraded.Reason != failure.Features {
		t.Errorf("degraded %+v", a.Degraded)
	}
}

// TestStoreBreaksItsContract: a faulty answer of the store leads to ErrStore, whatever the policy.
func TestStoreBreaksItsContract(t *testing.T) {
	nan := float32(math.NaN())
	lists := map[string]func([]rerank.List) []rerank.List{
		"a list too few":  func(l []rerank.List) []rerank.List { return l[1:] },
		"a score too few": func(l []rerank.List) []rerank.List { l[0].Scores = l[0].Scores[1:]; return l },
		"an id twice":     func(l []rerank.List) []rerank.List { l[0].IDs[3] = l[0].IDs[2]; return l },
		"no id":           func(l []rerank.List) []rerank.List { l[1].IDs[3] = rerank.ID{}; return l },
		"not sorted": func(l []rerank.List) []rerank.List {
			l[0].Scores[0], l[0].Scores[5] = l[0].Scores[5], l[0].Scores[0]
			return l
		},
		"not finite":    func(l []rerank.List) []rerank.List { l[0].Scores[2] = nan; return l },
		"error unknown": func(l []rerank.List) []rerank.List { l[0].Epsilon = nan; return l },
		"too many rows": func(l []rerank.List) []rerank.List {
			l[0].IDs, l[0].Scores = append(l[0].IDs, rerank.TextID("x")), append(l[0].Scores, -100)
			return l
		},
	}
	rows := map[string]func(adapters.Rows) adapters.Rows{
		"not asked":     func(r adapters.Rows) adapters.Rows { r.IDs[0] = rerank.TextID("x"); return r },
		"another order": func(r adapters.Rows) adapters.Rows { r.IDs[0], r.IDs[1] = r.IDs[1], r.IDs[0]; return r },
		"row twice":     func(r adapters.Rows) adapters.Rows { r.IDs[1] = r.IDs[0]; return r },
		"no vectors":    func(r adapters.Rows) adapters.Rows { r.Vectors = nil; return r },
		"a row too few": func(r adapters.Rows) adapters.Rows { r.Vectors[0].Rows--; return r },
		"other vectors": func(r adapters.Rows) adapters.Rows { r.Vectors[0] = rerank.NewMatrix(r.Vectors[0].Rows, 2); return r },
	}
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	try := func(t *testing.T, d *decorated) {
		d.Store = w.store
		r := w.route(route.PlacementStored, func(r *route.Route) { r.Strategy, r.Store = rerank.PerEmbedding, d })
		a, err := pipe(t, r).Search(context.Background(), search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 5})
		if !errors.Is(err, adapters.ErrStore) || len(a.Hits) > 0 {
			t.Errorf("%d hits, error %v; want ErrStore", len(a.Hits), err)
		}
	}
	for name, change := range lists {
		t.Run(name, func(t *testing.T) { try(t, &decorated{lists: change}) })
	}
	for name, change := range rows {
		t.Run(name, func(t *testing.T) { try(t, &decorated{rows: change}) })
	}
}

// TestOwnersThatAreMissing: rows of no item cannot be candidates.
func TestOwnersThatAreMissing(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1, grouped: true}, random(1, 90, 6))
	for name, change := range map[string]func(*rerank.List){
		"none":    func(l *rerank.List) { l.Owners = nil },
		"empty":   func(l *rerank.List) { l.Owners[3] = rerank.ID{} },
		"too few": func(l *rerank.List) { l.Owners = l.Owners[1:] },
		"twice":   func(l *rerank.List) { l.IDs[4] = l.IDs[2] },
	} {
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Store = &decorated{Store: w.store, lists: func(lists []rerank.List) []rerank.List { change(&lists[0]); return lists }}
		})
		_, err := pipe(t, r).Search(context.Background(), search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 4})
		if !errors.Is(err, adapters.ErrStore) {
			t.Errorf("%s: error %v, want ErrStore", name, err)
		}
	}
}

// TestRowsThatVanish: rows deleted between search and fetch are left out.
func TestRowsThatVanish(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	gone := func(r adapters.Rows) adapters.Rows {
		r.IDs, r.Vectors[0] = r.IDs[2:], r.Vectors[0].Slice(2, r.Vectors[0].Rows)
		return r
	}
	r := w.route(route.PlacementStored, func(r *route.Route) {
		r.Strategy, r.Store, r.Depth = rerank.PerEmbedding, &decorated{Store: w.store, rows: gone}, 90
	})
	a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 90})
	if len(a.Hits) != 88 || a.Certificate.Candidates != 88 {
		t.Errorf("%d hits of %d candidates, want 88", len(a.Hits), a.Certificate.Candidates)
	}
}
