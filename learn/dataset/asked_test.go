package dataset_test

import (
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

func written(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReadAsked: the same queries from lines, a table and vectors, also where an editor marked the file as Unicode.
func TestReadAsked(t *testing.T) {
	want := &dataset.Asked{
		IDs: []rerank.ID{rerank.UintID(7), rerank.TextID("b"), rerank.UintID(2)},
		Queries: []rerank.Query{
			{Text: "a, \"b\"", UserID: -3, HasUserID: true, Context: map[string]float32{"hour": 0.5}},
			{Text: "c", Vector: []float32{1, -2.5}}, {Vector: []float32{0, 1}},
		},
		Ignored: []string{"more"},
	}
	for name, text := range map[string]string{
		"q.jsonl": "\ufeff" + `{"id":7,"text":"a, \"b\"","user_id":-3,"context":{"hour":0.5}}` + "\n\n" + `{"id":"b","text":"c","vector":[1,-2.5],"more":1}` + "\n" + `{"vector":[0,1]}`,
		"q.csv":   "\ufeffid,text,user_id,context,vector,more\n7,\"a, \"\"b\"\"\",-3,\"{\"\"hour\"\":0.5}\",,x\nb,c,,,\"[1,-2.5]\",\n,,,,\"[0,1]\",\n",
	} {
		got, err := dataset.ReadAsked(t.Context(), written(t, name, text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v\nwant %+v", name, err, got, want)
		}
	}
	path := filepath.Join(t.TempDir(), "q.npy")
	if err := npy.Write(path, rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{3, 4}}); err != nil {
		t.Fatal(err)
	}
	if got, err := dataset.ReadAsked(t.Context(), path); err != nil || len(got.Queries) != 2 || got.Queries[1].Vector[0] != 4 || got.IDs[1] != rerank.UintID(1) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := dataset.ReadAsked(t.Context(), filepath.Join("testdata", "list_float.parquet")); err != nil || !reflect.DeepEqual(got.IDs, []rerank.ID{rerank.UintID(7), rerank.UintID(8), rerank.UintID(9)}) {
		t.Errorf("of a file with ids: %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		`{"id":1}`: "neither a text", `[1]`: "line 1: want a JSON object", "": "no query", `{"text":"a","vector":["x"]}`: "line 1",
	} {
		if _, err := dataset.ReadAsked(t.Context(), written(t, "q.jsonl", text)); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "the first line", "text,text\na,b\n": "twice", "text,vector\na,x\n": "line 2: vector", "text\n": "no query",
	} {
		if _, err := dataset.ReadAsked(t.Context(), written(t, "q.csv", text)); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestReadPayloads(t *testing.T) {
	if rows, err := dataset.ReadPayloads(written(t, "p.jsonl", "{\"a\":1}\n{}\n")); err != nil || len(rows) != 2 || string(rows[0]) != `{"a":1}` {
		t.Errorf("%q, %v", rows, err)
	}
	if _, err := dataset.ReadPayloads(written(t, "p.jsonl", "{}\n\n{}\n")); !errors.Is(err, dataset.ErrInput) {
		t.Errorf("%v, want ErrInput", err)
	}
}

// FuzzReadAsked: whatever a file holds, its queries are whole or it is ErrInput.
func FuzzReadAsked(f *testing.F) {
	f.Add(`{"id":7,"text":"a","vector":[1]}`, true)
	f.Add("id,text,vector\n1,a,\"[1]\"\n", false)
	f.Fuzz(func(t *testing.T, text string, lines bool) {
		name := "q.csv"
		if lines {
			name = "q.jsonl"
		}
		a, err := dataset.ReadAsked(t.Context(), written(t, name, text))
		if err != nil {
			if !errors.Is(err, dataset.ErrInput) {
				t.Fatalf("%v is not ErrInput", err)
			}
			return
		}
		if len(a.IDs) != len(a.Queries) || len(a.IDs) == 0 {
			t.Fatalf("%d ids of %d queries", len(a.IDs), len(a.Queries))
		}
		for i, q := range a.Queries {
			if a.IDs[i].IsZero() || q.Text == "" && len(q.Vector) == 0 {
				t.Fatalf("query %d: %+v", i, q)
			}
		}
	})
}
