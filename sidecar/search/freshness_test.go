package search_test

import (
	"context"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// freshness says what it is.
type freshness bool

func (f freshness) Fresh() bool { return bool(f) }

func (f freshness) Look() (bool, route.Doubt) { return bool(f), nil }

// doubtful is fresh if the writes on their way are refused.
type doubtful struct{ refused bool }

func (doubtful) Fresh() bool { return false }

func (d doubtful) Look() (bool, route.Doubt) { return true, d }

func (d doubtful) Cleared(context.Context) bool { return d.refused }

// TestDoubt: an answer that was made while writes were on their way claims nothing,
// unless the database refused them all.
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

// TestFreshness: nothing is proved from a table or companion that does not show
// every write, and what is computed from the collection alone is as exact as ever.
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

// TestGone: an item of a table that is behind is left out where the collection
// does not have it any more, unless the caller looks itself.
func TestGone(t *testing.T) {
	w := dotWorld(t)
	query := random(201, 1, 16).Data
	best := w.exact(t, query, nil)
	l := w.live(t, 900)
	gone := rerank.UintID(5000) // in the table only, and better than all
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
