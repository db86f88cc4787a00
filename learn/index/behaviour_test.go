package index_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// behavioural is the name of the max-sim model that has behavioural vectors.
const behavioural = "behavioural"

// behaviour returns behavioural vectors for every third item of the stores: one to three test questions
// each.
func behaviour(t *testing.T) *maxsim.Vectors {
	t.Helper()
	questions := bankingVectors(t, "test", 300)
	return writeVectors(t, questions.Cols, func(w *maxsim.VectorsWriter) error {
		for i, at := 0, 0; i < agreeRows && at+3 <= questions.Rows; i += 3 {
			n := 1 + i%3 + i%2
			if err := w.Append(rerank.UintID(uint64(i+1)), questions.Slice(at, at+n)); err != nil {
				return err
			}
			at += n
		}
		return nil
	})
}

func writeVectors(t *testing.T, dim int, fill func(w *maxsim.VectorsWriter) error) *maxsim.Vectors {
	t.Helper()
	name := filepath.Join(t.TempDir(), "model")
	w, err := maxsim.CreateVectors(name, dim)
	if err == nil {
		err = fill(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	v, err := maxsim.OpenVectors(name, digest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func behaviouralModel(t *testing.T, dim int, v *maxsim.Vectors) route.Model {
	t.Helper()
	s, err := maxsim.New(maxsim.Config{Dim: dim, Normalise: true, Vectors: v.Digest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: behavioural, Version: "1", Similarity: s}
}

// behaviourOf returns the vectors of the model called behavioural, and nil for any other.
func behaviourOf(t *testing.T, m route.Model) *maxsim.Vectors {
	t.Helper()
	if m.Name != behavioural {
		return nil
	}
	return behaviour(t)
}

// world returns a collection of items with payloads in an embedded store, and a model with behavioural
// vectors. Some items own many vectors close to each other, which fill the first ranks of a search.
func world(t *testing.T) (*embedded.Store, rerank.Matrix, *maxsim.Vectors, route.Model) {
	t.Helper()
	items := bankingVectors(t, "train", 200)
	c := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Name: "v"}, Vectors: items}}}
	for i := range items.Rows {
		c.Payloads = append(c.Payloads, json.RawMessage(fmt.Sprintf(`{"odd":%t}`, i%2 == 1)))
	}
	s := embedded.New()
	if err := s.Load("questions", c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	questions := bankingVectors(t, "test", 20)
	v := writeVectors(t, items.Cols, func(w *maxsim.VectorsWriter) error {
		for i := range 10 { // of each, forty that differ a little
			m := rerank.NewMatrix(40, items.Cols)
			for r := range m.Rows {
				copy(m.Row(r), questions.Row(i/5))
				m.Row(r)[r%items.Cols] += float32(1+i%5) / 100
				rerank.Normalise(m.Row(r))
			}
			if err := w.Append(rerank.UintID(uint64(i)), m); err != nil {
				return err
			}
		}
		return nil
	})
	return s, items, v, behaviouralModel(t, items.Cols, v)
}

// truth returns the k best items that pass the filter, found by scoring all.
func truth(q []float32, items rerank.Matrix, v *maxsim.Vectors, odd bool, k int) []rerank.ID {
	top := rerank.NewTopK(k)
	for i := range items.Rows {
		if odd && i%2 == 0 {
			continue
		}
		id := rerank.UintID(uint64(i))
		best := math.Inf(-1)
		for _, m := range []rerank.Matrix{items.Slice(i, i+1), v.Of(id)} {
			for r := range m.Rows {
				var dot float64
				for j, x := range m.Row(r) {
					dot += float64(x) * float64(q[j])
				}
				best = max(best, dot)
			}
		}
		top.Push(rerank.Scored{ID: id, Score: float32(best)})
	}
	var ids []rerank.ID
	for _, s := range top.Sorted() {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestBehaviouralAnswers: with every placement, and under a filter too, the answer is the K best distinct
// items and the certificate proves it, although forty rows of one item rank before the next item.
func TestBehaviouralAnswers(t *testing.T) {
	s, items, v, m := world(t)
	rt := route.Route{
		Policy: route.Policy{Collection: "questions", Vector: "v", StoreName: "embedded", Companion: "learned", Depth: 6, ExactSearch: true, UnitVectors: true},
		Parts:  route.Parts{Store: s, Model: m},
	}
	source := index.Source{Store: s, Collection: "questions", Vector: "v"}
	path := filepath.Join(t.TempDir(), "questions.table")
	r, err := index.BuildTable(t.Context(), index.TableJob{Source: source, Model: m, Vectors: v, Path: path})
	if err != nil || r.Rows != 600 || r.Items != 200 {
		t.Fatalf("%+v, %v", r, err)
	}
	if rt.Table, err = table.Open(path, table.Expect{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Table.Close() })
	r, err = index.BuildCompanion(t.Context(), index.CompanionJob{
		Source: source, Model: m, Vectors: v, Owner: maxsim.Owner, Writer: s, Name: "learned", Strategies: []rerank.Strategy{rerank.Average}, Features: true,
	})
	if err != nil || r.Rows != 600 || r.Items != 200 {
		t.Fatalf("%+v, %v", r, err)
	}
	questions := bankingVectors(t, "test", 20)
	for name, change := range map[string]func(r *route.Route){
		"table":   func(*route.Route) {},
		"derived": func(r *route.Route) { r.Placement, r.Table = route.PlacementDerived, nil },
		"default": func(r *route.Route) { r.Table = nil },
		"scan":    func(r *route.Route) { r.Strategy, r.Companion = rerank.Scan, "" },
	} {
		r := rt
		r.Name = name
		change(&r)
		p, err := search.New([]*route.Route{&r}, search.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for q := range 4 {
			for _, filter := range []string{"", `{"must":[{"key":"odd","match":{"value":true}}]}`} {
				a, err := p.Search(t.Context(), search.Request{Route: name, K: 8, Query: rerank.Query{Vector: questions.Row(q)}, Filter: filter, Payload: true})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				var got []rerank.ID
				for _, h := range a.Hits {
					got = append(got, h.ID)
					if len(h.Payload) == 0 {
						t.Errorf("%s: hit %s has no payload", name, h.ID)
					}
				}
				if want := truth(questions.Row(q), items, v, filter != "", 8); !slices.Equal(got, want) {
					t.Errorf("%s, query %d, filter %q: %v, want %v", name, q, filter, got, want)
				}
				if !a.Certificate.Proved() || a.Degraded != nil {
					t.Errorf("%s, query %d, filter %q: %+v", name, q, filter, a.Certificate)
				}
			}
		}
	}
}

// A route that would score items by their own vector alone is refused.
func TestBehaviouralRouteRefused(t *testing.T) {
	s, _, _, m := world(t)
	good := route.Route{Policy: route.Policy{Name: "r", Collection: "questions", Vector: "v", UnitVectors: true}, Parts: route.Parts{Store: s, Model: m}}
	for name, change := range map[string]func(r *route.Route){
		"no companion and no table": func(*route.Route) {},
		"average without companion": func(r *route.Route) { r.Strategy = rerank.Average },
		"stored":                    func(r *route.Route) { r.Companion, r.Placement = "learned", route.PlacementStored },
	} {
		r := good
		change(&r)
		if _, err := search.New([]*route.Route{&r}, search.Options{}); !errors.Is(err, route.ErrSetup) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A job is refused if its model's vectors are missing, if the model wants none, or if they belong to
// another model.
func TestBehaviouralJobsRefuse(t *testing.T) {
	s, items, v, m := world(t)
	other := writeVectors(t, items.Cols, func(w *maxsim.VectorsWriter) error {
		return w.Append(rerank.UintID(1), items.Slice(0, 1))
	})
	plain, err := maxsim.New(maxsim.Config{Dim: items.Cols}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, job := range map[string]index.TableJob{
		"missing":    {Model: m},
		"another's":  {Model: m, Vectors: other},
		"not wanted": {Model: route.Model{Name: "plain", Similarity: plain}, Vectors: v},
	} {
		job.Source = index.Source{Store: s, Collection: "questions", Vector: "v"}
		job.Path = filepath.Join(t.TempDir(), "t")
		if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, index.ErrSource) {
			t.Errorf("table, %s: %v", name, err)
		}
		c := index.CompanionJob{Source: job.Source, Model: job.Model, Vectors: job.Vectors, Writer: s, Name: "c", Strategies: []rerank.Strategy{rerank.Average}}
		if _, err := index.BuildCompanion(t.Context(), c); !errors.Is(err, index.ErrSource) {
			t.Errorf("companion, %s: %v", name, err)
		}
	}
}
