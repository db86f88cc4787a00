package search_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// freshness is a Freshness with a constant value.
type freshness bool

func (f freshness) Fresh() bool { return bool(f) }

func (f freshness) Assess() (bool, route.Doubt) { return bool(f), nil }

func (freshness) Horizon() route.Horizon { return route.Horizon{} }

// doubtful is fresh if the writes in flight are refused.
type doubtful struct{ refused bool }

func (doubtful) Fresh() bool { return false }

func (d doubtful) Assess() (bool, route.Doubt) { return true, d }

func (doubtful) Horizon() route.Horizon { return route.Horizon{} }

func (d doubtful) Cleared(context.Context) bool { return d.refused }

// TestDoubt: an answer that was made while writes were in flight claims nothing, unless the
// database refused them all.
func TestDoubt(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(8, 15, 4))
	for _, strategy := range []rerank.Strategy{rerank.PerEmbedding, rerank.Scan} {
		for _, refused := range []bool{true, false} {
			r := w.route(route.PlacementTable, func(r *route.Route) {
				r.Strategy, r.ExactSearch, r.Freshness = strategy, true, doubtful{refused}
			})
			a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: random(9, 1, 4).Data}, K: 5})
			if exact := a.Certificate.Status == rerank.StatusExact; exact != refused {
				t.Errorf("%s, refused %t: %+v", strategy, refused, a.Certificate)
			}
		}
	}
}

// TestFreshness: a table or companion that lacks writes proves nothing. Answers from the collection
// alone are as exact as ever.
func TestFreshness(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(8, 15, 4))
	for _, placement := range []route.Placement{route.PlacementTable, route.PlacementDerived, route.PlacementStored} {
		for _, strategy := range []rerank.Strategy{rerank.PerEmbedding, rerank.Scan} {
			if strategy == rerank.Scan && placement != route.PlacementTable {
				continue
			}
			for _, fresh := range []freshness{true, false} {
				r := w.route(placement, func(r *route.Route) { r.Strategy, r.ExactSearch, r.Freshness = strategy, true, fresh })
				a := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: random(9, 1, 4).Data}, K: 5})
				want := bool(fresh) || placement == route.PlacementStored
				if exact := a.Certificate.Status == rerank.StatusExact; exact != want {
					t.Errorf("%s, %s, fresh %t: %+v", placement, strategy, fresh, a.Certificate)
				}
			}
		}
	}
}

// TestGone: an item of a stale table is left out if the collection no longer has it, unless the
// caller checks that itself.
func TestGone(t *testing.T) {
	w := dotWorld(t)
	query := random(201, 1, 16).Data
	best := w.exact(t, query, nil)
	l := w.live(t, 900)
	gone := rerank.UintID(5000) // only in the table, with the best score
	row := rerank.Matrix{Rows: 1, Cols: 16, Data: slices.Clone(query)}
	rerank.Normalise(row.Data)
	must(t, l.Upsert([]rerank.ID{gone}, row, nil))
	for _, c := range []struct {
		request search.Request
		fresh   freshness
		there   bool
	}{
		{search.Request{}, false, false},
		{search.Request{Payload: true}, false, false},
		{search.Request{Confirms: true}, false, true},
		{search.Request{}, true, true},
	} {
		r := w.route(route.PlacementTable, func(r *route.Route) {
			r.Table, r.Live, r.Strategy, r.Freshness = nil, l, rerank.Scan, c.fresh
		})
		c.request.Query, c.request.K = rerank.Query{Vector: query}, 10
		a := searchRoute(t, r, c.request)
		if there := a.Hits[0].ID == gone; there != c.there {
			t.Errorf("%+v, fresh %t: the first hit is %s", c.request, c.fresh, a.Hits[0].ID)
		}
		if !c.there {
			sameHits(t, a.Hits, best[:9])
		}
	}
}

// seen is a fresh table or companion with a horizon.
type seen struct {
	freshness
	horizon route.Horizon
}

func (s seen) Horizon() route.Horizon { return s.horizon }

// TestSnapshot: a proof from a table or companion is exact only if all writes are declared to pass
// through this process and nothing disputes it. Searches of the database itself are exact
// regardless.
func TestSnapshot(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(8, 15, 4))
	at := time.Now()
	for _, c := range []struct {
		placement route.Placement
		strategy  rerank.Strategy
		writes    config.Writes
		dispute   route.Dispute
		want      rerank.Status
	}{
		{route.PlacementTable, rerank.Scan, config.WritesProxy, "", rerank.StatusExact},
		{route.PlacementTable, rerank.Scan, config.WritesProxy, route.DisputeForeign, rerank.StatusSnapshot},
		{route.PlacementTable, rerank.Scan, config.WritesProxy, route.DisputeUnchecked, rerank.StatusSnapshot},
		{route.PlacementTable, rerank.Scan, config.WritesAny, "", rerank.StatusSnapshot},
		{route.PlacementTable, rerank.PerEmbedding, config.WritesAny, "", rerank.StatusSnapshot},
		{route.PlacementDerived, rerank.PerEmbedding, config.WritesAny, "", rerank.StatusSnapshot},
		{route.PlacementDerived, rerank.PerEmbedding, config.WritesProxy, "", rerank.StatusExact},
		{route.PlacementStored, rerank.Average, config.WritesAny, route.DisputeForeign, rerank.StatusExact},
	} {
		r := w.route(c.placement, func(r *route.Route) {
			r.Strategy, r.ExactSearch, r.Writes = c.strategy, true, c.writes
			r.Freshness = seen{true, route.Horizon{AsOf: at, Disputed: c.dispute}}
			if c.placement == route.PlacementStored {
				r.Companion = ""
			}
		})
		got := searchRoute(t, r, search.Request{Query: rerank.Query{Vector: random(9, 1, 4).Data}, K: 15, MaxGap: ptr(0)}).Certificate
		if got.Status != c.want || got.AsOf.Equal(at) != (c.want == rerank.StatusSnapshot) {
			t.Errorf("%+v: %s as of %s", c, got.Status, got.AsOf)
		}
	}
}

// TestRequireExact: the client gets an exact answer or an error, never the store's own
// order or a snapshot.
func TestRequireExact(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(8, 15, 4))
	q := rerank.Query{Vector: random(9, 1, 4).Data}
	for name, c := range map[string]struct {
		change func(*route.Route)
		want   error
	}{
		"a scan that sees every write":     {func(r *route.Route) { r.Strategy = rerank.Scan }, nil},
		"deeper lists":                     {func(r *route.Route) { r.Strategy, r.ExactSearch, r.Depth = rerank.PerEmbedding, true, 2 }, nil},
		"a snapshot":                       {func(r *route.Route) { r.Strategy, r.Writes = rerank.Scan, config.WritesAny }, search.ErrNotExact},
		"a table behind":                   {func(r *route.Route) { r.Strategy, r.Freshness = rerank.Scan, freshness(false) }, search.ErrNotExact},
		"no time for more than a fallback": {func(r *route.Route) { r.Strategy, r.Timeout = rerank.Scan, 1 }, failure.ErrDegraded},
		"lists that the store approximates": {func(r *route.Route) {
			r.Strategy, r.Store = rerank.PerEmbedding, &decorated{Store: w.store, lists: inexact}
		}, search.ErrNotExact},
	} {
		a, err := pipe(t, w.route(route.PlacementTable, c.change)).Search(t.Context(), search.Request{Route: "r", Query: q, K: 5, RequireExact: true})
		if !errors.Is(err, c.want) || err == nil && (a.Certificate.Status != rerank.StatusExact || len(a.Hits) != 5) {
			t.Errorf("%s: %v, %+v", name, err, a.Certificate)
		}
	}
}

// TestRowsVerified: reading the payloads shows whether the scores of a snapshot fit the vectors
// that the database holds now, and removes rows that are gone.
func TestRowsVerified(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(8, 15, 4))
	r := w.route(route.PlacementTable, func(r *route.Route) { r.Strategy, r.Writes = rerank.Scan, config.WritesAny })
	p := pipe(t, r)
	ask := func(payload bool) search.Answer {
		a, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: random(9, 1, 4).Data}, K: 5, Payload: payload})
		must(t, err)
		if a.Certificate.Status != rerank.StatusSnapshot {
			t.Fatalf("%+v", a.Certificate)
		}
		return a
	}
	if a := ask(true); !a.Certificate.RowsVerified || len(a.Hits) != 5 {
		t.Errorf("of the same vectors: %+v", a.Certificate)
	}
	if a := ask(false); a.Certificate.RowsVerified {
		t.Error("nobody looked")
	}
	best, _ := ask(true).Hits[0].ID.Uint64()
	load := func(rows embedded.Collection) { must(t, w.store.Load(collection, rows)) }
	others := rerank.Matrix{Cols: 4, Data: slices.Clone(w.vectors.Data), Rows: w.vectors.Rows}
	others.Row(int(best))[0]++
	load(embedded.Collection{Fields: []embedded.Field{{Vectors: others}}})
	if a := ask(true); a.Certificate.RowsVerified {
		t.Errorf("a vector has changed: %+v", a.Certificate)
	}
	ids := make([]rerank.ID, w.vectors.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	ids[best] = rerank.UintID(100)
	load(embedded.Collection{Fields: []embedded.Field{{Vectors: w.vectors}}, IDs: ids})
	if a := ask(true); !a.Certificate.RowsVerified || len(a.Hits) != 4 {
		t.Errorf("a row is gone: %+v, %d hits", a.Certificate, len(a.Hits))
	}
}
