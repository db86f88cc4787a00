package dataset_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/dataset"
)

// fuzzLog holds what a log becomes to what a dataset promises.
func fuzzLog(f *testing.F, name string) {
	f.Helper()
	f.Fuzz(func(t *testing.T, text string, ids bool) {
		dir := newFolder(t)
		s := dir.sources(name, text)
		s.RowPerTime = len(text)%2 == 0
		if len(text)%3 == 0 {
			s.Seen = s.Pairs
		}
		if ids {
			s.ItemIDs, s.QueryIDs = dir.file("ids.txt", "a\n1\nc\n"), dir.file("queries.txt", "0\nx\n")
		}
		d, err := dataset.Open(t.Context(), s)
		if err != nil {
			if !errors.Is(err, dataset.ErrInput) {
				t.Fatalf("%q: %v is not ErrInput", text, err)
			}
			return
		}
		defer d.Close()
		checkDataset(t, d)
	})
}

func checkDataset(t *testing.T, d *dataset.Dataset) {
	t.Helper()
	if len(d.Relevant) != d.Queries.Rows || d.Weights != nil && len(d.Weights) != d.Queries.Rows || d.Times != nil && len(d.Times) != d.Queries.Rows {
		t.Fatalf("%d queries, pairs of %d", d.Queries.Rows, len(d.Relevant))
	}
	for q, items := range d.Seen {
		for i, x := range items {
			if _, chosen := slices.BinarySearch(d.Relevant[q], x); chosen || x < 0 || int(x) >= d.Items.Rows || i > 0 && x <= items[i-1] {
				t.Fatalf("before query %d the items %v were seen, and %v were chosen", q, items, d.Relevant[q])
			}
		}
	}
	pairs := 0
	for q, items := range d.Relevant {
		pairs += len(items)
		for i, x := range items {
			if x < 0 || int(x) >= d.Items.Rows || i > 0 && x <= items[i-1] {
				t.Fatalf("query %d has the items %v", q, items)
			}
		}
		if d.Weights != nil && (len(d.Weights[q]) != len(items) || slices.ContainsFunc(d.Weights[q], func(w float32) bool { return !(w > 0) || w-w != 0 })) {
			t.Fatalf("query %d has the weights %v of %v", q, d.Weights[q], items)
		}
	}
	c := d.Counts
	if c.Pairs != pairs || pairs == 0 || c.Rows != c.Pairs+c.DuplicatePairs+c.UnknownItems+c.UnknownQueries+c.ZeroWeights {
		t.Fatalf("%d pairs, counts %+v do not add up", pairs, c)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("query,item\n0,1\n1,2\n0,1\n", false)
	f.Add("query,item,weight,time\n0,a,0.5,2026-01-31T12:00:00Z\n\"x\",c,,1769860800\nx,a,2,1769860800000\n", true)
	f.Add("\ufeffitem,query,note\r\n1,0,\"a \"\"b\"\"\nc\"\r\n", false)
	fuzzLog(f, "log.csv")
}

func FuzzJSONL(f *testing.F) {
	f.Add(`{"query":0,"item":"1","weight":2,"time":1769860800}`+"\n", false)
	f.Add(`{"query":"x","item":"a","page":[1,{"a":null}]}`+"\n\n"+`{"query":0,"item":1,"weight":null}`, true)
	fuzzLog(f, "log.jsonl")
}

func FuzzParquet(f *testing.F) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		readDamaged(t, filepath.Join(t.TempDir(), "m.parquet"), b)
	})
}
