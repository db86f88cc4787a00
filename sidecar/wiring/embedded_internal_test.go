package wiring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
)

// files writes files of an embedded collection of two rows, and returns a function that names
// them.
func files(t *testing.T) (at func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	at = func(name string) string { return filepath.Join(dir, name) }
	for name, rows := range map[string]int{"two.npy": 2, "title.npy": 2, "three.npy": 3} {
		m := rerank.NewMatrix(rows, 2)
		m.Data[0] = float32(len(name))
		if err := npy.Write(at(name), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := npy.WriteInts(at("ids.npy"), []int64{7, -8}); err != nil {
		t.Fatal(err)
	}
	if err := npy.WriteInts(at("negative.npy"), []int64{3, -1}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"ids.txt": "a\r\nb\n", "rows.jsonl": "{\"of\": \"x\"}\r\n{\"of\": 9}", "half.jsonl": "{\"of\": \"x\"}\n{}", "list.jsonl": "[]\n{}", "zero.jsonl": "{\"of\": null}\n{}",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// TestCollectionsAreReadAsConfigured: vectors, metrics, ids, payload and owners come from the files
// that the configuration names.
func TestCollectionsAreReadAsConfigured(t *testing.T) {
	at := files(t)
	text, number := rerank.TextID, rerank.IntID
	for name, test := range map[string]struct {
		collection  config.Collection
		ids, owners []rerank.ID
		payloads    string
	}{
		"no more than vectors": {collection: config.Collection{Vectors: at("two.npy"), Metric: "cosine"}},
		"numbers":              {config.Collection{Vectors: at("two.npy"), Metric: "cosine", IDs: at("ids.npy")}, []rerank.ID{number(7), number(-8)}, nil, ""},
		"text ids":             {config.Collection{Vectors: at("two.npy"), Metric: "cosine", IDs: at("ids.txt")}, []rerank.ID{text("a"), text("b")}, nil, ""},
		"owners in the payload": {
			config.Collection{Vectors: at("two.npy"), Metric: "cosine", Payload: at("rows.jsonl"), Owner: "of"}, nil, []rerank.ID{text("x"), number(9)}, `[{"of": "x"} {"of": 9}]`,
		},
		"owners of a file": {
			config.Collection{Vectors: at("two.npy"), Metric: "cosine", Payload: at("half.jsonl"), Owner: "of", Owners: at("ids.txt")},
			nil, []rerank.ID{text("a"), text("b")}, `[{"of": "x"} {}]`,
		},
		"payload without an owner": {config.Collection{Vectors: at("two.npy"), Metric: "cosine", Payload: at("half.jsonl")}, nil, nil, `[{"of": "x"} {}]`},
	} {
		got, open, err := openCollection(test.collection)
		if err != nil || !slices.Equal(got.IDs, test.ids) || !slices.Equal(got.Owners, test.owners) || len(got.Payloads) > 0 && fmt.Sprintf("%s", got.Payloads) != test.payloads || (len(got.Payloads) == 0) != (test.payloads == "") || got.OwnerField != test.collection.Owner {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if len(got.Fields) != 1 || got.Fields[0].Name != "" || got.Fields[0].Metric != adapters.Cosine || got.Fields[0].Vectors.Data[0] != 7 || len(open) != 1 {
			t.Errorf("%s: fields %+v of %d files", name, got.Fields, len(open))
		}
		if err := closeAll(open); err != nil {
			t.Error(err)
		}
	}
	got, open, err := openCollection(config.Collection{Vectors: at("two.npy"), Metric: "cosine", Fields: map[string]config.VectorFile{
		"title": {File: at("title.npy"), Metric: "l2"}, "body": {File: at("two.npy"), Metric: "inner_product"},
	}})
	fields := map[string]adapters.Metric{}
	for _, f := range got.Fields {
		fields[f.Name] = f.Metric
	}
	if want := map[string]adapters.Metric{"": adapters.Cosine, "title": adapters.L2, "body": adapters.InnerProduct}; err != nil || !reflect.DeepEqual(fields, want) || len(open) != 3 {
		t.Errorf("fields %v of %d files, %v", fields, len(open), err)
	}
	if f := got.Fields[len(got.Fields)-1]; f.Name != "title" || f.Vectors.Data[0] != 9 {
		t.Errorf("the last field is %s, which begins with %g", f.Name, f.Vectors.Data[0])
	}
	if err := closeAll(open); err != nil {
		t.Error(err)
	}
}

// TestCollectionsThatCannotBeRead: the error says which file, and what was opened is returned to be
// closed.
func TestCollectionsThatCannotBeRead(t *testing.T) {
	at := files(t)
	two := at("two.npy")
	for key, c := range map[string]config.Collection{
		"vectors":                 {Vectors: at("ids.txt")},
		"fields.title":            {Vectors: two, Fields: map[string]config.VectorFile{"title": {File: at("gone")}}},
		"ids":                     {Vectors: two, IDs: at("gone")},
		"payload":                 {Vectors: two, Payload: at("gone")},
		"owners":                  {Vectors: two, Owner: "of", Owners: at("gone.npy")},
		"counts: row 1 has -1":    {Fields: map[string]config.VectorFile{"title": {File: two, Counts: at("negative.npy")}}},
		"payload of row 1: field": {Vectors: two, Owner: "of", Payload: at("half.jsonl")},
		"payload of row 0:":       {Vectors: two, Owner: "of", Payload: at("list.jsonl")},
		"payload of row 0: field": {Vectors: two, Owner: "of", Payload: at("zero.jsonl")},
	} {
		_, open, err := openCollection(c)
		if err == nil || !contains(err, key) || key != "vectors" && len(open) != 1 {
			t.Errorf("%s: error %v, %d files are open", key, err, len(open))
		}
		if err := closeAll(open); err != nil {
			t.Error(err)
		}
	}
}

// TestABrokenCollectionIsLeftOut: only with KeepBroken, only for the routes that search it, and
// until its files are mended.
func TestABrokenCollectionIsLeftOut(t *testing.T) {
	at := files(t)
	c, err := config.Parse(at("likeness.yaml"), []byte(`
stores:
  s:
    kind: embedded
    collections: {whole: {vectors: two.npy}, longer: {vectors: three.npy, ids: ids.npy}}
`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := Open(t.Context(), c, Part{}); a != nil || err == nil || !contains(err, "stores.s: collections.longer:") {
		t.Errorf("all of it: %v", err)
	}
	a, err := Open(t.Context(), c, Part{KeepBroken: true})
	if err == nil && len(a.files) != 1 {
		err = fmt.Errorf("%d files are to be closed, want the whole collection's", len(a.files))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	if all := a.BrokenCollections(); len(all) != 1 || !contains(all[0], "stores.s: collections.longer:") {
		t.Errorf("broken are %v", all)
	}
	for _, test := range []struct {
		collection, companion string
		broken                bool
	}{{"whole", "", false}, {"longer", "", true}, {"whole", "longer", true}} {
		r := config.Route{Policy: config.Policy{StoreName: "s", Collection: test.collection, Companion: test.companion}}
		if err := a.brokenCollection(r); (err != nil) != test.broken {
			t.Errorf("a route of %q and %q: %v", test.collection, test.companion, err)
		}
	}
	longer := config.Route{Policy: config.Policy{StoreName: "s", Collection: "whole", Companion: "longer"}}
	if err := a.reloadCollections(c, longer); err == nil || len(a.BrokenCollections()) != 1 {
		t.Errorf("reloaded without a change: %v, broken are %v", err, a.BrokenCollections())
	}
	if err := npy.WriteInts(at("ids.npy"), []int64{7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	if err := a.reloadCollections(c, longer); err != nil || len(a.BrokenCollections()) != 0 {
		t.Errorf("mended: %v, broken are %v", err, a.BrokenCollections())
	}
	if d, err := a.Stores["s"].(*embedded.Store).Describe(t.Context(), "longer"); err != nil || d.Rows != 3 {
		t.Errorf("mended: %d rows, %v", d.Rows, err)
	}
	if err := a.loadCollection(nil, "x", config.Collection{Vectors: at("gone")}); errors.Is(err, config.ErrConfig) {
		t.Errorf("a missing file is taken for an error of the configuration: %v", err)
	}
}
