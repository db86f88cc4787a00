package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
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

// listing is a store that notes the scan that it is asked for, and counts ten rows.
type listing struct {
	adapters.Store
	asked   adapters.ScanRequest
	uncount error // of every count
}

func (l *listing) Scan(_ context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	l.asked = r
	return yield(adapters.Rows{IDs: []rerank.ID{rerank.UintID(1), rerank.UintID(2), rerank.UintID(3), rerank.UintID(4)}}, "next")
}

func (l *listing) Count(context.Context, string) (int64, error) { return 10, l.uncount }

// TestPartsAreScanned: from their beginning, or where the last run stopped, to their end. Where
// the store cannot divide a collection, each row belongs to one part.
func TestPartsAreScanned(t *testing.T) {
	for _, c := range []struct{ cursor, want string }{{"", "from"}, {"cursor", "cursor"}} {
		l := &listing{}
		err := Source{Store: l, Part: Part{1, 2}}.scan(t.Context(), bounds{From: "from", Until: "until"}, adapters.ScanRequest{Cursor: c.cursor},
			func(rows adapters.Rows, cursor string) error {
				if len(rows.IDs) != 4 || cursor != "next" {
					t.Errorf("%d rows, and the cursor %q", len(rows.IDs), cursor)
				}
				return nil
			})
		if err != nil || l.asked.Cursor != c.want || l.asked.Until != "until" {
			t.Errorf("from %q: scanned from %q until %q, %v", c.cursor, l.asked.Cursor, l.asked.Until, err)
		}
	}
	seen := map[rerank.ID]int{}
	for n := range 3 {
		err := Source{Store: &listing{}, Part: Part{n + 1, 3}}.scan(t.Context(), bounds{Hash: true}, adapters.ScanRequest{}, func(rows adapters.Rows, _ string) error {
			for _, id := range rows.IDs {
				seen[id]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for id, parts := range seen {
		if parts != 1 || len(seen) != 4 {
			t.Errorf("row %s of %d is in %d parts", id, len(seen), parts)
		}
	}
}

// TestRowsOfAPartAreNotCounted: a part has fewer rows than the collection.
func TestRowsOfAPartAreNotCounted(t *testing.T) {
	for _, c := range []struct {
		part   Part
		before int64
		ok     bool
	}{{Part{}, 7, true}, {Part{1, 1}, 12, true}, {Part{1, 2}, 7, false}, {Part{}, -1, false}} {
		found, ok, err := Source{Store: &listing{}, Part: c.part}.countAgain(t.Context(), c.before)
		if err != nil || ok != c.ok || ok && found != (rowRange{min(c.before, 10), max(c.before, 10)}) {
			t.Errorf("part %s, %d rows before: %+v, %t, %v", c.part, c.before, found, ok, err)
		}
	}
	down := &listing{uncount: adapters.ErrUnavailable}
	if found, ok, err := (Source{Store: down}).countAgain(t.Context(), 7); ok || err != nil {
		t.Errorf("a store that cannot count any more: %+v, %t, %v", found, ok, err)
	}
}

// written is a companion's store that counts rows and reads none back.
type written struct {
	adapters.Writer
	rows int64
}

func (w written) Count(context.Context, string) (int64, error) { return w.rows, nil }

// TestCountsReadBack: a companion has as many rows as were written, and the collection as many
// as were read.
func TestCountsReadBack(t *testing.T) {
	for _, c := range []struct {
		have          int64
		written, read int
		ok            bool
	}{{30, 30, 10, true}, {29, 30, 10, false}, {31, 30, 10, false}, {30, 30, 9, false}} {
		b := &companionBuild{CompanionJob: CompanionJob{Source: Source{Store: &listing{}}, Writer: written{rows: c.have}, Name: "learned"}, state: state{Written: c.written, Rows: c.read}}
		v, err := b.verify(t.Context(), 10)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrVerify) || err == nil && (v != Verified{Rows: c.have, Counted: true}) {
			t.Errorf("%+v: %+v, %v", c, v, err)
		}
	}
}

// TestItemsAreCompared by all of their rows.
func TestItemsAreCompared(t *testing.T) {
	of := func(rows ...float32) *table.Table {
		all, err := table.FromMemory(table.Meta{}, []rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: len(rows), Cols: 1, Data: rows}, []int32{0, int32(len(rows))})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		a, b []float32
		same bool
	}{
		{[]float32{1, 2}, []float32{1, 2}, true},
		{[]float32{1, nan}, []float32{1, nan}, true},
		{[]float32{1, 2}, []float32{1, 2, 3}, false},
		{[]float32{1, 2, 3}, []float32{1, 2}, false},
		{[]float32{1, 2}, []float32{1, 3}, false},
		{[]float32{1, 2}, []float32{0, 2}, false},
		{[]float32{1, 2}, []float32{1, nan}, false},
	} {
		if got := sameItem(of(c.a...), 0, of(c.b...), 0); got != c.same {
			t.Errorf("%v and %v are the same: %t", c.a, c.b, got)
		}
	}
}

// TestCheckpointsAreRare: a build writes none before it is due.
func TestCheckpointsAreRare(t *testing.T) {
	b := &tableBuild{saved: time.Now()} // without a writer
	if err := b.saveIfDue("7"); err != nil || b.cursor != "7" {
		t.Errorf("%v at cursor %q", err, b.cursor)
	}
}

// lateDeriver is late interaction with a learned companion, of which it computes nothing.
type lateDeriver struct{ rerank.Similarity }

func (lateDeriver) Spec() rerank.Spec { return rerank.Spec{Kind: rerank.KindLate} }

func (lateDeriver) Fields() []rerank.Field {
	return []rerank.Field{{Name: "learned", Dim: 1, Strategies: []rerank.Strategy{rerank.Companion}}}
}

func (lateDeriver) Derive(rerank.Matrix, string, rerank.Items) error { return rerank.ErrItems }

func (lateDeriver) Features(rerank.Matrix, []rerank.Matrix) error { return rerank.ErrItems }

// TestJobsThatCannotBeDone: a store that lists no rows, and rows that have a vector each of an item, make no companion.
func TestJobsThatCannotBeDone(t *testing.T) {
	silent := struct{ adapters.Store }{}
	if err := (Source{Store: silent}).Read(t.Context(), nil); !errors.Is(err, ErrSource) || !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("a store that lists no rows: %v", err)
	}
	job := CompanionJob{Source: Source{Store: silent, Owner: "item"}, Model: route.Model{Similarity: lateDeriver{}}, Strategies: []rerank.Strategy{rerank.Companion}}
	if _, err := BuildCompanion(t.Context(), job); !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "takes all vectors of an item at once") {
		t.Errorf("a learned companion of rows with owners: %v", err)
	}
}

// uncreated is a store that creates no companion.
type uncreated struct{ adapters.Writer }

func (uncreated) Create(context.Context, adapters.Schema) error { return adapters.ErrUnavailable }

// TestACompanionThatNobodyCreates: a part waits for another to create the companion, and says after a time why it could
// not do so itself.
func TestACompanionThatNobodyCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &companionBuild{CompanionJob: CompanionJob{Source: Source{Part: Part{1, 2}}, Writer: uncreated{}, Name: "learned"}}
		began := time.Now()
		err := b.create(t.Context(), false)
		if !errors.Is(err, adapters.ErrUnavailable) || !errors.Is(err, adapters.ErrNotFound) || time.Since(began) < 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestSpeedOfReading: rows are read no faster than permitted, those too that belong to another part.
func TestSpeedOfReading(t *testing.T) {
	for name, c := range map[string]struct {
		part   Part
		bounds bounds
	}{"the whole": {}, "a hashed part": {Part{1, 40}, bounds{Hash: true}}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			source := Source{Store: &listing{}, Part: c.part, RowsPerSecond: 2}
			for range 2 {
				if err := source.scan(t.Context(), c.bounds, adapters.ScanRequest{}, func(adapters.Rows, string) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took != 4*time.Second {
				t.Errorf("%s: eight rows at two a second took %v", name, took)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := source.scan(ended, c.bounds, adapters.ScanRequest{}, func(adapters.Rows, string) error { return nil }); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a scan goes on after its end: %v", name, err)
			}
		})
	}
}

// owned lists rows of twenty items, two of each, one row of three without a vector. It takes scans of one batch.
type owned struct {
	adapters.Store
	batch int
}

func (o owned) Scan(_ context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	if r.Batch != o.batch {
		return fmt.Errorf("the scan has batches of %d rows, want %d", r.Batch, o.batch)
	}
	rows := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(40, 1)}}
	for i := range uint64(40) {
		rows.IDs, rows.Owners = append(rows.IDs, rerank.UintID(i)), append(rows.Owners, rerank.UintID(100+i%20))
		if i%3 == 0 {
			rows.Vectors[0].Data[i] = float32(math.NaN())
		}
	}
	return yield(rows, "")
}

// TestItemsOfParts: an item belongs to one part with all of its rows, and is listed once.
func TestItemsOfParts(t *testing.T) {
	listed := map[rerank.ID]int{}
	for n := range 3 {
		b := &tableBuild{TableJob: TableJob{Source: Source{Store: owned{batch: 9}, Batch: 9, Owner: "item", Part: Part{n + 1, 3}}}}
		owners, err := b.listOwners(t.Context())
		if err != nil || len(owners) == 0 {
			t.Fatalf("part %d has the items %v, %v", n+1, owners, err)
		}
		for _, id := range owners {
			listed[id]++
		}
	}
	for id, parts := range listed {
		if parts != 1 || len(listed) != 20 {
			t.Errorf("item %s of %d is listed %d times", id, len(listed), parts)
		}
	}
	if _, err := (&tableBuild{TableJob: TableJob{Source: Source{Store: owned{}, Part: Part{4, 3}}}}).listOwners(t.Context()); !errors.Is(err, ErrSource) {
		t.Errorf("the fourth part of three: %v", err)
	}
}

// TestRowsLeftOutBefore: rows without a vector that an earlier run left out are counted again if the table lacks rows.
func TestRowsLeftOutBefore(t *testing.T) {
	for _, c := range []struct {
		resumed, missing int
		read             int64
		ok               bool
	}{
		{0, 14, 26, true}, {0, 0, 26, false}, {5, 0, 26, true}, {5, 0, 25, false}, {5, 14, 26, true},
	} {
		b := &tableBuild{TableJob: TableJob{Source: Source{Store: owned{}}}, result: Result{Resumed: c.resumed, Missing: c.missing}}
		if err := b.checkCount(t.Context(), rowRange{40, 40}, c.read); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrVerify) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
