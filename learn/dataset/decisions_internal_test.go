package dataset

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestRowsOfALog: row numbers of the matrix and no others; one weight makes a log weighted.
func TestRowsOfALog(t *testing.T) {
	x := idIndex{column: columnItem, rows: 3}
	for text, ok := range map[string]bool{"0": true, "3": false, "-1": false, "x": false, "": false} {
		if _, err := x.parseRow(text); (err == nil) != ok {
			t.Errorf("row %q of three: %v", text, err)
		}
	}
	if row, err := x.parseRow(" 2 "); row != 2 || err != nil {
		t.Errorf("a row between spaces is %d, %v", row, err)
	}
	l := &pairLog{queries: x, items: x, byQuery: make([][]loggedItem, 3), counts: &Counts{}}
	for _, e := range []entry{{query: "0", item: "1", weight: 5, hasWeight: true}, {query: "0", item: "2"}} {
		if err := l.addEntry(e); err != nil {
			t.Fatal(err)
		}
	}
	if !l.weighted || !slices.Equal(l.byQuery[0], []loggedItem{{item: 1, weight: 5}, {item: 2, weight: 1}}) {
		t.Errorf("weighted: %t, %v", l.weighted, l.byQuery[0])
	}
}

// TestAQueryPerTime: each keeps the id and the user of the query that it was.
func TestAQueryPerTime(t *testing.T) {
	a, b := rerank.TextID("a"), rerank.TextID("b")
	d := &Dataset{Queries: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{1, 2}}, QueryIDs: []rerank.ID{a, b}, UserIDs: []int64{7, 8}}
	defer d.Close()
	l := &pairLog{byQuery: [][]loggedItem{{{item: 0, weight: 1, time: 2}, {item: 1, weight: 1, time: 1}}, {{item: 0, weight: 1, time: 5}}}, counts: &Counts{}}
	if err := l.splitByTime(d); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.QueryIDs, []rerank.ID{a, a, b}) || !slices.Equal(d.UserIDs, []int64{7, 7, 8}) || !slices.Equal(d.Queries.Data, []float32{1, 1, 2}) || l.byQuery[0][0].item != 1 {
		t.Errorf("ids %v, users %v, vectors %v, pairs %v", d.QueryIDs, d.UserIDs, d.Queries.Data, l.byQuery)
	}
}

// TestPopularityIsOfWeights, where the log has them. An item that was only seen is no more popular for it.
func TestPopularityIsOfWeights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.csv")
	if err := os.WriteFile(path, []byte("query,item,weight,seen\n0,1,5,\n9,1,2,0\n0,2,1,\n0,0,,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (&Dataset{Items: rerank.NewMatrix(3, 1)}).Popularity(t.Context(), path)
	if err != nil || !slices.Equal(got, []float64{0, 7, 1}) {
		t.Errorf("popularity %v, %v", got, err)
	}
}

// TestDigestOfALog: it is the file's, whole, in whatever pieces it is read.
func TestDigestOfALog(t *testing.T) {
	for _, name := range []string{"log.csv", "log.jsonl"} {
		path := filepath.Join(t.TempDir(), name)
		text := map[string]string{"log.csv": "query,item\n0,1\n2,3", "log.jsonl": `{"query":0,"item":1}`}[name]
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readLog(t.Context(), path, &Counts{}, func(entry) error { return nil })
		want, failed := FileDigest(path)
		if got != want || err != nil || failed != nil {
			t.Errorf("%s: digest %q, %v; want that of the file, %q, %v", name, got, err, want, failed)
		}
	}
}
