package embedded_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
)

func rows(cols int, data ...float32) rerank.Matrix {
	return rerank.Matrix{Rows: len(data) / cols, Cols: cols, Data: data}
}

func loaded(t testing.TB, c embedded.Collection) *embedded.Store {
	t.Helper()
	s := embedded.New()
	if err := s.Load("c", c); err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t testing.TB, s *embedded.Store, r adapters.SearchRequest) rerank.List {
	t.Helper()
	r.Collection = "c"
	lists, err := s.Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return lists[0]
}

func probe(depth int, v ...float32) []rerank.Probe {
	return []rerank.Probe{{Vector: v, Depth: depth}}
}

func TestLoadRefuses(t *testing.T) {
	two := embedded.Field{Vectors: rows(2, 1, 2, 3, 4)}
	named := func(name string, f embedded.Field) embedded.Field { f.Name = name; return f }
	for what, c := range map[string]embedded.Collection{
		"no field":                 {},
		"two fields of one name":   {Fields: []embedded.Field{two, two}},
		"fields of other lengths":  {Fields: []embedded.Field{two, named("b", embedded.Field{Vectors: rows(2, 1, 2)})}},
		"matrix cut short":         {Fields: []embedded.Field{{Vectors: rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1}}}}},
		"another dimension":        {Fields: []embedded.Field{{VectorField: adapters.VectorField{Dim: 3}, Vectors: two.Vectors}}},
		"too few ids":              {Fields: []embedded.Field{two}, IDs: []rerank.ID{rerank.UintID(1)}},
		"an id twice":              {Fields: []embedded.Field{two}, IDs: []rerank.ID{rerank.UintID(1), rerank.UintID(1)}},
		"no id":                    {Fields: []embedded.Field{two}, IDs: []rerank.ID{rerank.UintID(1), {}}},
		"too many owners":          {Fields: []embedded.Field{two}, OwnerField: "o", Owners: make([]rerank.ID, 3)},
		"payload that is no JSON":  {Fields: []embedded.Field{two}, Payloads: []json.RawMessage{nil, []byte(`{"a"`)}},
		"payload that is an array": {Fields: []embedded.Field{two}, Payloads: []json.RawMessage{nil, []byte(` [{}]`)}},
	} {
		if err := embedded.New().Load("c", c); !errors.Is(err, adapters.ErrStore) || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("%s: %v, want ErrStore naming the collection", what, err)
		}
	}
	unknown := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: "manhattan"}, Vectors: two.Vectors}}}
	if err := embedded.New().Load("c", unknown); !errors.Is(err, adapters.ErrMetric) {
		t.Errorf("an unknown metric: %v, want ErrMetric", err)
	}
}

// TestLoadedMatrixIsNotTouched: an inner-product field is a view, a cosine
// field a normalised copy.
func TestLoadedMatrixIsNotTouched(t *testing.T) {
	m := rows(2, 3, 4, 0, 0, 0, -2)
	s := loaded(t, embedded.Collection{Fields: []embedded.Field{
		{VectorField: adapters.VectorField{Name: "dot"}, Vectors: m},
		{VectorField: adapters.VectorField{Name: "cosine", Metric: adapters.Cosine}, Vectors: m},
	}})
	if want := []float32{3, 4, 0, 0, 0, -2}; !slices.Equal(m.Data, want) {
		t.Errorf("the matrix is now %v", m.Data)
	}
	got, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: []rerank.ID{rerank.UintID(0), rerank.UintID(1)}, Vectors: []string{"cosine", "dot"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0.6, 0.8, 0, 0}; !slices.Equal(got.Vectors[0].Data, want) {
		t.Errorf("the cosine field holds %v, want %v", got.Vectors[0].Data, want)
	}
	// 3·10 + 4·1 = 34; over the norm 5: 6.8; the zero row scores 0, the last −1.
	if l := find(t, s, adapters.SearchRequest{Vector: "cosine", Probes: probe(3, 10, 1)}); !slices.Equal(l.Scores, []float32{6.8, 0, -1}) {
		t.Errorf("cosine scores are %v", l.Scores)
	}
}

// TestNotFiniteRows rank last, NaN and infinities alike, and break no bound.
func TestNotFiniteRows(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s := loaded(t, embedded.Collection{Fields: []embedded.Field{{Vectors: rows(1, nan, 1, inf, 2, -inf)}}})
	l := find(t, s, adapters.SearchRequest{Probes: probe(5, 1)})
	want := []rerank.ID{rerank.UintID(3), rerank.UintID(1), rerank.UintID(0), rerank.UintID(2), rerank.UintID(4)}
	if !slices.Equal(l.IDs, want) {
		t.Errorf("ids are %v, want %v", l.IDs, want)
	}
	if !(l.Epsilon > 0 && l.Epsilon < 1e-5) {
		t.Errorf("epsilon is %v", l.Epsilon)
	}
}

func TestLoadedIsReadOnly(t *testing.T) {
	s := loaded(t, embedded.Collection{Fields: []embedded.Field{{Vectors: rows(2, 1, 2)}}})
	err := s.Write(t.Context(), "c", adapters.Schema{Fields: make([]adapters.VectorField, 1)}, adapters.Rows{IDs: []rerank.ID{rerank.UintID(0)}, Vectors: []rerank.Matrix{rows(2, 5, 6)}})
	if !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("write: %v, want ErrUnsupported", err)
	}
}

// TestOwners: owners that were loaded, and owners in the payload.
func TestOwners(t *testing.T) {
	c := embedded.Collection{
		Fields:     []embedded.Field{{Vectors: rows(1, 3, 2, 1)}},
		OwnerField: "item", Owners: []rerank.ID{rerank.TextID("a"), rerank.TextID("b"), rerank.TextID("a")},
		Payloads: []json.RawMessage{[]byte(`{"brand": 7}`), []byte(`{"brand": "7"}`), nil},
	}
	s := loaded(t, c)
	if l := find(t, s, adapters.SearchRequest{Owner: "item", Probes: probe(3, 1)}); !slices.Equal(l.Owners, c.Owners) {
		t.Errorf("owners are %v, want %v", l.Owners, c.Owners)
	}
	if l := find(t, s, adapters.SearchRequest{Owner: "brand", Probes: probe(2, 1)}); !slices.Equal(l.Owners, []rerank.ID{rerank.UintID(7), rerank.TextID("7")}) {
		t.Errorf("owners in the payload are %v", l.Owners)
	}
	if l := find(t, s, adapters.SearchRequest{Filter: `{"must": [{"key": "item", "match": {"value": "a"}}]}`, Probes: probe(3, 1)}); len(l.IDs) != 2 {
		t.Errorf("a filter on the owner finds %v", l.IDs)
	}
	for _, name := range []string{"brand", "absent"} { // the third row has neither
		_, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "c", Owner: name, Probes: probe(3, 1)})
		if !errors.Is(err, adapters.ErrField) || !strings.Contains(err.Error(), name) {
			t.Errorf("owner field %q: %v, want ErrField", name, err)
		}
	}
}

func TestPayloadFields(t *testing.T) {
	s := loaded(t, embedded.Collection{
		Fields:   []embedded.Field{{Vectors: rows(1, 1, 2)}},
		Payloads: []json.RawMessage{[]byte(`{"a": 18446744073709551615, "b": [1.0, {"c": 1e400}], "d": "ü"}`), nil},
	})
	r := adapters.FetchRequest{Collection: "c", IDs: []rerank.ID{rerank.UintID(0), rerank.UintID(1)}, Payload: true, PayloadFields: []string{"b", "a", "none", "a"}}
	got, err := s.Fetch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := string(got.Payloads[0]), string(got.Payloads[1]); a != `{"b":[1.0, {"c": 1e400}],"a":18446744073709551615}` || b != `{}` {
		t.Errorf("payloads are %s and %s", a, b)
	}
}

// TestIDsOfRowNumbers: without ids, row r is UintID(r), and nothing else is a row.
func TestIDsOfRowNumbers(t *testing.T) {
	s := loaded(t, embedded.Collection{Fields: []embedded.Field{{Vectors: rows(1, 1, 2)}}})
	asked := []rerank.ID{rerank.UintID(1), rerank.UintID(2), rerank.UintID(1<<64 - 1), rerank.IntID(-1), rerank.TextID("0"), {}, rerank.UintID(0)}
	got, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: asked})
	if err != nil || !slices.Equal(got.IDs, []rerank.ID{rerank.UintID(1), rerank.UintID(0)}) {
		t.Errorf("rows %v, error %v", got.IDs, err)
	}
}

func TestCursorOfAnotherStore(t *testing.T) {
	s := loaded(t, embedded.Collection{Fields: []embedded.Field{{Vectors: rows(1, 1, 2)}}})
	for _, cursor := range []string{"end", "-1", "1.5"} {
		err := s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Cursor: cursor}, func(adapters.Rows, string) error { return nil })
		if !errors.Is(err, adapters.ErrStore) {
			t.Errorf("cursor %q: %v, want ErrStore", cursor, err)
		}
	}
}

// FuzzMatch evaluates any filter on any payload: an answer or ErrFilter.
func FuzzMatch(f *testing.F) {
	f.Add(`{"must": [{"key": "a[].b", "match": {"any": [1, 2]}}], "must_not": [{"is_null": {"key": "c"}}]}`, `{"a": [{"b": 1}], "c": null}`)
	f.Add(`{"must": [{"nested": {"key": "a", "filter": {"should": [{"key": "b[0]", "range": {"gt": "2026-01-01"}}]}}}]}`, `{"a": [{"b": ["2027-01-01"]}]}`)
	f.Fuzz(func(t *testing.T, filter, payload string) {
		s := embedded.New()
		c := embedded.Collection{Fields: []embedded.Field{{Vectors: rows(1, 1)}}, Payloads: []json.RawMessage{[]byte(payload)}}
		if err := s.Load("c", c); err != nil {
			return
		}
		ids, err := s.Match(t.Context(), "c", filter)
		if err != nil && !errors.Is(err, adapters.ErrFilter) || err == nil && len(ids) > 1 {
			t.Fatalf("%q on %q: %v, %v", filter, payload, ids, err)
		}
	})
}
