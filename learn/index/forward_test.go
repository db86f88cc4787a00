package index_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
)

// noting is an embedded store that records its scans, the schemas that it creates, and the collections that it
// drops.
type noting struct {
	*embedded.Store
	scans   []adapters.ScanRequest
	created []adapters.Schema
	dropped []string
}

func (n *noting) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	n.scans = append(n.scans, r)
	return n.Store.Scan(ctx, r, yield)
}

func (n *noting) Create(ctx context.Context, s adapters.Schema) error {
	n.created = append(n.created, s)
	return n.Store.Create(ctx, s)
}

func (n *noting) Drop(ctx context.Context, name string) error {
	n.dropped = append(n.dropped, name)
	return n.Store.Drop(ctx, name)
}

// named returns a store of three items with a field v; texts chooses text ids over numbers.
func named(t *testing.T, texts bool) *noting {
	t.Helper()
	c := embedded.Collection{Fields: []embedded.Field{
		{VectorField: adapters.VectorField{Name: "other"}, Vectors: rerank.NewMatrix(3, 2)},
		{VectorField: adapters.VectorField{Name: "v"}, Vectors: bankingVectors(t, "test", 3)},
	}}
	for i := range 3 {
		id := rerank.UintID(uint64(i + 10))
		if texts {
			id = rerank.TextID(fmt.Sprint("item ", i))
		}
		c.IDs = append(c.IDs, id)
		c.Payloads = append(c.Payloads, json.RawMessage(fmt.Sprintf(`{"row":%d,"kind":"a"}`, i)))
	}
	n := &noting{Store: embedded.New()}
	if err := n.Load("items", c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// TestWhatACompanionIsMadeFrom: its rows have the ids and whole payloads of the collection, whatever
// the base vectors need, and its fields are those that the strategies search.
func TestWhatACompanionIsMadeFrom(t *testing.T) {
	m := molModel(t)
	first := map[bool]rerank.ID{false: rerank.UintID(10), true: rerank.TextID("item 0")}
	for _, texts := range []bool{false, true} {
		n := named(t, texts)
		source := index.Source{Store: n, Collection: "items", Vector: "v", Batch: 2}
		job := index.CompanionJob{Source: source, Model: m, Writer: n, Name: "learned", Strategies: []rerank.Strategy{rerank.Average}}
		r, err := index.BuildCompanion(t.Context(), job)
		if err != nil || r.Rows != 3 || len(n.created) != 1 || len(n.scans) != 1 {
			t.Fatalf("%+v, %v; scans %+v", r, err, n.scans)
		}
		if s := n.created[0]; s.Collection != "learned" || s.TextIDs != texts || s.TextOwners != texts || s.Owner != "" || len(s.Fields) != 1 || s.Fields[0].Metric != adapters.InnerProduct {
			t.Errorf("text ids %t: the companion is %+v", texts, s)
		}
		if s := n.scans[0]; s.Collection != "items" || !slices.Equal(s.Vectors, []string{"v"}) || !s.Payload || s.PayloadFields != nil || s.Batch != 2 || s.Owner != "" {
			t.Errorf("the collection is read with %+v", s)
		}
		rows, err := n.Fetch(t.Context(), adapters.FetchRequest{Collection: "learned", IDs: []rerank.ID{first[texts]}, Payload: true})
		if err != nil || len(rows.IDs) != 1 || string(rows.Payloads[0]) != `{"row":0,"kind":"a"}` {
			t.Errorf("the first row is %+v, %v", rows, err)
		}
	}
	// Rows of behavioural vectors have ids of their own, and a field that names the owning item.
	n := named(t, false)
	v := writeVectors(t, 384, func(w *maxsim.VectorsWriter) error { return w.Append(rerank.UintID(10), rerank.NewMatrix(2, 384)) })
	job := index.CompanionJob{Source: index.Source{Store: n, Collection: "items", Vector: "v"}, Model: behaviouralModel(t, 384, v), Vectors: v, Owner: "of", Writer: n, Name: "learned", Strategies: []rerank.Strategy{rerank.Average}}
	if r, err := index.BuildCompanion(t.Context(), job); err != nil || r.Rows != 5 || r.Items != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if s := n.created[0]; !s.TextIDs || s.TextOwners || s.Owner != "of" {
		t.Errorf("the companion of behavioural vectors is %+v", s)
	}
}

// TestForceDropsTheCompanionAlone: with Force the companion is dropped, and no other collection; without it nothing is.
func TestForceDropsTheCompanionAlone(t *testing.T) {
	m := molModel(t)
	n := named(t, false)
	job := index.CompanionJob{Source: index.Source{Store: n, Collection: "items", Vector: "v"}, Model: m, Writer: n, Name: "learned", Strategies: []rerank.Strategy{rerank.Average}}
	if _, err := index.BuildCompanion(t.Context(), job); err != nil || len(n.dropped) != 0 {
		t.Fatalf("%v, dropped %q", err, n.dropped)
	}
	job.Force = true
	if _, err := index.BuildCompanion(t.Context(), job); err != nil || !slices.Equal(n.dropped, []string{"learned"}) {
		t.Errorf("%v, dropped %q", err, n.dropped)
	}
}

// reading is a Base that needs a field of the payload.
type reading struct {
	vector bool
	rows   []adapters.Rows
}

func (r *reading) Reads() (payload bool, fields []string, vector bool) {
	return true, []string{"row"}, r.vector
}

func (r *reading) Vectors(_ context.Context, rows adapters.Rows) (rerank.Matrix, error) {
	r.rows = append(r.rows, rows)
	return rerank.NewMatrix(len(rows.IDs), 384), nil
}

// TestATableReadsWhatItsBaseNeeds: building a table reads the payload fields that its base needs, and the vector only if
// the base needs it.
func TestATableReadsWhatItsBaseNeeds(t *testing.T) {
	m := molModel(t)
	for _, base := range []*reading{nil, {vector: false}, {vector: true}} {
		n := named(t, false)
		job := index.TableJob{Source: index.Source{Store: n, Collection: "items", Vector: "v"}, Model: m, Path: filepath.Join(t.TempDir(), "table")}
		if base != nil {
			job.Source.Base = base
		}
		if _, err := index.BuildTable(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		s := n.scans[0]
		if s.Payload != (base != nil) || base != nil && !slices.Equal(s.PayloadFields, []string{"row"}) || slices.Contains(s.Vectors, "v") != (base == nil || base.vector) {
			t.Errorf("base %+v: the collection is read with %+v", base, s)
		}
		if base != nil && (len(base.rows) != 1 || !strings.Contains(string(base.rows[0].Payloads[0]), `"row"`)) {
			t.Errorf("the base was given %+v", base.rows)
		}
	}
}

// TestATableIsComparedInItsOwnFormat: a difference that the table's number format causes by rounding does not count.
func TestATableIsComparedInItsOwnFormat(t *testing.T) {
	m := molModel(t)
	n := named(t, false)
	for _, format := range []rerank.Format{rerank.FormatFloat32, rerank.FormatBFloat16, rerank.FormatInt8} {
		for _, full := range []bool{false, true} {
			if full && format == rerank.FormatFloat32 {
				continue
			}
			job := index.TableJob{Source: index.Source{Store: n, Collection: "items", Vector: "v"}, Model: m, Path: filepath.Join(t.TempDir(), "table"), Format: format, Full: full}
			if _, err := index.BuildTable(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if _, err := index.BuildTable(t.Context(), job); !errors.Is(err, index.ErrExists) {
				t.Errorf("%s: built twice: %v", format, err)
			}
			built, err := table.Open(job.Path, table.Expect{})
			if err != nil {
				t.Fatal(err)
			}
			if have := built.Meta(); have.Format != format || have.Full != full || have.ModelVersion != m.Version || have.Collection != "items" || have.Kind != "mol" {
				t.Errorf("%s: built as %+v", format, have)
			}
			if err := built.Close(); err != nil {
				t.Error(err)
			}
			job.Format, job.Full = "", false // a caller need not know it
			if d, err := index.CompareTable(t.Context(), job); err != nil || d != (index.Difference{Rows: 3}) {
				t.Errorf("%s: %+v, %v", format, d, err)
			}
		}
	}
}

// TestRowsThatCannotBeIndexed: rows without a vector are left out, rows with numbers that are not finite are kept. The
// report names the first of either, whichever batch has it.
func TestRowsThatCannotBeIndexed(t *testing.T) {
	c := embedded.Collection{Fields: []embedded.Field{{Vectors: rerank.NewMatrix(8, 2)}}}
	for i := range 8 {
		c.IDs = append(c.IDs, rerank.UintID(uint64(i+1)))
	}
	for _, missing := range []int{2, 4} { // ids 3 and 5
		for j := range 2 {
			c.Fields[0].Vectors.Row(missing)[j] = float32(math.NaN())
		}
	}
	for _, infinite := range []int{3, 6} { // ids 4 and 7
		c.Fields[0].Vectors.Row(infinite)[0] = float32(math.Inf(1))
	}
	store := embedded.New()
	if err := store.Load("items", c); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	job := index.TableJob{Source: index.Source{Store: store, Collection: "items", Batch: 2}, Model: route.Model{Name: "dot", Version: "1", Similarity: sim}, Path: filepath.Join(t.TempDir(), "t")}
	r, err := index.BuildTable(t.Context(), job)
	if err != nil || r.Rows != 6 || r.Items != 6 || r.Missing != 2 || r.FirstMissing != "3" || r.NotFinite != 2 || r.FirstNotFinite != "4" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFilesOfACompanion: numeric ids are written as an array and text ids as lines. Ids that fit neither file are
// refused.
func TestFilesOfACompanion(t *testing.T) {
	text, number := rerank.TextID, rerank.UintID
	schema := adapters.Schema{Fields: []adapters.VectorField{{Name: "f", Dim: 1}}}
	write := func(ids, owners []rerank.ID, payloads []json.RawMessage) (*index.Files, error) {
		f := &index.Files{Dir: filepath.Join(t.TempDir(), "files")}
		if err := f.Create(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		err := f.Write(t.Context(), "c", schema, adapters.Rows{IDs: ids, Owners: owners, Payloads: payloads, Vectors: []rerank.Matrix{rerank.NewMatrix(len(ids), 1)}})
		return f, errors.Join(err, f.Close())
	}
	for name, c := range map[string]struct {
		ids, owners       []rerank.ID
		idsFile, ownersIn string
		err               error
	}{
		"row numbers":       {ids: []rerank.ID{number(0), number(1)}},
		"numbers":           {ids: []rerank.ID{number(1), number(0)}, idsFile: "ids.npy"},
		"texts":             {ids: []rerank.ID{text("a"), text("b")}, idsFile: "ids.txt"},
		"owners":            {ids: []rerank.ID{number(0), number(1)}, owners: []rerank.ID{text("x"), text("x")}, ownersIn: "owners.txt"},
		"numbers as owners": {ids: []rerank.ID{text("a"), text("b")}, owners: []rerank.ID{number(0), number(1)}, idsFile: "ids.txt", ownersIn: "owners.npy"},
		"mixed":             {ids: []rerank.ID{number(1), text("b")}, err: adapters.ErrID},
		"beyond int64":      {ids: []rerank.ID{number(1 << 63), number(2)}, err: adapters.ErrID},
		"a line break":      {ids: []rerank.ID{text("a\nb"), text("c")}, err: adapters.ErrID},
	} {
		f, err := write(c.ids, c.owners, nil)
		if !errors.Is(err, c.err) || c.err == nil && (filepath.Base(f.IDs) != filepath.Base(c.idsFile) || filepath.Base(f.Owners) != filepath.Base(c.ownersIn)) {
			t.Errorf("%s: ids in %q, owners in %q, %v", name, f.IDs, f.Owners, err)
		}
		if c.idsFile == "ids.npy" && err == nil {
			if ids, err := npy.ReadInts(f.IDs); err != nil || !slices.Equal(ids, []int64{1, 0}) {
				t.Errorf("%s: %v, %v", name, ids, err)
			}
		}
		if c.idsFile == "ids.txt" && err == nil {
			if lines, err := os.ReadFile(f.IDs); err != nil || string(lines) != "a\nb\n" {
				t.Errorf("%s: %q, %v", name, lines, err)
			}
		}
		if err := errors.Join(f.Drop(t.Context(), "c"), (&index.Files{Dir: f.Dir}).Create(t.Context(), schema)); err != nil {
			t.Errorf("%s: the files cannot be replaced: %v", name, err)
		}
	}
	f, err := write([]rerank.ID{number(0), number(1)}, nil, []json.RawMessage{json.RawMessage("{\n \"a\": 1}"), nil})
	if lines, read := os.ReadFile(filepath.Join(f.Dir, "payload.jsonl")); err != nil || read != nil || string(lines) != "{\"a\":1}\n{}\n" {
		t.Errorf("payloads %q, %v", lines, errors.Join(err, read))
	}
	mine := filepath.Join(f.Dir, "notes.md")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Drop(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(f.Dir, "*")); err != nil || !slices.Equal(left, []string{mine}) {
		t.Errorf("left are %q, %v", left, err)
	}
}
