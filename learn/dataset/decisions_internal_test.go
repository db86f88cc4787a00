package dataset

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
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

// TestAPageBeyondTheFile: a page header that the file does not hold cannot be read.
func TestAPageBeyondTheFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "short.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if h, err := (&parquetFile{file: file}).readPageHeader(0, 100); err == nil {
		t.Errorf("the header is %+v", h)
	}
}

// TestSpacesInARecord: a table that people look at has spaces around its cells.
func TestSpacesInARecord(t *testing.T) {
	text := "query , item, weight , time , seen , answer, position \n1, 2, 3 , 40 , true , a, 5 \n"
	counts := &Counts{}
	var got []entry
	if err := readCSV(strings.NewReader(text), counts, func(e entry) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	want := entry{line: 2, query: "1", item: "2", weight: 3, hasWeight: true, time: 40, hasTime: true, seen: true, answer: "a", position: 5}
	if len(got) != 1 || got[0] != want || counts.Ignored != nil {
		t.Errorf("%+v, ignored %q; want %+v", got, counts.Ignored, want)
	}
}

// TestLongLogs: only a record is limited in its length, not the log.
func TestLongLogs(t *testing.T) {
	const rows = 5 * maxRecord / 2 / 8
	n := 0
	count := func(entry) error { n++; return nil }
	if err := readCSV(strings.NewReader("query,item\n"+strings.Repeat("1234,56\n", rows)), &Counts{}, count); err != nil || n != rows {
		t.Errorf("%d of %d rows, %v", n, rows, err)
	}
	for _, text := range []string{"query,item\n1,\"2\n" + strings.Repeat("1234,56\n", rows), "query,\"item\n" + strings.Repeat("1234,56\n", rows)} {
		if err := readCSV(strings.NewReader(text), &Counts{}, count); err == nil || !strings.Contains(err.Error(), "is a quotation mark missing?") {
			t.Errorf("a record without an end: %v", err)
		}
	}
}

// TestTextsOfIDs: a string, and an integer as far as a store can have it.
func TestTextsOfIDs(t *testing.T) {
	for raw, want := range map[string]string{
		`"a b"`: "a b", `"7"`: "7", "7": "7", "-7": "-7", "18446744073709551615": "18446744073709551615", "-9223372036854775808": "-9223372036854775808",
		"18446744073709551616": "", "1.5": "", "1e3": "", "true": "", "{}": "", "null": "", "": "",
	} {
		if got, err := idText("item", json.RawMessage(raw)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", raw, got, err, want)
		}
	}
}

// TestWeightsThatVanish: a weight that float32 holds as 0 is none, and the pair is dropped as one.
func TestWeightsThatVanish(t *testing.T) {
	x := idIndex{column: columnItem, rows: 3}
	l := &pairLog{queries: x, items: x, byQuery: make([][]loggedItem, 3), counts: &Counts{}}
	for weight, ok := range map[float64]bool{1e-60: true, 0: true, math.MaxFloat32: true, -1: false, 1e39: false} {
		if err := l.addEntry(entry{query: "0", item: "1", weight: weight, hasWeight: true}); (err == nil) != ok {
			t.Errorf("weight %g: %v", weight, err)
		}
	}
	if l.counts.ZeroWeights != 2 || len(l.byQuery[0]) != 1 {
		t.Errorf("%d weights of 0, pairs %v", l.counts.ZeroWeights, l.byQuery[0])
	}
}

// TestAQueryWithoutAHistory keeps no pairs, and nothing that belongs to them.
func TestAQueryWithoutAHistory(t *testing.T) {
	d := &Dataset{
		Relevant: [][]int32{{1, 2}, {0}, nil}, Weights: [][]float32{{3, 4}, {5}, nil}, Asked: []float64{4, 5, 0}, Seen: [][]int32{{0}, {2}, nil},
		Counts: Counts{Pairs: 3, Seen: 2},
	}
	for _, q := range []int{0, 2} {
		d.dropPairs(q)
	}
	want := &Dataset{
		Relevant: [][]int32{nil, {0}, nil}, Weights: [][]float32{nil, {5}, nil}, Asked: []float64{0, 5, 0}, Seen: [][]int32{nil, {2}, nil},
		Counts: Counts{Pairs: 1, Seen: 1, NoHistory: 1},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v\nwant %+v", d, want)
	}
	empty := &Dataset{}
	if empty.dropPairs(0); empty.Counts.NoHistory != 1 {
		t.Errorf("without a log: %+v", empty.Counts)
	}
}

// TestSeenOfOtherVectors: a file most of whose rows name nothing that is known is refused.
func TestSeenOfOtherVectors(t *testing.T) {
	ids := []rerank.ID{rerank.TextID("a"), rerank.TextID("b")}
	for text, ok := range map[string]bool{"query,item\na,b\nx,b\n": true, "query,item\na,b\nx,b\na,y\n": false} {
		l := &pairLog{byQuery: make([][]loggedItem, 2), counts: &Counts{}}
		var err error
		if l.queries, err = newIDIndex(columnQuery, "q", 2, ids); err == nil {
			l.items, err = newIDIndex(columnItem, "i", 2, ids)
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "seen.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := l.readSeen(t.Context(), Sources{Seen: path}); (err == nil) != ok || err != nil && !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v", text, err)
		}
		if seen, err := ReadSeenIDs(t.Context(), path, 2, ids); err != nil || len(seen[0]) == 0 || seen[0][0] != "b" {
			t.Errorf("%q: %v, %v", text, seen, err)
		}
	}
}
