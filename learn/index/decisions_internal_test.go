package index

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// TestABuildGoesOnOnlyAsTheSame: with the same collection, companion, model, fields and part.
func TestABuildGoesOnOnlyAsTheSame(t *testing.T) {
	have := state{Collection: "c", Companion: "d", ModelVersion: "v", Fields: []string{"a"}}
	same := have
	same.Cursor, same.Rows = "7", 9
	if err := have.matches(same, "file"); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(s *state){
		"collection": func(s *state) { s.Collection = "x" }, "companion": func(s *state) { s.Companion = "x" }, "model": func(s *state) { s.ModelVersion = "x" },
		"fields": func(s *state) { s.Fields = []string{"b"} }, "part": func(s *state) { s.Part.Number++ },
	} {
		other := have
		if change(&other); !errors.Is(have.matches(other, "file"), ErrSource) {
			t.Errorf("another %s is taken", name)
		}
	}
}

// TestRowsReadBack: as many as the collection had while it was read, each as it was written.
func TestRowsReadBack(t *testing.T) {
	for rows, ok := range map[int64]bool{6: false, 7: true, 8: true, 9: true, 10: false} {
		if err := (rowRange{7, 9}).check(rows, "it", "c"); (err == nil) != ok || err != nil && !errors.Is(err, ErrVerify) {
			t.Errorf("%d rows of 7 to 9: %v", rows, err)
		}
	}
	row := sampledRow{id: rerank.UintID(1), vectors: [][]float32{{1, 2}}, payload: json.RawMessage(`{"a":1}`)}
	stored := func(id uint64, vector []float32, payload string) adapters.Rows {
		return adapters.Rows{IDs: []rerank.ID{rerank.UintID(id)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: vector}}, Payloads: []json.RawMessage{json.RawMessage(payload)}}
	}
	for name, c := range map[string]struct {
		have adapters.Rows
		at   int
		want bool
	}{
		"the same":        {stored(1, []float32{1, 2}, `{"a": 1}`), 0, true},
		"another vector":  {stored(1, []float32{1, 3}, `{"a":1}`), 0, false},
		"another payload": {stored(1, []float32{1, 2}, `{"a":2}`), 0, false},
		"another row":     {stored(2, []float32{1, 2}, `{"a":1}`), 0, false},
		"none":            {stored(1, []float32{1, 2}, `{"a":1}`), 1, false},
	} {
		if got := row.matches(c.have, c.at); got != c.want {
			t.Errorf("%s: it matches: %t", name, got)
		}
	}
	var s rowSample
	const rows = 20 * sampleRows
	for i := range uint64(rows) {
		s.add(adapters.Rows{IDs: []rerank.ID{rerank.UintID(i)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 1, Data: []float32{1}}}})
	}
	late := 0
	for _, r := range s.rows {
		if n, _ := r.id.Uint64(); n >= rows/2 {
			late++
		}
	}
	if len(s.rows) != sampleRows || late < sampleRows*2/5 || late > sampleRows*3/5 {
		t.Errorf("%d of %d sampled rows are of the second half", late, len(s.rows))
	}
}
