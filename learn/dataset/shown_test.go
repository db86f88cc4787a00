package dataset_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/dataset"
)

// TestPositions: rows of one answer are a list in the order of their positions, in every format.
// What was shown and not chosen is no pair.
func TestPositions(t *testing.T) {
	f := newFolder(t)
	type row struct {
		Query    string  `parquet:"query" json:"query"`
		Item     int64   `parquet:"item" json:"item"`
		Answer   string  `parquet:"answer" json:"answer"`
		Position int32   `parquet:"position" json:"position"`
		Weight   float64 `parquet:"weight" json:"weight"`
		Time     int64   `parquet:"time" json:"time"`
	}
	path := f.file("shown.parquet", "")
	err := parquet.WriteFile(path, []row{
		{"1", 2, "a", 2, 1, 50}, {"1", 0, "a", 1, 0, 50}, {"0", 1, "b", 3, 0, 60}, {"1", 2, "a", 2, 4, 55},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []clicks.Answer{
		{Query: 1, Items: []int32{0, 2}, Positions: []int32{1, 2}, Weights: []float32{0, 5}, Time: 55},
		{Query: 0, Items: []int32{1}, Positions: []int32{3}, Weights: []float32{0}, Time: 60},
	}
	items, queries := f.matrix("items.npy", 3), f.matrix("queries.npy", 2)
	for _, log := range []string{
		path,
		f.file("shown.csv", "query,item,answer,position,weight,time\n1,2,a,2,1,50\n1,0,a,1,0,50\n0,1,b,3,0,60\n1,2,a,2,4,55\n"),
		f.file("shown.jsonl", `{"query":1,"item":2,"answer":"a","position":2,"weight":1,"time":50}
{"query":1,"item":0,"answer":"a","position":1,"weight":0,"time":50}
{"query":0,"item":1,"answer":"b","position":3,"weight":0,"time":60}
{"query":1,"item":2,"answer":"a","position":2,"weight":4,"time":55}`),
	} {
		d := open(t, dataset.Sources{Items: items, Queries: queries, Pairs: log, RowPerTime: true})
		if !reflect.DeepEqual(d.Answers, want) {
			t.Errorf("%s: answers %v, want %v", log, d.Answers, want)
		}
		if !reflect.DeepEqual(d.Relevant, [][]int32{{}, {2}}) || d.Weights[1][0] != 5 || d.Counts.Shown != 2 || d.Counts.ZeroWeights != 0 {
			t.Errorf("%s: pairs %v of weights %v; %d shown, %d of weight 0", log, d.Relevant, d.Weights, d.Counts.Shown, d.Counts.ZeroWeights)
		}
	}
}

func TestPositionsRefused(t *testing.T) {
	f := newFolder(t)
	items, queries := f.matrix("items.npy", 3), f.matrix("queries.npy", 2)
	for text, want := range map[string]string{
		"query,item,position\n1,2,1\n":                       "names in a column \"answer\"",
		"query,item,answer,position\n1,2,a,0\n":              "position is 0; want 1 to 1000",
		"query,item,answer,position\n1,2,a,first\n":          "line 2: position \"first\" is not an integer",
		"query,item,answer,position\n1,2,a,1\n0,2,a,2\n":     "answer \"a\" is of two queries",
		"query,item,answer,position\n1,2,a,1\n1,1,a,1\n":     "shows item rows 2 and 1 at position 1",
		"query,item,answer,position\n1,2,a,1\n1,1,a,\n":      "some rows have a position and some have none",
		"query,item,answer,position\n1,2,a,\n1,1,b,2\n":      "some rows have a position and some have none",
		"query,item,answer,position\n1,2,a,100000000000\n":   "want 1 to 1000",
		"query,item,answer,position\n1,2,a,1\n1,1,a,2.5\n":   "line 3: position \"2.5\"",
		"query,item,answer,position,weight\n1,2,a,1,\"0\"\n": "no pair is left",
	} {
		_, err := dataset.Open(t.Context(), dataset.Sources{Items: items, Queries: queries, Pairs: f.file("log.csv", text)})
		if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want ErrInput with %q, have: %v", text, want, err)
		}
	}
}
