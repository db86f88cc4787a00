package follow_test

import (
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestUnitVectorsAreChecked: on a route that declares unit_vectors, a row with another norm
// invalidates proofs by lists, whether it is there when the route is opened, comes with a search's
// candidates, or is read by the follower. A scan's proof does not depend on norms.
func TestUnitVectorsAreChecked(t *testing.T) {
	w := newWorldOn(t, openQdrant(t), 20)
	putNorm := func(id uint64, norm float32) {
		v := rerank.Matrix{Rows: 1, Cols: w.schema.Fields[0].Dim, Data: w.vector(id)}
		for i := range v.Data {
			v.Data[i] *= norm
		}
		must(t, w.db.Write(t.Context(), items, w.schema, adapters.Rows{IDs: ids(id), Vectors: []rerank.Matrix{v}}))
	}
	open := func(change ...func(*route.Route)) *search.Engine {
		r := &route.Route{
			Policy: route.Policy{Name: "r", Collection: items, Vector: "vec", StoreName: "main", Placement: route.PlacementStored, ExactSearch: true, UnitVectors: true, Depth: 100},
			Parts:  route.Parts{Store: w.db, Model: w.model},
		}
		for _, c := range change {
			c(r)
		}
		e, err := search.New([]*route.Route{r}, search.Options{})
		must(t, err)
		must(t, e.Open(t.Context()))
		return e
	}
	status := func(e *search.Engine) rerank.Status {
		a, err := e.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: w.vector(99)}, K: 5, MaxGap: new(float32)})
		must(t, err)
		return a.Certificate.Status
	}
	stored := open()
	if got := status(stored); got != rerank.StatusExact {
		t.Fatalf("of unit vectors: %s", got)
	}
	for _, norm := range []float32{0.5, 0.9, 1.001, 2} {
		e := open()
		putNorm(3, norm)
		if got := status(e); got != rerank.StatusUnknown {
			t.Errorf("norm %v among the candidates: %s", norm, got)
		}
		r, err := e.Route("r")
		must(t, err)
		if wrong := r.Norms.Wrong(); wrong == nil || wrong.ID != rerank.UintID(3) {
			t.Errorf("norm %v: %v is named", norm, wrong)
		}
		if r, err := open().Route("r"); err != nil || r.Norms.Wrong() == nil {
			t.Errorf("norm %v is not seen at open: %v", norm, err)
		}
		putNorm(3, 1)
		if got := status(e); got != rerank.StatusUnknown {
			t.Errorf("it holds until the route is opened again: %s", got)
		}
		if got := status(open()); got != rerank.StatusExact {
			t.Errorf("opened again: %s", got)
		}
	}

	live := w.route(t, "")
	live.UnitVectors, live.Norms, live.Writes = true, new(route.Norms), route.WritesProxy
	f := w.follow(t, live, func(r *follow.Route) { r.Interval = interval })
	fresh(t, live)
	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(4)})
	putNorm(4, 2)
	done()
	until(t, func() bool { return live.Norms.Wrong() != nil })
	fresh(t, live)
	live.Strategy = rerank.Scan
	e, err := search.New([]*route.Route{live}, search.Options{})
	must(t, err)
	if got := status(e); got == rerank.StatusUnknown {
		t.Errorf("a scan: %s", got)
	}
}
