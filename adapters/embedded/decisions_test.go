package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
)

func idsOf(numbers ...uint64) []rerank.ID {
	ids := []rerank.ID{}
	for _, n := range numbers {
		ids = append(ids, rerank.UintID(n))
	}
	return ids
}

func matches(t *testing.T, s *embedded.Store, filter string) []rerank.ID {
	t.Helper()
	ids, err := s.Match(t.Context(), "c", filter)
	if err != nil {
		t.Fatal(filter, err)
	}
	return ids
}

// TestFiltersOfValues: null is no value, and integers beyond 2^53 are told apart, as in Qdrant.
func TestFiltersOfValues(t *testing.T) {
	var payloads []json.RawMessage
	for _, p := range []string{`{"n":9007199254740993}`, `{"n":9007199254740992}`, `{"n":null}`, `{"n":"a"}`, `{}`, `{"n":[1,2]}`, `{"n":9007199254740994.0}`,
		`{"n":0,"l":[{"a":1}]}`, `{"n":[],"l":[{"a":1},{"a":2}]}`} {
		payloads = append(payloads, json.RawMessage(p))
	}
	s := loaded(t, embedded.Collection{
		Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.NewMatrix(len(payloads), 2)}}, Payloads: payloads,
	})
	for filter, want := range map[string][]rerank.ID{
		`{"key":"n","match":{"except":["a"]}}`:                                                 idsOf(0, 1, 5, 6, 7),
		`{"key":"n","range":{"gte":9007199254740993}}`:                                         idsOf(0, 6),
		`{"key":"n","range":{"gt":9007199254740992}}`:                                          idsOf(0, 6),
		`{"key":"n","range":{"lt":9007199254740993}}`:                                          idsOf(1, 5, 7),
		`{"key":"n","values_count":{"gte":1}}`:                                                 idsOf(0, 1, 3, 5, 6, 7),
		`{"key":"n","values_count":{"lt":1}}`:                                                  idsOf(2, 8),
		`{"key":"n","values_count":{"gt":1}}`:                                                  idsOf(5),
		`{"is_empty":{"key":"n"}}`:                                                             idsOf(2, 4, 8),
		`{"is_null":{"key":"n"}}`:                                                              idsOf(2),
		`{"nested":{"key":"l","filter":{"must":[{"has_id":[7]}]}}}`:                            idsOf(7),
		`{"nested":{"key":"l","filter":{"must":[{"key":"a","match":{"value":1}}]}}}`:           idsOf(7, 8),
		`{"min_should":{"conditions":[{"is_null":{"key":"n"}},{"has_id":[7]}],"min_count":1}}`: idsOf(2, 7),
	} {
		if got := matches(t, s, `{"must":[`+filter+`]}`); !slices.Equal(got, want) {
			t.Errorf("%s lets %v through, want %v", filter, got, want)
		}
	}
}

// TestFiltersThatAreNotEvaluated: a condition that the store does not know is refused wherever it stands.
func TestFiltersThatAreNotEvaluated(t *testing.T) {
	s, _ := written(t, 1)
	for _, place := range []string{`{"must":[%s]}`, `{"should":[%s]}`, `{"must_not":[%s]}`, `{"min_should":{"conditions":[%s],"min_count":1}}`, `{"must":[{"nested":{"key":"n","filter":{"must":[%s]}}}]}`} {
		filter := fmt.Sprintf(place, `{"has_vector":"v"}`)
		if got, err := s.Match(t.Context(), "c", filter); !errors.Is(err, adapters.ErrFilter) {
			t.Errorf("%s: %v, %v; want ErrFilter", filter, got, err)
		}
	}
}

// TestReadsEnd: a collection can be written to after every kind of read.
func TestReadsEnd(t *testing.T) {
	s, write := written(t, 1)
	one := adapters.FetchRequest{Collection: "c", IDs: idsOf(0), Payload: true}
	for name, read := range map[string]func() error{
		"describe": func() error { _, err := s.Describe(t.Context(), "c"); return err },
		"count":    func() error { _, err := s.Count(t.Context(), "c"); return err },
		"fetch":    func() error { _, err := s.Fetch(t.Context(), one); return err },
		"match":    func() error { _, err := s.Match(t.Context(), "c", ""); return err },
		"scan": func() error {
			return s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Batch: 1}, func(adapters.Rows, string) error { return nil })
		},
	} {
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		write([]json.RawMessage{json.RawMessage(`{}`)}, 0)
	}
}

// written returns a collection of so many rows with a payload each.
func written(t *testing.T, rows int) (s *embedded.Store, write func(payloads []json.RawMessage, ids ...uint64)) {
	t.Helper()
	s = embedded.New()
	schema := adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Dim: 2, Metric: adapters.InnerProduct}}}
	if err := s.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	write = func(payloads []json.RawMessage, ids ...uint64) {
		t.Helper()
		if err := s.Write(t.Context(), "c", schema, adapters.Rows{IDs: idsOf(ids...), Payloads: payloads, Vectors: []rerank.Matrix{rerank.NewMatrix(len(ids), 2)}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range rows {
		write([]json.RawMessage{json.RawMessage(`{"a":1}`)}, uint64(n))
	}
	return s, write
}

// TestWritesReplaceRows: a row that is written again has the payload of the last write, in filters too.
func TestWritesReplaceRows(t *testing.T) {
	s, write := written(t, 2)
	if got := matches(t, s, `{"must":[{"key":"a","match":{"value":1}}]}`); len(got) != 2 {
		t.Fatal(got)
	}
	write([]json.RawMessage{json.RawMessage(`{"a":2}`)}, 0)
	write(nil, 1)
	for filter, want := range map[string][]rerank.ID{`{"key":"a","match":{"value":1}}`: {}, `{"key":"a","match":{"value":2}}`: idsOf(0)} {
		if got := matches(t, s, `{"must":[`+filter+`]}`); !slices.Equal(got, want) {
			t.Errorf("%s lets %v through, want %v", filter, got, want)
		}
	}
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "c", IDs: idsOf(0, 1), Payload: true})
	if err != nil || string(rows.Payloads[0]) != `{"a":2}` || string(rows.Payloads[1]) != `{}` {
		t.Errorf("%s, %v", rows.Payloads, err)
	}
}

// TestAScanGoesOnAfterDeletions: a scan that ended goes on with the rows that were written since, whatever was deleted.
func TestAScanGoesOnAfterDeletions(t *testing.T) {
	s, write := written(t, 5)
	cursor := ""
	scan := func() (ids []rerank.ID) {
		t.Helper()
		err := s.Scan(t.Context(), adapters.ScanRequest{Collection: "c", Cursor: cursor, Batch: 2}, func(rows adapters.Rows, next string) error {
			ids, cursor = append(ids, rows.IDs...), next
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if err := s.Delete(t.Context(), "c", idsOf(0, 1)); err != nil {
		t.Fatal(err)
	}
	if got := scan(); !slices.Equal(got, idsOf(2, 3, 4)) {
		t.Errorf("the first scan has %v", got)
	}
	write(nil, 7)
	if got := scan(); !slices.Equal(got, idsOf(7)) {
		t.Errorf("the scan goes on with %v, want what was written since", got)
	}
}

// TestAliasesOfADroppedCollection: they do not come back with a collection of its name.
func TestAliasesOfADroppedCollection(t *testing.T) {
	s, _ := written(t, 1)
	ctx := context.Background()
	err := errors.Join(s.SwitchAlias(ctx, "live", "c"), s.Drop(ctx, "c"), s.Create(ctx, adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Dim: 2, Metric: adapters.InnerProduct}}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Describe(ctx, "live"); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("the alias of a dropped collection: %v", err)
	}
}
