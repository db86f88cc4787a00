package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
)

// configure writes a configuration whose route has the plugin as its ranker.
func (f rankedFiles) configure(t *testing.T, version string) {
	t.Helper()
	text := fmt.Sprintf(`stores: {files: {kind: embedded, collections: {things: {vectors: dummy.npy, ids: ids.txt, payload: payload.jsonl}}}}
models: {m: {path: m.safetensors}}
plugins: {matrix: {path: %q, args: [%s, %q, %q]}}
rankers: {matrix: {plugin: matrix}}
routes: {things: {store: files, collection: things, model: m, ranker: matrix, table: things.table, strategy: scan}}
`, os.Args[0], asScorer, f.path("scores.npy"), version)
	if err := os.WriteFile(f.path("likeness.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := npy.Write(f.path("dummy.npy"), rerank.NewMatrix(f.scores.Rows, 2)); err != nil {
		t.Fatal(err)
	}
}

func (f rankedFiles) index(t *testing.T, more ...string) (built, result) {
	t.Helper()
	r := execute(t, "", append([]string{"index", "--config", f.path("likeness.yaml"), "--route", "things", "--output", "json"}, more...)...)
	var b built
	if r.code == 0 {
		if err := json.Unmarshal([]byte(r.out), &b); err != nil {
			t.Fatal(err, r.out)
		}
	}
	return b, r
}

// rowsOf returns the feature rows of a table by item.
func rowsOf(t *testing.T, path string) map[rerank.ID][]float32 {
	t.Helper()
	have, err := table.Open(path, table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	defer have.Close()
	all := map[rerank.ID][]float32{}
	for i := range have.Len() {
		row := make([]float32, have.Meta().Features)
		have.Row32(row, i)
		all[have.ID(i)] = row
	}
	return all
}

// TestIndexThroughARanker runs a fit with a plugin, and then builds a table with it. The build asks
// for no score that the fit has stored, and for all scores of items that changed since.
func TestIndexThroughARanker(t *testing.T) {
	f := newRankedFiles(t)
	f.configure(t, "1")
	fitted(t, f.fit("1", "--support-queries", "8", "--held-out", "0.1", "--out", f.path("m.safetensors")))
	b, r := f.index(t)
	if r.code != 0 || b.Asked.Asked != 0 || b.Asked.Kept != 50*8 || b.Table.Items != 50 {
		t.Fatalf("the first build: %+v\n%s", b.Asked, r.err)
	}
	fitted(t, []string{
		"fit", "rbe", "--scores", f.path("scores.npy"), "--item-ids", f.path("ids.txt"), "--queries", f.path("queries.jsonl"), "--out", f.path("matrix.safetensors"),
		"--supports", "6", "--hit-rates", "5:5", "--support-queries", "8", "--held-out", "0.1", "--base", f.path("base.npy"), "--output", "json",
	})
	if r := execute(t, "", "index", "--model", f.path("matrix.safetensors"), "--items", f.path("base.npy"), "--ids", f.path("ids.txt"),
		"--collection", "things", "--table", f.path("matrix.table")); r.code != 0 {
		t.Fatal(r.err)
	}
	got, want := rowsOf(t, f.path("things.table")), rowsOf(t, f.path("matrix.table"))
	for id, row := range want {
		if !slices.Equal(got[id], row) {
			t.Fatalf("item %s: %v, want %v", id, got[id], row)
		}
	}
	if _, r := f.index(t, "--verify"); r.code != 0 || !strings.Contains(r.out, `"changed": 0`) {
		t.Errorf("verify: code %d\n%s%s", r.code, r.out, r.err)
	}

	text, err := os.ReadFile(f.path("payload.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"row": 7,`, `"row": 8, "more": 1,`, 1)
	changed = strings.Replace(changed, `"title": "thing 9"`, `"title": "another"`, 1)
	if err := os.WriteFile(f.path("payload.jsonl"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, r := f.index(t, "--verify"); r.code != 1 || !strings.Contains(r.out, `"changed": 1`) || !strings.Contains(r.err, "1 rows have no scores") {
		t.Errorf("verify after a write: code %d\n%s%s", r.code, r.out, r.err)
	}
	if b, r := f.index(t, "--force", "--estimate"); r.code != 0 || b.Asked.Calls != 8 || b.Asked.Kept != 49*8 || b.Table != nil {
		t.Errorf("estimate: %+v\n%s", b.Asked, r.err)
	}
	if b, r := f.index(t, "--force"); r.code != 0 || b.Asked.Kept < 49*8 || b.Asked.Asked > 8 || b.Asked.Kept+b.Asked.Asked < 50*8 {
		t.Errorf("built again: %+v\n%s", b.Asked, r.err)
	}
	if got := rowsOf(t, f.path("things.table")); !slices.Equal(got[rerank.TextID("thing-7")], want[rerank.TextID("thing-8")]) {
		t.Error("the changed row is not what the ranker says now")
	}
	if _, r := f.index(t, "--verify", "--verify-all"); r.code != 0 {
		t.Errorf("verify after the build: %s%s", r.out, r.err)
	}
	if _, r := f.index(t, "--force", "--stored-scores"); r.code == 0 || !strings.Contains(r.err, "dimension 2") {
		t.Errorf("stored scores: code %d\n%s", r.code, r.err)
	}

	f.configure(t, "2")
	if _, r := f.index(t, "--force"); r.code != 2 || !strings.Contains(r.err, `fitted to ranker "matrix 1", and this is "matrix 2"`) {
		t.Errorf("another version: code %d\n%s", r.code, r.err)
	}
	if b, r := f.index(t, "--force", "--any-version", "--max-calls", "100"); r.code != 2 || !strings.Contains(r.err, "400 calls") || b.Table != nil {
		t.Errorf("more calls than permitted: code %d\n%s", r.code, r.err)
	}
	if b, r := f.index(t, "--force", "--any-version", "--cache", f.path("other"), "--calls-per-second", "100000"); r.code != 0 || b.Asked.Asked != 400 {
		t.Errorf("any version: %+v\n%s", b.Asked, r.err)
	}
}
