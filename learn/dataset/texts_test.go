package dataset_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// lengths is an embedder whose vectors are the lengths of the texts.
type lengths struct {
	calls  int
	failed error // of every call
}

func (l *lengths) Embed(_ context.Context, texts []string, _ ...string) ([][]float32, error) {
	l.calls++
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = []float32{float32(len(text)), 1}
	}
	return vectors, l.failed
}

func textFile(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queries.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTexts: lines of text become rows in their order, with their ids or their texts as ids.
func TestTexts(t *testing.T) {
	text := rerank.TextID
	for name, tc := range map[string]struct {
		lines string
		ids   []rerank.ID
		rows  []float32
	}{
		"ids":      {"{\"query\": \"abc\", \"id\": \"x\"}\n\n{\"id\": 7, \"query\": \"abc\", \"more\": {}}\n", []rerank.ID{text("x"), text("7")}, []float32{3, 1, 3, 1}},
		"the text": {"{\"query\": \"abc\"}\n{\"query\": \"de\", \"item\": 3}\n{\"query\": \"abc\", \"item\": 4}", []rerank.ID{text("abc"), text("de")}, []float32{3, 1, 2, 1}},
	} {
		v, err := dataset.OpenQueries(t.Context(), textFile(t, tc.lines), &lengths{}, nil)
		if err != nil || !reflect.DeepEqual(v.IDs, tc.ids) || !reflect.DeepEqual(v.Data, tc.rows) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	many := &lengths{}
	var lines strings.Builder
	for i := range 1000 {
		lines.WriteString(`{"query": "` + strings.Repeat("a", i+1) + "\"}\n")
	}
	if v, err := dataset.OpenQueries(t.Context(), textFile(t, lines.String()), many, nil); err != nil || v.Rows != 1000 || v.Row(999)[0] != 1000 || many.calls != 4 {
		t.Errorf("%+v after %d calls, %v", v, many.calls, err)
	}
	for lines, want := range map[string]string{
		"":                  "there is nothing in it",
		"{\"query\": \"\"}": "line 1: query is \"\"",
		"{\"query\": 5}":    "line 1: query is 5; want text",
		"{\"text\": \"a\"}": "want text",
		"[1]":               "line 1: not a JSON object",
		"{\"query\": \"a\"}\n{\"query\": \"b\", \"id\": 1}": "line 2: some lines have an id",
		"{\"query\": \"a\", \"id\": 1}\n{\"query\": \"b\"}": "line 2: some lines have an id",
		"{\"query\": \"a\", \"id\": 1.5}":                   "an id is a string or an integer",
	} {
		if _, err := dataset.OpenQueries(t.Context(), textFile(t, lines), &lengths{}, nil); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", lines, err, want)
		}
	}
	if _, err := dataset.OpenQueries(t.Context(), textFile(t, "{\"query\": \"a\"}"), nil, nil); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), "an embedder makes vectors") {
		t.Errorf("no embedder: %v", err)
	}
	if v, err := dataset.OpenQueries(t.Context(), textFile(t, "{\"query\": \"a\"}"), &lengths{failed: os.ErrDeadlineExceeded}, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an embedder that fails: %+v, %v", v, err)
	}
}

// TestLogsOfTexts: a log that names queries by their text is its own file of queries.
func TestLogsOfTexts(t *testing.T) {
	log := textFile(t, "{\"query\": \"abc\", \"item\": 1}\n{\"query\": \"de\", \"item\": 0}\n{\"query\": \"abc\", \"item\": 0}\n")
	items := filepath.Join(t.TempDir(), "items.npy")
	if err := npy.Write(items, rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(t.Context(), dataset.Sources{Items: items, Queries: log, Pairs: log, Embedder: &lengths{}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if want := [][]int32{{0, 1}, {0}}; !reflect.DeepEqual(d.Relevant, want) || d.Counts.UnknownQueries != 0 {
		t.Errorf("pairs %v, want %v; %+v", d.Relevant, want, d.Counts)
	}
	if digests, err := d.Digests(); err != nil || !strings.HasPrefix(digests["queries"], "queries.jsonl sha256:") {
		t.Errorf("%v, %v", digests, err)
	}
}
