package qdrant_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
)

// payloads are rows of every shape that a filter can meet.
var payloads = []string{
	`{}`,
	`{"n": 3, "s": "red", "b": true, "x": 1.5, "t": "2026-01-31T12:00:00Z"}`,
	`{"n": -4, "s": "green", "b": false, "x": -0.5, "t": "2026-02-01"}`,
	`{"n": [1, 2, 3], "s": ["red", "blue"], "t": ["2026-01-30 08:00:00", "2030-01-01T00:00:00+02:00"]}`,
	`{"n": null, "s": null, "o": {}}`,
	`{"n": [], "s": [], "o": {"k": null}}`,
	`{"n": 9007199254740993, "s": "9007199254740993", "x": 9007199254740992.0}`,
	`{"n": "3", "s": 3, "b": "true", "x": 3.0}`,
	`{"o": {"k": 5, "p": {"q": "deep"}}, "s": "a.b"}`,
	`{"a": [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}]}`,
	`{"a": [{"k": 1, "v": "y"}, {"k": 2, "v": "x"}, {"k": 3}]}`,
	`{"a": {"k": 1, "v": "x"}}`,
	`{"s": "Größe 漢字 🙂", "n": 0}`,
	`{"s": "", "n": -9223372036854775808, "x": 1e300}`,
	`{"n": 9223372036854775807, "b": [true, false]}`,
}

// filters are evaluated alike by Qdrant and by the embedded store.
var filters = []string{
	`{}`,
	`{"must": []}`,
	`{"should": []}`,
	`{"must_not": null}`,
	`{"must": {"key": "s", "match": {"value": "red"}}}`,
	`{"must": [{"key": "n", "match": {"value": 3}}]}`,
	`{"must": [{"key": "n", "match": {"value": -4}}]}`,
	`{"must": [{"key": "x", "match": {"value": 3}}]}`,
	`{"must": [{"key": "b", "match": {"value": true}}]}`,
	`{"must": [{"key": "n", "match": {"value": 9007199254740993}}]}`,
	`{"must": [{"key": "n", "match": {"value": 9007199254740992}}]}`,
	`{"must": [{"key": "s", "match": {"any": ["red", "green"]}}]}`,
	`{"must": [{"key": "n", "match": {"any": [1, -4, 9223372036854775807]}}]}`,
	`{"must": [{"key": "s", "match": {"any": []}}]}`,
	`{"must": [{"key": "s", "match": {"except": ["red"]}}]}`,
	`{"must": [{"key": "n", "match": {"except": [3, 1]}}]}`,
	`{"must": [{"key": "s", "match": {"text": "漢字"}}]}`,
	`{"must": [{"key": "s", "match": {"text": "re"}}]}`,
	`{"must": [{"key": "n", "range": {"gt": 0}}]}`,
	`{"must": [{"key": "n", "range": {"gte": -4, "lt": 3}}]}`,
	`{"must": [{"key": "x", "range": {"gte": 1.5, "lte": null}}]}`,
	`{"must": [{"key": "x", "range": {"gt": -1e-3}}]}`,
	`{"must": [{"key": "t", "range": {"gt": "2026-01-31T00:00:00Z"}}]}`,
	`{"must": [{"key": "t", "range": {"gte": "2026-01-30 08:00:00", "lt": "2026-02-01"}}]}`,
	`{"must": [{"key": "n", "values_count": {"gte": 2}}]}`,
	`{"must": [{"key": "n", "values_count": {"gte": 1, "lt": 2}}]}`,
	`{"must": [{"key": "s", "values_count": {"lte": 1}}]}`,
	`{"must": [{"key": "n", "values_count": {"lt": 1}}]}`,
	`{"must": [{"key": "a[].k", "values_count": {"gt": 1}}]}`,
	`{"must": [{"is_empty": {"key": "n"}}]}`,
	`{"must": [{"key": "n", "is_empty": true}]}`,
	`{"must": [{"key": "s", "is_empty": false}]}`,
	`{"must": [{"key": "s", "is_null": true}]}`,
	`{"must": [{"key": "s", "is_null": false}]}`,
	`{"must": [{"key": "a[].v", "match": {"except": ["x"]}}]}`,
	`{"must": [{"key": "b", "match": {"except": ["x"]}}]}`,
	`{"must": [{"key": "s", "match": {"except": []}}]}`,
	`{"must": [{"key": "s", "match": {"text": ""}}]}`,
	`{"must": [{"is_empty": {"key": "a[].v"}}]}`,
	`{"must_not": [{"is_empty": {"key": "o"}}]}`,
	`{"must": [{"is_null": {"key": "n"}}]}`,
	`{"must": [{"is_null": {"key": "o.k"}}]}`,
	`{"must": [{"key": "o.k", "match": {"value": 5}}]}`,
	`{"must": [{"key": "o.p.q", "match": {"value": "deep"}}]}`,
	`{"must": [{"key": "a[].k", "match": {"value": 1}}, {"key": "a[].v", "match": {"value": "y"}}]}`,
	`{"must": [{"key": "a[1].v", "match": {"value": "x"}}]}`,
	`{"must": [{"key": "a.k", "match": {"value": 1}}]}`,
	`{"must": [{"nested": {"key": "a", "filter": {"must": [{"key": "k", "match": {"value": 1}}, {"key": "v", "match": {"value": "x"}}]}}}]}`,
	`{"must": [{"nested": {"key": "a[]", "filter": {"must_not": [{"key": "v", "match": {"value": "x"}}]}}}]}`,
	`{"must": [{"has_id": [1, 3, 99]}]}`,
	`{"must_not": [{"has_id": []}]}`,
	`{"should": [{"key": "n", "match": {"value": 3}}, {"has_id": [5]}], "must_not": [{"key": "s", "match": {"value": "blue"}}]}`,
	`{"min_should": {"min_count": 2, "conditions": [{"key": "n", "match": {"value": 3}}, {"key": "s", "match": {"value": "red"}}, {"key": "b", "match": {"value": true}}]}}`,
	`{"min_should": {"min_count": 0, "conditions": []}}`,
	`{"must": [{"should": [{"must": [{"must_not": {"key": "s", "match": {"value": "red"}}}]}]}]}`,
}

// TestFiltersAgree: the embedded store and Qdrant let the same rows through.
func TestFiltersAgree(t *testing.T) {
	s, _ := newest(t)
	local := embedded.New()
	sc := schema("rows", adapters.VectorField{Dim: 2})
	rows := adapters.Rows{IDs: ids(len(payloads)), Vectors: []rerank.Matrix{rerank.NewMatrix(len(payloads), 2)}}
	for _, p := range payloads {
		rows.Payloads = append(rows.Payloads, json.RawMessage(p))
	}
	for _, w := range []adapters.Writer{s, local} {
		if err := errors.Join(w.Create(t.Context(), sc), w.Write(t.Context(), "rows", sc, rows)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range filters {
		want, err := s.Match(t.Context(), "rows", f)
		if err != nil {
			t.Errorf("%s on Qdrant: %v", f, err)
			continue
		}
		got, err := local.Match(t.Context(), "rows", f)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s lets %v through in the embedded store, %v in Qdrant; error %v", f, got, want, err)
		}
	}
}

// TestFiltersOfQdrantAlone are taken by Qdrant, and refused by name by the
// embedded store.
func TestFiltersOfQdrantAlone(t *testing.T) {
	s, _ := newest(t)
	local := embedded.New()
	sc := schema("rows", adapters.VectorField{Dim: 2, Name: "v"})
	rows := adapters.Rows{IDs: ids(2), Vectors: []rerank.Matrix{rerank.NewMatrix(2, 2)}, Payloads: []json.RawMessage{
		[]byte(`{"g": {"lon": 13.4, "lat": 52.5}, "s": "the quick brown fox"}`), []byte(`{"g": {"lon": 2.35, "lat": 48.85}, "s": "quick"}`)}}
	for _, w := range []adapters.Writer{s, local} {
		if err := errors.Join(w.Create(t.Context(), sc), w.Write(t.Context(), "rows", sc, rows)); err != nil {
			t.Fatal(err)
		}
	}
	for f, want := range map[string]int{
		`{"must": [{"key": "g", "geo_radius": {"center": {"lon": 13.3, "lat": 52.4}, "radius": 50000}}]}`:                                                                                        1,
		`{"must": [{"key": "g", "geo_bounding_box": {"top_left": {"lon": 2, "lat": 53}, "bottom_right": {"lon": 14, "lat": 48}}}]}`:                                                              2,
		`{"must": [{"key": "g", "geo_polygon": {"exterior": {"points": [{"lon": 2, "lat": 48}, {"lon": 3, "lat": 48}, {"lon": 3, "lat": 49}, {"lon": 2, "lat": 49}, {"lon": 2, "lat": 48}]}}}]}`: 1,
		`{"must": [{"has_vector": "v"}]}`:                               2,
		`{"must": [{"key": "s", "match": {"phrase": "quick brown"}}]}`:  1,
		`{"must": [{"key": "s", "match": {"text_any": "brown lazy"}}]}`: 1,
	} {
		got, err := s.Match(t.Context(), "rows", f)
		if err != nil || len(got) != want {
			t.Errorf("%s lets %v through, error %v; want %d rows", f, got, err, want)
		}
		if _, err := local.Match(t.Context(), "rows", f); !errors.Is(err, adapters.ErrFilter) {
			t.Errorf("%s in the embedded store: %v, want ErrFilter", f, err)
		}
	}
}

// TestPayload: what was written comes back, every number as it was.
func TestPayload(t *testing.T) {
	s, _ := newest(t)
	sc := schema("rows", adapters.VectorField{Dim: 2})
	if err := s.Create(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	const text = `{"":"empty key","big":9007199254740993,"d":[3.0,-0.0,0.1,1e+300,5e-324,123456789012345680.0],"html":"<b>&amp;\u2028","i":[0,-1,9223372036854775807,-9223372036854775808],"n":null,"o":{"a":{"b":[true,false,{}]}},"s":"Größe 漢字 🙂 \"\\\u0000"}`
	write(t, s, sc, adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{rerank.NewMatrix(1, 2)}, Payloads: []json.RawMessage{[]byte(text)}})
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "rows", IDs: ids(1), Payload: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(rows.Payloads[0]); got != text {
		t.Errorf("the payload is\n%s, want\n%s", got, text)
	}
	for _, bad := range []string{`[]`, `{"n": 18446744073709551615}`, `{"n": 1e999}`, `{} {}`} {
		err := s.Write(t.Context(), "rows", sc, adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{rerank.NewMatrix(1, 2)}, Payloads: []json.RawMessage{[]byte(bad)}})
		if !errors.Is(err, adapters.ErrStore) {
			t.Errorf("payload %s: %v, want ErrStore", bad, err)
		}
	}
}

// TestOwners: owners are integers or strings, asked for together.
func TestOwners(t *testing.T) {
	s, _ := newest(t)
	sc := schema("rows", adapters.VectorField{Dim: 2})
	sc.Owner = "item"
	if err := s.Create(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	owners := []rerank.ID{rerank.UintID(7), rerank.TextID("7"), rerank.IntID(-7), rerank.TextID("漢字"), rerank.UintID(7)}
	write(t, s, sc, adapters.Rows{IDs: ids(5), Vectors: []rerank.Matrix{rerank.NewMatrix(5, 2)}, Owners: owners})
	asked := []rerank.ID{rerank.TextID("漢字"), rerank.UintID(7), rerank.TextID("7"), rerank.UintID(8), rerank.UintID(7)}
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "rows", IDs: asked, Owner: "item", Payload: true, PayloadFields: []string{"none"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []rerank.ID{rerank.UintID(4), rerank.UintID(1), rerank.UintID(5), rerank.UintID(2)}
	if !slices.Equal(rows.IDs, want) {
		t.Errorf("rows %v, want %v", rows.IDs, want)
	}
	if string(rows.Payloads[0]) != "{}" {
		t.Errorf("the payload is %s; only the field none was asked for", rows.Payloads[0])
	}
	if rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "rows", Owner: "item"}); err != nil || len(rows.IDs) != 0 {
		t.Errorf("no owners were asked for: %v, error %v", rows.IDs, err)
	}
	if _, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "rows", Owner: "absent", Probes: probes(1, 2, 3)}); !errors.Is(err, adapters.ErrField) {
		t.Errorf("an owner field that is not there: %v, want ErrField", err)
	}
	big := adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{rerank.NewMatrix(1, 2)}, Owners: []rerank.ID{rerank.UintID(1 << 63)}}
	if err := s.Write(t.Context(), "rows", sc, big); !errors.Is(err, adapters.ErrID) {
		t.Errorf("an owner that Qdrant's payload cannot hold: %v, want ErrID", err)
	}
}
