package index_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/companion"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

const (
	agreeRows = 240
	ownerOf   = "item" // two rows an item, for max-sim
)

// TestStoresAgree asks one query of the same items in the embedded store, a real
// Qdrant and a real milvus-lite, by every kind, strategy and placement: ids,
// scores and certificates must be the same.
func TestStoresAgree(t *testing.T) {
	q, err := qdrant.Open(qdrant.Options{Address: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address})
	if err != nil {
		t.Fatal(err)
	}
	m, err := milvus.New(t.Context(), milvus.Options{Address: servers.MilvusLiteForTest(t, servers.Options{}).Address})
	if err != nil {
		t.Fatal(err)
	}
	stores := []namedStore{{"embedded", embedded.New()}, {"qdrant", q}, {"milvus", m}}
	t.Cleanup(func() {
		for _, s := range stores {
			if err := s.Close(); err != nil {
				t.Errorf("closing %s: %v", s.name, err)
			}
		}
	})
	items, queries := bankingVectors(t, "train", agreeRows), bankingVectors(t, "test", 3)
	for _, s := range stores {
		fill(t, s.Store, items)
	}
	for _, model := range agreeModels(t) {
		t.Run(model.Name, func(t *testing.T) {
			routes := make([]route.Route, len(stores))
			for i, s := range stores {
				routes[i] = prepare(t, s, model)
			}
			for _, w := range ways(model) {
				agree(t, stores, routes, w, queries)
			}
		})
	}
}

type namedStore struct {
	name string
	adapters.Store
}

// way is a strategy in a placement.
type way struct {
	strategy  rerank.Strategy
	placement route.Placement
	weights   rerank.Weights
}

// ways are those that mean something for a model.
func ways(m route.Model) []way {
	_, derives := m.Similarity.(rerank.Deriver)
	placements := []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived}
	if m.Name == behavioural {
		placements = slices.DeleteFunc(placements, func(p route.Placement) bool { return p == route.PlacementStored })
	} else {
		derives = derives && m.Similarity.Spec().Kind == rerank.KindMoL
	}
	all := []way{{rerank.Scan, route.PlacementTable, ""}}
	for _, p := range placements {
		if p == route.PlacementDerived && !derives {
			continue
		}
		for _, s := range []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined} {
			all = append(all, way{s, p, ""})
		}
		if derives && m.Name != behavioural {
			all = append(all, way{rerank.Distilled, p, ""}, way{rerank.Companion, p, ""})
		}
	}
	return all
}

func agree(t *testing.T, stores []namedStore, routes []route.Route, w way, queries rerank.Matrix) {
	t.Helper()
	for i := range queries.Rows {
		var want search.Answer
		for n, s := range stores {
			r := routes[n]
			r.Strategy, r.Placement, r.Weights = w.strategy, w.placement, w.weights
			if r.Placement == route.PlacementStored && w.strategy != rerank.Distilled && r.Model.Similarity.Spec().Kind != rerank.KindMoL {
				r.Companion = ""
			}
			p, err := search.New([]*route.Route{&r}, search.Options{})
			if err != nil {
				t.Fatalf("%s, %+v: %v", s.name, w, err)
			}
			got, err := p.Search(t.Context(), search.Request{Route: r.Name, K: 10, Query: rerank.Query{Vector: queries.Row(i)}})
			if err != nil {
				t.Fatalf("%s, %+v: %v", s.name, w, err)
			}
			if n == 0 {
				want = got
			} else if diff := differ(want, got); diff != "" {
				t.Errorf("%s and %s, %+v, query %d: %s", stores[0].name, s.name, w, i, diff)
			}
		}
	}
}

// differ compares two answers: scores within 2ε, ids where scores differ by more.
func differ(a, b search.Answer) string {
	switch {
	case a.Degraded != nil || b.Degraded != nil:
		return fmt.Sprintf("degraded: %+v, %+v", a.Degraded, b.Degraded)
	case len(a.Hits) != len(b.Hits) || len(a.Hits) == 0:
		return fmt.Sprintf("%d and %d hits", len(a.Hits), len(b.Hits))
	case a.Certificate.Status != b.Certificate.Status || a.Certificate.Proof != b.Certificate.Proof:
		return fmt.Sprintf("certificates %+v and %+v", a.Certificate, b.Certificate)
	}
	limit := 2 * float64(max(a.Certificate.Epsilon, b.Certificate.Epsilon))
	apart := func(i, j int) bool {
		return j < 0 || j >= len(a.Hits) || !(math.Abs(float64(a.Hits[i].Score-a.Hits[j].Score)) <= limit)
	}
	for i, h := range a.Hits {
		if !(math.Abs(float64(h.Score-b.Hits[i].Score)) <= limit) {
			return fmt.Sprintf("hit %d scores %v and %v", i, h.Score, b.Hits[i].Score)
		}
		if h.ID != b.Hits[i].ID && apart(i, i-1) && apart(i, i+1) && i < len(a.Hits)-1 {
			return fmt.Sprintf("hit %d is %s and %s", i, h.ID, b.Hits[i].ID)
		}
	}
	return ""
}

// bankingVectors returns rows spread over a file of unit vectors.
func bankingVectors(t *testing.T, name string, n int) rerank.Matrix {
	t.Helper()
	f, err := npy.Open("../../examples/data/banking77/" + name + "_vectors.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := rerank.NewMatrix(n, f.Cols)
	for i := range n {
		copy(m.Row(i), f.Row(i*(f.Rows/n)))
		rerank.Normalise(m.Row(i))
	}
	return m
}

func fill(t *testing.T, s adapters.Store, items rerank.Matrix) {
	t.Helper()
	w, ok := s.(adapters.Writer)
	if !ok {
		t.Fatalf("%T writes nothing", s)
	}
	schema := adapters.Schema{Collection: "questions", Owner: ownerOf, Fields: []adapters.VectorField{
		{Name: "v", Dim: items.Cols, Metric: adapters.InnerProduct},
	}}
	if err := w.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	rows := adapters.Rows{Vectors: []rerank.Matrix{items}}
	for i := range items.Rows {
		rows.IDs = append(rows.IDs, rerank.UintID(uint64(i+1)))
		rows.Owners = append(rows.Owners, rerank.UintID(uint64(i/2+1)))
		rows.Payloads = append(rows.Payloads, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
	}
	if err := w.Write(t.Context(), "questions", schema, rows); err != nil {
		t.Fatal(err)
	}
}

// agreeModels are the four kinds, and the two shipped models of questions.
func agreeModels(t *testing.T) []route.Model {
	t.Helper()
	const dim = 384
	d, err := dot.New(dot.Config{Dim: dim, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := maxsim.New(maxsim.Config{Dim: dim, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	models := []route.Model{{Name: "dot", Similarity: d}, {Name: "maxsim", Similarity: ms}, behaviouralModel(t, dim, behaviour(t))}
	for _, name := range []string{"banking77-questions-bilinear", "banking77-questions-mol"} {
		m, err := model.Open("../../examples/models/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Spec().Kind == rerank.KindMoL {
			m = withCompanion(t, m)
		}
		models = append(models, route.Model{Name: name, Version: m.Version, Similarity: m.Similarity})
	}
	return models
}

// withCompanion returns the model with a small learned companion.
func withCompanion(t *testing.T, m *model.Model) *model.Model {
	t.Helper()
	o := companion.DefaultOptions()
	o.Dim, o.Anchors, o.Hidden, o.Depths = 16, 100, 0, []int{60}
	found, err := companion.Fit(t.Context(), m.Similarity, fit.Data{Items: bankingVectors(t, "train", agreeRows), Queries: bankingVectors(t, "test", 150)}, o)
	if err != nil {
		t.Fatal(err)
	}
	p := m.Parameters()
	maps.Copy(p.Tensors, found.Tensors)
	if m, err = model.New(p); err != nil {
		t.Fatal(err)
	}
	return m
}

// prepare builds the table and, where the model derives fields, the companion.
func prepare(t *testing.T, s namedStore, m route.Model) route.Route {
	t.Helper()
	r := route.Route{
		Policy: route.Policy{Name: m.Name, Collection: "questions", Vector: "v", StoreName: s.name, Depth: 60, AverageDepth: 80, ExactSearch: true, UnitVectors: true, Consistency: consistency(s)},
		Parts:  route.Parts{Store: s.Store, Model: m},
	}
	vectors := behaviourOf(t, m)
	if m.Similarity.Spec().GroupedRows && vectors == nil {
		r.Owner = ownerOf
	}
	source := index.Source{Store: s.Store, Collection: r.Collection, Vector: r.Vector, Owner: r.Owner}
	path := filepath.Join(t.TempDir(), s.name+".table")
	if _, err := index.BuildTable(t.Context(), index.TableJob{Source: source, Model: m, Vectors: vectors, Path: path}); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	var err error
	if r.Table, err = table.Open(path, table.Expect{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Table.Close() })
	if m.Similarity.Spec().Kind == rerank.KindMoL || vectors != nil {
		r.Companion = "questions_learned"
		writer, _ := s.Store.(adapters.Writer)
		_, err := index.BuildCompanion(t.Context(), index.CompanionJob{
			Source: source, Model: m, Vectors: vectors, Owner: maxsim.Owner, Writer: writer, Name: r.Companion, Features: true,
			Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined, rerank.Companion},
		})
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		t.Cleanup(func() { _ = writer.Drop(context.Background(), r.Companion) })
	}
	return r
}

func consistency(s namedStore) string {
	if s.name == "milvus" {
		return "Strong"
	}
	return ""
}
