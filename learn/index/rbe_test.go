package index_test

import (
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestRBEBesideACollection: a ranker's scores are no vectors of the collection; a
// table of them is scanned all the same, and an item that the table lacks is left out.
func TestRBEBesideACollection(t *testing.T) {
	scores := rerank.Matrix{Rows: 4, Cols: 3, Data: []float32{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}}
	ids := []rerank.ID{rerank.UintID(0), rerank.UintID(1)}
	s, err := rbe.New(rbe.Config{SupportItems: ids, SupportQueries: append(ids, rerank.UintID(2))},
		tensor.Set{"projection": {Shape: []int{2, 3}, Data: []float32{1, 0, 0, 0, 1, 0}}})
	if err != nil {
		t.Fatal(err)
	}
	m := route.Model{Name: "ranker", Version: "1", Similarity: s}
	load := func(name string, vectors rerank.Matrix) *embedded.Store {
		store := embedded.New()
		if err := store.Load(name, embedded.Collection{Fields: []embedded.Field{{Vectors: vectors}}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	path := filepath.Join(t.TempDir(), "t")
	job := index.TableJob{Source: index.Source{Store: load("items", scores), Collection: "items"}, Model: m, Path: path}
	if _, err := index.BuildTable(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	rt := route.Route{Policy: route.Policy{Name: "r", Collection: "items", Strategy: rerank.Scan, UnitVectors: true}, Parts: route.Parts{Store: load("items", rerank.NewMatrix(5, 7)), Model: m}}
	if rt.Table, err = table.Open(path, table.Expect{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Table.Close() })
	p, err := search.New([]*route.Route{&rt}, search.Options{})
	if err == nil {
		err = p.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []string{"", `{"must_not":[{"has_id":[3]}]}`} {
		a, err := p.Search(t.Context(), search.Request{Route: "r", K: 5, Query: rerank.Query{Vector: []float32{2, 3}}, Filter: filter})
		if err != nil {
			t.Fatalf("filter %q: %v", filter, err)
		}
		want := []rerank.ID{rerank.UintID(3), rerank.UintID(1), rerank.UintID(0), rerank.UintID(2)}
		if filter != "" {
			want = want[1:]
		}
		if len(a.Hits) != len(want) || a.Hits[0].ID != want[0] || a.Hits[1].ID != want[1] {
			t.Errorf("filter %q: %+v, want %v", filter, a.Hits, want)
		}
	}
}
