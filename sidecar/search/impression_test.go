package search_test

import (
	"reflect"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestImpressions: an answer that somebody sees is kept as it is, and others are not: those of
// audits, and those that the proxy still confirms.
func TestImpressions(t *testing.T) {
	dir := t.TempDir()
	kept, err := events.OpenRoute(dir, "r", events.RouteOptions{Share: 1, Keep: []string{events.FieldVector, events.FieldText, events.FieldUser, events.FieldFilter}})
	must(t, err)
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 90, 6))
	p, err := search.New([]*route.Route{w.route(route.PlacementStored)}, search.Options{Events: events.Book{"r": kept}})
	must(t, err)
	must(t, p.Open(t.Context()))
	r := search.Request{Route: "r", Query: rerank.Query{Vector: []float32{1, 0, 0.5, 0, 2, 0}}, K: 3, Filter: even}
	unseen, err := p.Search(t.Context(), r)
	must(t, err)
	if unseen.ID != "" {
		t.Errorf("an answer that nobody sees has the id %q", unseen.ID)
	}
	r.Shown, r.User = true, "ann"
	a, err := p.Search(t.Context(), r)
	must(t, err)
	must(t, kept.Close())
	var shown []*events.Impression
	_, err = events.Read(dir, events.Visitor{Impression: func(m *events.Impression) error { shown = append(shown, m); return nil }})
	must(t, err)
	if len(shown) != 1 {
		t.Fatalf("%d impressions", len(shown))
	}
	id, err := events.ParseAnswerID(a.ID)
	must(t, err)
	want := &events.Impression{
		Time: shown[0].Time, Answer: id, Vector: r.Query.Vector, User: "ann", Version: a.Version, Status: a.Certificate.Status, Gap: a.Certificate.Gap,
		Filter: events.HashFilter(even), Narrowed: true, First: 1, Items: search.ShownItems(a.Hits),
	}
	if !reflect.DeepEqual(shown[0], want) || len(want.Items) != 3 {
		t.Errorf("%+v, want %+v", shown[0], want)
	}
}
