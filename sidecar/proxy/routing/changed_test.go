package routing_test

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestHitsThatChange: if the rows that the database returns differ from the ranked ones, an exact
// ranking is repeated. If that does not help, the answer has the scores of the returned vectors and
// proves nothing.
func TestHitsThatChange(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const exact, snapshot, unknown = rerank.StatusExact, rerank.StatusSnapshot, rerank.StatusUnknown
	// The ranking has the scores 100, 99 and 98 of the ids 1, 2 and 3, and so on.
	asRanked := map[rerank.ID][]float32{rerank.UintID(1): {100}, rerank.UintID(2): {99}, rerank.UintID(3): {98}}
	changed := map[rerank.ID][]float32{rerank.UintID(1): {100}, rerank.UintID(2): {97}, rerank.UintID(3): {98}}
	for name, c := range map[string]struct {
		status    rerank.Status
		placement route.Placement
		gone      uint64
		vectors   map[rerank.ID][]float32
		until     int // the ranking by which the rows are as they were ranked
		rankings  int
		want      rerank.Status
		ids       []rerank.ID
		scores    []float32
	}{
		"as ranked":                  {exact, "", 0, nil, 0, 1, exact, ids(1, 2, 3), []float32{100, 99, 98}},
		"as ranked, with vectors":    {exact, "", 0, asRanked, 9, 1, exact, ids(1, 2, 3), []float32{100, 99, 98}},
		"gone once":                  {exact, "", 2, nil, 2, 2, exact, ids(1, 2, 3), []float32{100, 99, 98}},
		"gone":                       {exact, "", 2, nil, 9, 4, unknown, ids(1, 3, 4), []float32{100, 98, 97}},
		"gone behind the page":       {exact, route.PlacementTable, 4, nil, 9, 1, exact, ids(1, 2, 3), []float32{100, 99, 98}},
		"gone, of a table":           {exact, route.PlacementTable, 2, nil, 9, 3, unknown, ids(1, 3, 4), []float32{100, 98, 97}},
		"gone, of a snapshot":        {snapshot, route.PlacementTable, 2, nil, 9, 1, snapshot, ids(1, 3, 4), []float32{100, 98, 97}},
		"another vector once":        {exact, "", 0, changed, 3, 3, exact, ids(1, 2, 3), []float32{100, 99, 98}},
		"another vector":             {exact, "", 0, changed, 9, 3, unknown, ids(1, 3, 2), []float32{100, 98, 97}},
		"another vector, a snapshot": {snapshot, "", 0, changed, 9, 1, unknown, ids(1, 3, 2), []float32{100, 98, 97}},
		"another vector, unproved":   {unknown, "", 0, changed, 9, 1, unknown, ids(1, 3, 2), []float32{100, 98, 97}},
	} {
		rankings := 0
		r := router(t, searcher{route: newRoute(func(r *route.Route) {
			r.Model.Similarity = sim
			if c.placement != "" {
				r.Placement = c.placement
			}
		}), rows: 30, status: c.status, asked: func(search.Request) { rankings++ }}, nil)
		x := asks(plain(3))
		x.shown = func(id rerank.ID) bool { return rankings >= c.until || id != rerank.UintID(c.gone) }
		x.vectorOf = func(id rerank.ID) []float32 {
			if rankings >= c.until && c.vectors != nil {
				return asRanked[id]
			}
			return c.vectors[id]
		}
		o := askOf(t.Context(), r, routing.Target{Name: "c", Routed: "c", Own: "c"}, x)
		if want := "rescored; route=r; certificate=" + string(c.want); o.Status != want || rankings != c.rankings ||
			!slices.Equal(o.Answer.ids, c.ids) || !slices.Equal(o.Answer.score, c.scores) {
			t.Errorf("%s: %d rankings, %q, %v %v, want %+v", name, rankings, o.Status, o.Answer.ids, o.Answer.score, c)
		}
	}
}

// TestWrongNormsAreTold: the status of an answer says that a row contradicts the route's
// unit_vectors.
func TestWrongNormsAreTold(t *testing.T) {
	rt := newRoute(func(r *route.Route) { r.Norms = new(route.Norms) })
	r := router(t, searcher{route: rt, rows: 9}, nil)
	if o := ask(t.Context(), r, asks(plain(3))); o.Status != rescoredStatus {
		t.Errorf("before: %q", o.Status)
	}
	rt.Norms.See(ids(7), rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{2}})
	if o := ask(t.Context(), r, asks(plain(3))); o.Status != rescoredStatus+"; norms=wrong" {
		t.Errorf("after: %q", o.Status)
	}
}
