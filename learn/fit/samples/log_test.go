package samples

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
)

// A log repeats questions: equal vectors must not be on both sides.
func TestSplitNeverLeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := fit.Data{Items: fittest.NormalMatrix(rng, 10, 4), Queries: fittest.NormalMatrix(rng, 300, 4)}
	for q := range d.Queries.Rows {
		if q >= 100 { // each of the first hundred is asked three times, at any length
			row := d.Queries.Row(q)
			copy(row, d.Queries.Row(q%100))
			for i := range row {
				row[i] *= float32(int(1) << (q / 100))
			}
		}
		d.Relevant = append(d.Relevant, []int32{int32(q % 10)})
	}
	p, err := Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	s := p.splitByQuery(0.3, 1)
	if len(s.HeldOut) < 30 || len(s.HeldOut)+len(s.Train) != 300 {
		t.Errorf("%d queries held out, %d not", len(s.HeldOut), len(s.Train))
	}
	side := map[int32]bool{}
	for _, q := range s.HeldOut {
		side[q%100] = true
	}
	for _, q := range s.Train {
		if side[q%100] {
			t.Fatalf("query %d is on both sides", q%100)
		}
	}
	other := p.splitByQuery(0.3, 2)
	if len(other.HeldOut) > 0 && len(s.HeldOut) > 0 && other.HeldOut[0] == s.HeldOut[0] && other.HeldOut[1] == s.HeldOut[1] && other.HeldOut[2] == s.HeldOut[2] {
		t.Errorf("another seed gives the same split")
	}
}

func TestHeldOutItemsHaveNoPairs(t *testing.T) {
	p, err := Prepare(fittest.RandomData(60, 20, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	s := p.splitByQuery(0.2, 1)
	seen := make([]bool, 20)
	for _, set := range p.HoldOutItems(0.2, 5, 1) {
		for _, pr := range p.Pairs(s.Train, set) {
			if set[pr.Item] {
				t.Fatalf("item %d is held out and has a pair", pr.Item)
			}
		}
		for x, in := range set {
			if in && seen[x] {
				t.Fatalf("item %d is in two sets", x)
			}
			seen[x] = seen[x] || in
		}
		for _, q := range p.UnseenQueries(s, set) {
			for _, pr := range p.Pairs(s.Train, set) {
				if pr.Query == q {
					t.Fatalf("query %d judges items that the fit has not seen, and was itself fitted", q)
				}
			}
		}
	}
}

// TestTrainingPairsHideHeldOutQuestions: where items are questions, an item with the vector
// of a held-out question is not learned as anybody's answer: what is learned of the item
// would be learned of the question.
func TestTrainingPairsHideHeldOutQuestions(t *testing.T) {
	items := rerank.Matrix{Rows: 4, Cols: 2, Data: []float32{1, 0, 0, 1, -1, 0, 0, -1}}
	l, err := Prepare(fit.Data{
		Items: items, Queries: rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 0.6, 0.8}},
		Relevant: [][]int32{{1}, {0, 2}, {0, 3}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	s := Split{Train: []int32{1, 2}, HeldOut: []int32{0}}
	want := []Pair{{Query: 1, Item: 2, Weight: 1}, {Query: 2, Item: 3, Weight: 1}}
	if got := l.TrainingPairs(s, nil); !slices.Equal(got, want) {
		t.Errorf("a fit learns from %v, want %v: item 0 is held-out question 0", got, want)
	}
	if got := l.TrainingPairs(s, []bool{false, false, true, false}); !slices.Equal(got, want[1:]) {
		t.Errorf("without item 2 a fit learns from %v, want %v", got, want[1:])
	}
	s.HeldOut, s.Train = s.Train, s.HeldOut
	if got := l.TrainingPairs(s, nil); len(got) != 1 {
		t.Errorf("where every pair would be hidden a fit learns from %v, want the pair of question 0", got)
	}
}

// TestSplitByTimeNeverLeaks: a question of the held-out period that was asked before the
// period neither teaches nor judges.
func TestSplitByTimeNeverLeaks(t *testing.T) {
	l, err := Prepare(fit.Data{
		Items:    rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}},
		Queries:  rerank.Matrix{Rows: 6, Cols: 2, Data: []float32{3, 4, 1, 2, 4, 3, 6, 8, 5, 1, 5, 1}},
		Relevant: [][]int32{{0}, {1}, {0}, {0}, {1}, {1}},
		Times:    []int64{10, 11, 12, 20, 21, 21},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	s := l.splitByTime(0.5)
	if !slices.Equal(s.Train, []int32{0, 1, 2}) || !slices.Equal(s.HeldOut, []int32{4, 5}) || !slices.Equal(s.Straddling, []int32{3}) {
		t.Errorf("%+v, want queries 0 to 2 to learn from, 4 and 5 held out, and 3, which repeats 0, on neither side", s)
	}
	c := fit.DefaultCommon()
	c.HeldOut, c.SplitBy = 0.5, fit.ByTime
	if _, err := l.Split(c); err != nil || l.Counts.StraddlingQueries != 1 || l.Counts.StraddlingPairs != 1 || l.Counts.HeldOutQueries != 2 {
		t.Errorf("%v: %+v", err, l.Counts)
	}
}

func TestPrepareCountsAndRefuses(t *testing.T) {
	nan := float32(math.NaN())
	m := func(cols int, v ...float32) rerank.Matrix {
		return rerank.Matrix{Rows: len(v) / cols, Cols: cols, Data: v}
	}
	p, err := Prepare(fit.Data{
		Items: m(2, 1, 0, 0, 1, 0, 0), Queries: m(2, 3, 4, 0, 0, 1, 1, 1, 2),
		Relevant: [][]int32{{0, 1, 2}, {1}, nil, {1}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := fit.Counts{Items: 3, LoggedItems: 2, Queries: 2, Pairs: 3, QueriesWithoutPairs: 1, ZeroQueries: 1, ZeroItems: 1, ZeroPairs: 2}
	if p.Counts != want {
		t.Errorf("counted %+v, want %+v", p.Counts, want)
	}
	for name, tc := range map[string]struct {
		d    fit.Data
		want string
	}{
		"no columns":  {fit.Data{Items: m(2, 1, 0, 0, 1), Queries: rerank.Matrix{Rows: 1}, Relevant: [][]int32{{0}}}, "1 queries of dimension 0"},
		"one item":    {fit.Data{Items: m(2, 1, 0), Queries: m(2, 1, 1), Relevant: [][]int32{{0}}}, "two items"},
		"no pairs":    {fit.Data{Items: m(2, 1, 0, 0, 1), Queries: m(2, 1, 1), Relevant: [][]int32{nil}}, "name 0 items"},
		"a NaN":       {fit.Data{Items: m(2, 1, 0, nan, 1), Queries: m(2, 1, 1), Relevant: [][]int32{{0, 1}}}, "items[1][0] is NaN"},
		"other pairs": {fit.Data{Items: m(2, 1, 0, 0, 1), Queries: m(2, 1, 1)}, "pairs of 0 queries"},
	} {
		if _, err := Prepare(tc.d, true); !errors.Is(err, fit.ErrData) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want fit.ErrData with %q", name, err, tc.want)
		}
	}
}

// At most so many pairs of each query are drawn, in order, and all are drawn by some seed.
func TestDrawPairs(t *testing.T) {
	var pairs []Pair
	for q := range int32(3) {
		for x := range 2 + 4*q {
			pairs = append(pairs, Pair{Query: q, Item: x, Weight: 1})
		}
	}
	if all := DrawPairs(pairs, 0, 1); len(all) != len(pairs) {
		t.Errorf("%d of %d pairs without a bound", len(all), len(pairs))
	}
	seen := map[Pair]bool{}
	for seed := range uint64(100) {
		drawn := DrawPairs(pairs, 3, seed)
		if starts := PairStarts(drawn); len(drawn) != 2+3+3 || len(starts) != 4 || starts[1] != 2 || starts[2] != 5 {
			t.Fatalf("seed %d drew %v", seed, drawn)
		}
		for _, p := range drawn {
			seen[p] = true
		}
	}
	if len(seen) != len(pairs) {
		t.Errorf("%d of %d pairs were ever drawn", len(seen), len(pairs))
	}
}

// TestTrafficOfTheLog: the log's own count goes before the weights of its pairs, of which the greatest counts.
func TestTrafficOfTheLog(t *testing.T) {
	l := &Log{Relevant: [][]int32{{0, 1}, {1}}, Weights: [][]float32{{2, 5}, {3}}}
	if got := [3]float64{l.AskedOf(0), l.AskedOf(1), l.AskedInAll([]int32{0, 1})}; got != [3]float64{5, 3, 8} {
		t.Errorf("by weights the queries were asked %v times", got)
	}
	l.Asked = []float64{7, 1}
	if got := [3]float64{l.AskedOf(0), l.AskedOf(1), l.AskedInAll([]int32{0, 1})}; got != [3]float64{7, 1, 8} {
		t.Errorf("by the log the queries were asked %v times", got)
	}
	if l.Weights = nil; l.AskedOf(0) != 7 {
		t.Errorf("without weights query 0 was asked %v times", l.AskedOf(0))
	}
}

// A query that came twice, in one row or in two, is repeated traffic; one that came once is not.
func TestRepeatShare(t *testing.T) {
	l, err := PrepareUnscaled(fit.Data{
		Items:    rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}},
		Queries:  rerank.Matrix{Rows: 6, Cols: 2, Data: []float32{1, 1, 1, 2, 1, 2, 1, 3, 1, 4, 1, 5}},
		Relevant: [][]int32{{0}, {0}, {1}, {1}, {0, 1}, nil},
		Weights:  [][]float32{{1}, {1}, {1}, {5}, {1, 1}, nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Of 9 questions 2 came once: (1, 1) and (1, 4), which chose two items.
	if got := l.RepeatShare(); !(math.Abs(got-7./9) <= 1e-12) {
		t.Errorf("%g of the traffic repeats, want 7/9", got)
	}
}
