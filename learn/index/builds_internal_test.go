package index

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// asked is a store without rows that notes the scan that it is asked for.
type asked struct {
	adapters.Store
	request adapters.ScanRequest
}

func (a *asked) Scan(_ context.Context, r adapters.ScanRequest, _ func(adapters.Rows, string) error) error {
	a.request = r
	return nil
}

// fieldReader is a Base that reads two payload fields, and no vector.
type fieldReader struct{ Base }

func (fieldReader) Reads() (payload bool, fields []string, vector bool) {
	return true, []string{"title", "price"}, false
}

// TestPayloadsOfACompanion: its rows have the whole payload, whatever a ranker reads, from where the last run stopped.
func TestPayloadsOfACompanion(t *testing.T) {
	store := &asked{}
	b := &companionBuild{CompanionJob: CompanionJob{Source: Source{Store: store, Collection: "items", Owner: "item", Batch: 7, Base: fieldReader{}}}, state: state{Cursor: "9"}}
	if err := b.copyCollection(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if r := store.request; !r.Payload || r.PayloadFields != nil || len(r.Vectors) != 0 || r.Owner != "item" || r.Cursor != "9" || r.Batch != 7 || r.Collection != "items" {
		t.Errorf("the scan asks for %+v", r)
	}
	if r := (Source{Base: fieldReader{}}).request(); !r.Payload || !slices.Equal(r.PayloadFields, []string{"title", "price"}) || r.Vectors != nil {
		t.Errorf("for a table the scan asks for %+v", r)
	}
	if r := (Source{Vector: "v"}).request(); r.Payload || !slices.Equal(r.Vectors, []string{"v"}) {
		t.Errorf("without a ranker the scan asks for %+v", r)
	}
}

// kept is a companion's store in which the companion is there, or not.
type kept struct {
	adapters.Writer
	there            bool
	created, dropped int
}

func (k *kept) Describe(context.Context, string) (adapters.Description, error) {
	if !k.there {
		return adapters.Description{}, adapters.ErrNotFound
	}
	return adapters.Description{}, nil
}

func (k *kept) Create(context.Context, adapters.Schema) error {
	k.created++
	return nil
}

func (k *kept) Drop(context.Context, string) error {
	k.dropped++
	return nil
}

// TestWhereABuildBegins: where the last run stopped, if its companion is still there; anew otherwise. A part that is forced drops
// nothing.
func TestWhereABuildBegins(t *testing.T) {
	of := state{Collection: "c", Companion: "d", Cursor: "7", Rows: 9, Written: 9}
	for name, c := range map[string]struct {
		before           *state
		there, force     bool
		part             Part
		cursor           string
		created, dropped int
		fails            bool
	}{
		"the first run":               {nil, false, false, Part{}, "", 1, 0, false},
		"the next one":                {&of, true, false, Part{}, "7", 0, 0, false},
		"the companion was dropped":   {&of, false, false, Part{}, "", 1, 0, false},
		"nothing was written":         {&state{Collection: "c", Companion: "d"}, false, false, Part{}, "", 1, 0, false},
		"another's companion":         {nil, true, false, Part{}, "", 0, 0, true},
		"forced":                      {&of, true, true, Part{}, "", 1, 1, false},
		"a part beside others":        {nil, true, false, Part{1, 2}, "", 0, 0, false},
		"a part that is forced":       {nil, true, true, Part{1, 2}, "", 0, 0, false},
		"a run of another collection": {&state{Collection: "x", Companion: "d", Rows: 9}, true, false, Part{}, "", 0, 0, true},
	} {
		path := filepath.Join(t.TempDir(), "state.json")
		if c.before != nil {
			if err := c.before.save(path, nil); err != nil {
				t.Fatal(err)
			}
		}
		w := &kept{there: c.there}
		b := &companionBuild{CompanionJob: CompanionJob{Source: Source{Store: &asked{}, Collection: "c", Part: c.part}, Name: "d", Writer: w, State: path, Force: c.force}}
		err := b.begin(t.Context())
		if (err != nil) != c.fails || w.created != c.created || w.dropped != c.dropped {
			t.Errorf("%s: %v, created %d times and dropped %d times", name, err, w.created, w.dropped)
		}
		if c.fails {
			continue
		}
		if b.state.Cursor != c.cursor || b.result.Resumed != b.state.Rows || (b.state.Rows > 0) != (c.cursor != "") {
			t.Errorf("%s: goes on from %+v, of which %d rows are reported", name, b.state, b.result.Resumed)
		}
		if saved, err := loadState(path); err != nil || saved == nil || saved.Collection != "c" || saved.Cursor != c.cursor {
			t.Errorf("%s: the state is %+v, %v", name, saved, err)
		}
	}
}

// TestRowsAreCompared by all of their fields, and NaN is NaN.
func TestRowsAreCompared(t *testing.T) {
	nan := float32(math.NaN())
	of := func(a, b float32) []rerank.Matrix {
		return []rerank.Matrix{{Rows: 2, Cols: 1, Data: []float32{9, a}}, {Rows: 2, Cols: 1, Data: []float32{8, b}}}
	}
	for _, c := range []struct {
		a, b []rerank.Matrix
		same bool
	}{
		{of(1, 2), of(1, 2), true}, {of(1, nan), of(1, nan), true}, {of(1, 2), of(1, nan), false}, {of(1, 2), of(3, 2), false}, {of(1, 2), of(1, 3), false},
	} {
		if got := sameRow(c.a, 1, c.b, 1); got != c.same {
			t.Errorf("%v and %v are the same: %t", c.a, c.b, got)
		}
	}
}

// TestPagesReadBack: the rows of a sample are asked for in pages, each with its own ids, and a row that a page lacks is noticed.
func TestPagesReadBack(t *testing.T) {
	for lost, want := range map[int]bool{-1: true, 0: false, 149: false, 249: false} {
		store := &paged{lost: lost}
		b := &companionBuild{CompanionJob: CompanionJob{Writer: store, Name: "d"}, fields: []rerank.Field{{Name: "f"}}}
		rows := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(250, 1)}}
		for i := range 250 {
			rows.IDs = append(rows.IDs, rerank.UintID(uint64(i)))
			rows.Payloads = append(rows.Payloads, json.RawMessage("{}"))
			rows.Vectors[0].Data[i] = float32(i)
		}
		b.sample.add(rows)
		n, err := b.compareSample(t.Context())
		if (err == nil) != want || want && n != 250 || !want && n != lost || store.most != 100 {
			t.Errorf("without row %d: %d rows are compared, %d at a time, %v", lost, n, store.most, err)
		}
	}
}

// paged is a companion's store that reads rows back, but for one.
type paged struct {
	adapters.Writer
	lost, most int
}

func (p *paged) Fetch(_ context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	p.most = max(p.most, len(r.IDs))
	var rows adapters.Rows
	m := rerank.Matrix{Cols: 1}
	for _, id := range r.IDs {
		n, _ := id.Uint64()
		if int(n) == p.lost {
			continue
		}
		rows.IDs, rows.Payloads = append(rows.IDs, id), append(rows.Payloads, json.RawMessage("{}"))
		m.Data = append(m.Data, float32(n))
		m.Rows++
	}
	rows.Vectors = []rerank.Matrix{m}
	return rows, nil
}

// TestFilesThatCannotBeMade: a companion of files says so before its first row, and takes no folder that has some.
func TestFilesThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	schema := adapters.Schema{Fields: []adapters.VectorField{{Name: "no/such", Dim: 2}}}
	if err := (&Files{Dir: filepath.Join(dir, "a")}).Create(t.Context(), schema); err == nil {
		t.Error("a field without a file is taken")
	}
	schema.Fields[0].Name = "f"
	first := &Files{Dir: filepath.Join(dir, "b")}
	if err := first.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (&Files{Dir: first.Dir}).Create(t.Context(), schema); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a folder with files: %v", err)
	}
	if err := (&Files{Dir: filepath.Join(first.Dir, "payload.jsonl", "c")}).Create(t.Context(), schema); err == nil {
		t.Error("a folder below a file is made")
	}
}

// TestCollectionsThatNobodyDescribes are read all the same, and their size is unknown.
func TestCollectionsThatNobodyDescribes(t *testing.T) {
	if d, err := (Source{Store: &asked{}}).describe(t.Context(), rerank.Spec{ItemDim: 3}); err != nil || d.Rows != -1 {
		t.Errorf("%+v, %v", d, err)
	}
}
