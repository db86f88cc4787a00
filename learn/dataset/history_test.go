package dataset_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/learn/dataset"
)

// TestHistory: a query is the mean of the items that it had before the time of each of its rows,
// which are seen items. The items are (1, 2), (3, 4) and (5, 6).
func TestHistory(t *testing.T) {
	const timed = "query,item,time\nx,0,5\ny,2,1\nx,1,8\n"
	root := math.Sqrt(.5)
	for name, c := range map[string]struct {
		history, log string
		of           dataset.History
		want         [][2]float64 // a vector a row; 0, 0: none
		seen         [][]int32
		unknown      int
		unasked      int // rows without pairs
	}{
		"each time has its own": {
			history: timed, log: "query,item,time\nx,2,7\nx,2,9\ny,0,3\n",
			want: [][2]float64{{1, 2}, {2, 3}, {5, 6}}, seen: [][]int32{{0}, {0, 1}, {2}},
		},
		"what is later does not count": {
			history: timed, log: "query,item,time\nx,2,5\ny,0,3\n",
			want: [][2]float64{{0, 0}, {5, 6}}, seen: [][]int32{nil, {2}},
		},
		"half-life": {
			history: timed, log: "query,item,time\nx,2,9\ny,0,3\n", of: dataset.History{HalfLife: 2 * time.Second},
			want: [][2]float64{{(.25 + 3*root) / (.25 + root), (.5 + 4*root) / (.25 + root)}, {5, 6}}, seen: [][]int32{{0, 1}, {2}},
		},
		"weights, and unknown items": {
			history: "query,item,weight\nx,0,3\nx,1,1\nx,7,9\n", log: "query,item\nx,2\n",
			want: [][2]float64{{1.5, 2.5}}, seen: [][]int32{{0, 1}}, unknown: 1,
		},
		"without times the answer is not in the question": {
			history: "query,item\nx,0\nx,1\n", log: "query,item\nx,1\n",
			want: [][2]float64{{1, 2}}, seen: [][]int32{{0}},
		},
		"a query that the log lacks": {
			history: timed, log: "query,item,time\nx,2,9\n",
			want: [][2]float64{{2, 3}, {0, 0}}, seen: [][]int32{{0, 1}, nil}, unasked: 1,
		},
		"kept among the answers": {
			history: timed, log: "query,item,time\nx,2,9\ny,0,3\n", of: dataset.History{Keep: true},
			want: [][2]float64{{2, 3}, {5, 6}},
		},
		"unit vectors": {
			history: "query,item\nx,0\nx,1\n", log: "query,item\nx,2\n", of: dataset.History{Unit: true},
			want: [][2]float64{{(1/math.Sqrt(5) + .6) / 2, (2/math.Sqrt(5) + .8) / 2}}, seen: [][]int32{{0, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			s := f.sources("log.csv", c.log)
			s.Queries, s.ItemIDs, s.History = "", f.file("items.txt", "0\n1\n2\n"), c.of
			s.History.Path = f.file("history.csv", c.history)
			d := open(t, s)
			none := 0
			for q, want := range c.want {
				got := d.Queries.Row(q)
				if !(math.Abs(float64(got[0])-want[0]) <= 1e-6) || !(math.Abs(float64(got[1])-want[1]) <= 1e-6) {
					t.Errorf("row %d is %v, want %v", q, got, want)
				}
				if c.seen != nil && !slices.Equal(d.Seen[q], c.seen[q]) {
					t.Errorf("before row %d %v were seen, want %v", q, d.Seen[q], c.seen[q])
				}
				if want == [2]float64{} {
					none++
				}
				if (want == [2]float64{}) != (len(d.Relevant[q]) == 0) {
					t.Errorf("row %d has the pairs %v", q, d.Relevant[q])
				}
			}
			pairs := 0
			for _, items := range d.Relevant {
				pairs += len(items)
			}
			if d.Queries.Rows != len(c.want) || len(d.QueryIDs) != len(c.want) || c.seen == nil && d.Seen != nil || d.Counts.NoHistory != none-c.unasked || d.Counts.Pairs != pairs || d.Counts.UnknownHistory != c.unknown {
				t.Errorf("%d rows, counts %+v", d.Queries.Rows, d.Counts)
			}
		})
	}
}

// TestHistoryRefusals: a history that cannot make queries is refused, with the remedy.
func TestHistoryRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"query,item\n":                   "there is no item",
		"query,item\nx,8\nx,9\nx,0\n":    "2 of 3 rows",
		"query,item\nx,0\n":              "a half-life needs the time",
		"query,item,weight\nx,0,-1\n":    "weight is -1",
		"query,item,time\nx,0,1\nx,1,\n": "time",
	} {
		f := newFolder(t)
		s := f.sources("log.csv", "query,item\nx,0\n")
		s.Queries, s.ItemIDs = "", f.file("items.txt", "0\n1\n2\n")
		s.History = dataset.History{Path: f.file("history.csv", text), HalfLife: time.Hour}
		if _, err := dataset.Open(t.Context(), s); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	f := newFolder(t)
	s := f.sources("log.csv", "query,item\nx,0\n")
	s.Queries, s.ItemIDs = "", f.file("items.txt", "0\n1\n2\n")
	s.History.Path = f.file("history.csv", "query,item\nx,0\n")
	if _, err := dataset.Open(t.Context(), s); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), "no query had an item") {
		t.Errorf("a history of the chosen items alone: %v", err)
	}
	f = newFolder(t)
	s = f.sources("log.csv", "query,item\nx,0\n")
	s.History.Path = f.file("history.csv", "query,item\nx,1\n")
	if _, err := dataset.Open(t.Context(), s); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), "leave out other queries") {
		t.Errorf("queries beside a history: %v", err)
	}
}
