package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
)

// things is a collection of six rows, the last of which has no finite vector, and every second a label.
func things(t *testing.T) *embedded.Store {
	t.Helper()
	vectors := rerank.Matrix{Rows: 6, Cols: 1, Data: []float32{1, -1, 1, -1, 1, float32(math.Inf(1))}}
	c := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Name: "v"}, Vectors: vectors}}}
	for i := range 6 {
		c.Payloads = append(c.Payloads, json.RawMessage(fmt.Sprintf(`{"doc":{"name":"thing %d"},"kind":%q,"code":"x%d"}`, i, []string{"a", ""}[i%2], i)))
	}
	store := embedded.New()
	if err := store.Load("things", c); err != nil {
		t.Fatal(err)
	}
	return store
}

// trialOf is a trial of things.
func trialOf(t *testing.T, o Options) *trial {
	t.Helper()
	o.Collection = "things"
	store := things(t)
	tr := &trial{Options: o, store: store, can: adapters.AbilitiesOf(store), look: &Look{Rows: 6, Collection: "things"}, report: &Report{}}
	tr.look.field = adapters.VectorField{Name: "v", Dim: 1}
	return tr
}

// TestRowsThatTheLogNames are read first, each once, if the trial does not read all rows.
func TestRowsThatTheLogNames(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log.csv")
	if err := os.WriteFile(log, []byte("query,item\nq,4\nq,2\nq,5\nq,4\nq,77\nq,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows   int
		ids    []uint64 // of the sample
		logged int
	}{
		{6, []uint64{0, 1, 2, 3, 4}, 0}, // row 5 is not finite
		{5, []uint64{4, 2, 3, 0, 1}, 3},
		{2, []uint64{4, 2}, 2},
	} {
		tr := trialOf(t, Options{Rows: c.rows, Log: Log{Pairs: log}})
		if err := tr.readSample(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ids []uint64
		for _, id := range tr.sample.ids {
			n, _ := id.Uint64()
			ids = append(ids, n)
		}
		if !slices.Equal(ids, c.ids) || tr.look.Logged != c.logged || tr.look.Read != len(c.ids) || tr.sample.whole != (c.rows == 6) || tr.sample.vectors.Rows != len(ids) || !tr.sample.unit {
			t.Errorf("of at most %d rows %v were read, %d for the log, whole %t; want %v", c.rows, ids, tr.look.Logged, tr.sample.whole, c.ids)
		}
		if text := tr.unreadText(); (text != "") != (c.rows == 2) {
			t.Errorf("of at most %d rows: %q", c.rows, text)
		}
	}
	tr := trialOf(t, Options{Rows: 6, Label: "kind"})
	if err := tr.readSample(t.Context()); err != nil || !slices.Equal(tr.sample.labels, []string{"a", "", "a", "", "a"}) || tr.look.Title != "doc.name" || len(tr.look.Fields) != 3 {
		t.Errorf("labels %q, titles %q of fields %+v, %v", tr.sample.labels, tr.look.Title, tr.look.Fields, err)
	}
}

// TestWhatAnExampleShows: the title of each row, and which rows the label or the log calls right.
func TestWhatAnExampleShows(t *testing.T) {
	ids := numbered(6)
	tr := trialOf(t, Options{Label: "kind"})
	tr.look.Title = "doc.name"
	e := Example{Own: ids[4]}
	if err := tr.fillExample(t.Context(), &e, &task{rowsAsQueries: true}, 0, ids[:2], ids[1:3]); err != nil {
		t.Fatal(err)
	}
	want := Example{Query: "thing 4", Own: ids[4], Before: []Row{{ids[0], "thing 0", true}, {ids[1], "thing 1", false}}, After: []Row{{ids[1], "thing 1", false}, {ids[2], "thing 2", true}}}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("%+v\nwant %+v", e, want)
	}
	for text, name := range map[bool]string{false: "query 5", true: "5"} {
		k := &task{textQueries: text, queryIDs: ids[4:], relevant: [][]int32{nil, {1}}, itemIDs: ids[1:3]}
		var e Example
		if err := tr.fillExample(t.Context(), &e, k, 1, ids[:1], ids[2:3]); err != nil || e.Query != name || e.Before[0].Right || !e.After[0].Right {
			t.Errorf("queries of text %t: %+v, %v", text, e, err)
		}
	}
	titles, unknown, err := Titles(t.Context(), tr.store, "things", ids[:2], "code")
	if err != nil || titles[ids[1]] != "x1" || unknown != "" {
		t.Errorf("titles %q, %q, %v", titles, unknown, err)
	}
	if titles, unknown, err = Titles(t.Context(), tr.store, "things", ids[:2], "cod"); err != nil || titles[ids[1]] != "thing 1" || !strings.Contains(unknown, `["code" `) {
		t.Errorf("titles of a field that no row has: %q, %q, %v", titles, unknown, err)
	}
	if titles, _, err = Titles(t.Context(), tr.store, "things", ids[:2], ""); err != nil || titles[ids[0]] != "thing 0" {
		t.Errorf("titles of the field that is picked: %q, %v", titles, err)
	}
}

// TestWhatCouldServe: the certificate of one search follows from the metric, the datatype and the index.
func TestWhatCouldServe(t *testing.T) {
	exact, unknown := string(rerank.StatusExact), string(rerank.StatusUnknown)
	full := adapters.VectorField{Metric: adapters.Cosine, Datatype: adapters.Float32, FullPrecision: true, Exact: true}
	with := func(change func(f *adapters.VectorField)) adapters.VectorField {
		f := full
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		field     adapters.VectorField
		unit      bool
		one, many string // certificates
		how, why  string
	}{
		"asked for an exhaustive search": {full, false, exact, "bounded", "one search of the database", "exact_search: true"},
		"always exhaustive":              {with(func(f *adapters.VectorField) { f.AlwaysExact = true }), false, exact, "bounded", "one search", "every search of the index"},
		"approximate":                    {with(func(f *adapters.VectorField) { f.Exact = false }), false, unknown, unknown, "one search", "approximately only"},
		"rounded":                        {with(func(f *adapters.VectorField) { f.FullPrecision, f.Datatype = false, adapters.Float16 }), false, unknown, unknown, "one search", "keeps the vectors as float16"},
		"bytes":                          {with(func(f *adapters.VectorField) { f.FullPrecision, f.Datatype = false, "uint8" }), false, unknown, unknown, "scores in the sidecar", "as uint8"},
		"L2 of unit vectors":             {with(func(f *adapters.VectorField) { f.Metric = adapters.L2 }), true, exact, "bounded", "scores in the sidecar", "exact_search"},
		"L2 of others":                   {with(func(f *adapters.VectorField) { f.Metric = adapters.L2 }), false, unknown, "bounded", "not by this field", "norm 1"},
	} {
		l := &Look{field: c.field, Rows: 1 << 20}
		l.field.Dim = 4
		l.tellSimilarities(&sample{unit: c.unit})
		one, scan, lists := l.Similarities[0], l.Similarities[1], l.Similarities[2]
		if one.Certificate != c.one || !strings.Contains(one.How, c.how) || !strings.Contains(one.Why, c.why) || lists.Certificate != c.many || !strings.Contains(scan.How, "about 17 MB for 1048576 rows") {
			t.Errorf("%s: %+v", name, l.Similarities)
		}
	}
}

// TestTheFieldToTry: the one that is asked for, or the only one.
func TestTheFieldToTry(t *testing.T) {
	cosine := adapters.VectorField{Name: "a", Metric: adapters.Cosine, Dim: 3}
	far, bare := adapters.VectorField{Name: "far", Metric: "MANHATTAN"}, adapters.VectorField{Name: "bare"}
	for name, c := range map[string]struct {
		asked  string
		fields []adapters.VectorField
		want   string // the field, or a part of the refusal
	}{
		"the only one": {"", []adapters.VectorField{cosine}, "a"}, "by name": {"a", []adapters.VectorField{far, cosine}, "a"},
		"of two": {"", []adapters.VectorField{cosine, bare}, "name one with --vector"}, "not there": {"b", []adapters.VectorField{cosine}, `no dense vector "b"`},
		"another metric": {"far", []adapters.VectorField{cosine, far}, "is compared by MANHATTAN"}, "without an index": {"", []adapters.VectorField{bare}, "has no index"},
		"no field": {"", nil, "has no vector field"}, "several vectors a row": {"late", []adapters.VectorField{cosine}, `of collection "things" of  at  has several vectors a row`},
	} {
		tr := &trial{Options: Options{Collection: "things", Vector: c.asked}, look: &Look{}}
		d := adapters.Description{Fields: c.fields}
		if c.asked == "late" {
			d.MaxSim = []adapters.VectorField{{Name: "late"}}
		}
		tr.look.Vectors = make([]Vector, len(c.fields))
		got, err := tr.chooseField(d)
		var refusal *RefusalError
		if errors.As(err, &refusal) {
			if !strings.Contains(refusal.Sentence, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		} else if got.Name != c.want || err != nil {
			t.Errorf("%s: field %q, %v", name, got.Name, err)
		}
	}
}

// TestFolderToWrite: a second trial replaces the report of a first one that only looked, and no model.
func TestFolderToWrite(t *testing.T) {
	o := Options{Out: t.TempDir()}
	for file, replaced := range map[string]bool{ReportFile: true, ConfigFile: false} {
		if err := os.WriteFile(filepath.Join(o.Out, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.checkOut(); (err == nil) != replaced {
			t.Errorf("%s: %v", file, err)
		}
		if err := os.Remove(filepath.Join(o.Out, file)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFacts: lines for people, with every number in its place.
func TestFacts(t *testing.T) {
	r := &Report{
		Look: Look{
			Rows: 100, Read: 30, Logged: 10, WithoutVector: 2, Random: true, Title: "name", Vector: Vector{Name: "v", Dim: 3, Metric: "cosine", Kind: "float32", Norms: "unit vectors", Quantized: "int8"},
			Vectors: []Vector{{Name: "v", Dim: 3}, {Name: "words", Kind: "sparse"}}, Index: map[string]string{".m": "16", "ef": "100"},
		},
		Database: Database{Queries: 7, K: 5, P50: 1.25, P95: 2.5, Recall: 0.987, Exact: "a scan of all rows"},
		Served:   &Served{P50: 3, P95: 4, Certificates: map[string]int{"unknown": 1, "exact": 6}},
	}
	for i := range shownFields + 2 {
		r.Look.Fields = append(r.Look.Fields, Field{Name: fmt.Sprintf("f%d", i), Type: "string"})
	}
	r.Look.Fields[0].Name = "name"
	want := map[string]string{
		"rows":     "100, of which 10 that the log names and 20 from random places were read; --rows reads more; 2 have no such vector and were left out",
		"vector":   "v (3 dimensions, cosine, float32), unit vectors, quantised: int8",
		"others":   "words (sparse)",
		"index":    "m: 16; ef: 100",
		"payload":  "name (string, shown in examples), f1 (string), f2 (string), f3 (string), f4 (string), f5 (string), f6 (string), f7 (string), f8 (string), f9 (string), f10 (string), f11 (string), 2 more",
		"database": "p50 1.2 ms, p95 2.5 ms for the first 5 rows; its index finds 98.70 % of them, compared with a scan of all rows for 7 stored vectors",
		"likeness": "p50 3.0 ms, p95 4.0 ms for the first 5 rows by the learned similarity, in this process; certificates: 6 exact, 1 unknown",
	}
	facts := r.Facts()
	for _, f := range facts {
		if f.Text != want[f.Name] {
			t.Errorf("%s: %q\nwant %q", f.Name, f.Text, want[f.Name])
		}
	}
	if len(facts) != len(want) {
		t.Errorf("%d facts", len(facts))
	}
	r.Look.Read, r.Look.Random, r.Database.NotMeasured = 10, false, "why"
	if text := r.Look.rowsText(); !strings.HasPrefix(text, "100, of which 10 that the log names were read") {
		t.Errorf("rows of the log alone: %q", text)
	}
	if text := r.Database.text(); !strings.HasSuffix(text, "was not measured: why") || strings.Contains(text, "98.7") {
		t.Errorf("a recall that was not measured: %q", text)
	}
	r.Look.Read, r.Look.Logged, r.Database.Queries = 98, 0, 0
	if text := r.Look.rowsText(); text != "100; 2 have no such vector and were left out" {
		t.Errorf("all rows: %q", text)
	}
	if r.Database.text() != "not measured: why" {
		t.Errorf("nothing was measured: %q", r.Database.text())
	}
}
