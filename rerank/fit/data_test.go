package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// A log repeats questions: equal vectors must not be on both sides.
func TestSplitNeverLeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := Data{Items: normal(rng, 10, 4), Queries: normal(rng, 300, 4)}
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
	p, err := prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	s := p.byQuery(0.3, 1)
	if len(s.held) < 30 || len(s.held)+len(s.train) != 300 {
		t.Errorf("%d queries held out, %d not", len(s.held), len(s.train))
	}
	side := map[int32]bool{}
	for _, q := range s.held {
		side[q%100] = true
	}
	for _, q := range s.train {
		if side[q%100] {
			t.Fatalf("query %d is on both sides", q%100)
		}
	}
	other := p.byQuery(0.3, 2)
	if len(other.held) > 0 && len(s.held) > 0 && other.held[0] == s.held[0] && other.held[1] == s.held[1] && other.held[2] == s.held[2] {
		t.Errorf("another seed gives the same split")
	}
}

func TestHeldOutItemsHaveNoPairs(t *testing.T) {
	p := toy(t, 60, 20, 4)
	s := p.byQuery(0.2, 1)
	seen := make([]bool, 20)
	for _, set := range p.byItem(0.2, 5, 1) {
		for _, pr := range p.pairs(s.train, set) {
			if set[pr.item] {
				t.Fatalf("item %d is held out and has a pair", pr.item)
			}
		}
		for x, in := range set {
			if in && seen[x] {
				t.Fatalf("item %d is in two sets", x)
			}
			seen[x] = seen[x] || in
		}
		c := &choice{work: &work{problem: p, split: s}}
		for _, q := range c.fresh(set) {
			for _, pr := range p.pairs(s.train, set) {
				if pr.query == q {
					t.Fatalf("query %d judges items that the fit has not seen, and was itself fitted", q)
				}
			}
		}
	}
}

func TestPrepareCountsAndRefuses(t *testing.T) {
	nan := float32(math.NaN())
	m := func(cols int, v ...float32) rerank.Matrix {
		return rerank.Matrix{Rows: len(v) / cols, Cols: cols, Data: v}
	}
	p, err := prepare(Data{
		Items: m(2, 1, 0, 0, 1, 0, 0), Queries: m(2, 3, 4, 0, 0, 1, 1, 1, 2),
		Relevant: [][]int32{{0, 1, 2}, {1}, nil, {1}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := Counts{Items: 3, LoggedItems: 2, Queries: 2, Pairs: 3, QueriesWithoutPairs: 1, ZeroQueries: 1, ZeroItems: 1, ZeroPairs: 2}
	if p.counts != want {
		t.Errorf("counted %+v, want %+v", p.counts, want)
	}
	for name, tc := range map[string]struct {
		d    Data
		want string
	}{
		"dimensions":  {Data{Items: m(2, 1, 0, 0, 1), Queries: m(1, 1), Relevant: [][]int32{{0}}}, "queries have 1 columns and items 2"},
		"one item":    {Data{Items: m(2, 1, 0), Queries: m(2, 1, 1), Relevant: [][]int32{{0}}}, "two items"},
		"no pairs":    {Data{Items: m(2, 1, 0, 0, 1), Queries: m(2, 1, 1), Relevant: [][]int32{nil}}, "name 0 items"},
		"a NaN":       {Data{Items: m(2, 1, 0, nan, 1), Queries: m(2, 1, 1), Relevant: [][]int32{{0, 1}}}, "items[1][0] is NaN"},
		"other pairs": {Data{Items: m(2, 1, 0, 0, 1), Queries: m(2, 1, 1)}, "pairs of 0 queries"},
	} {
		if _, err := prepare(tc.d, true); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want ErrData with %q", name, err, tc.want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		`form "cubic"`:       func(o *Options) { o.Form = "cubic" },
		"rank is 0":          func(o *Options) { o.Form, o.Rank = "low_rank", 0 },
		"held out is 1":      func(o *Options) { o.HeldOut = 1 },
		"items held out":     func(o *Options) { o.ColdShare = 0.7 },
		`cold "maybe"`:       func(o *Options) { o.Cold = "maybe" },
		"cannot be guarded":  func(o *Options) { o.Cold, o.ColdShare = ColdGuard, 0 },
		"needs form full":    func(o *Options) { o.Form, o.Reduce = "diagonal", 4 },
		"rank to cut to is ": func(o *Options) { o.Reduce = 9 },
		"energy is 2":        func(o *Options) { o.Energy = 2 },
		"scale -1":           func(o *Options) { o.Scale = -1 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.check(Data{Items: rerank.NewMatrix(2, 8)}); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrOption with %q", err, want)
		}
	}
}

// Ranks are those of a full sort: score descending, then row, and no relevant
// item stands in the way of another.
func TestJudge(t *testing.T) {
	p := toy(t, 50, 20, 4)
	copy(p.items.Row(3), p.items.Row(2)) // a tie
	queries := make([]int32, 50)
	for i := range queries {
		queries[i] = int32(i)
	}
	j := newJudge(p, queries, nil)
	for i, got := range j.reciprocal(plain) {
		rel := p.relevant[j.queries[i]]
		score := func(x int32) float64 { return inner(p.queries.Row(int(j.queries[i])), p.items.Row(int(x))) }
		want := 0.0
		for _, r := range rel {
			rank := 1.0
			for x := range int32(20) {
				other := !slices.Contains(rel, x)
				if d := score(x) - score(r); other && (d > 1e-7 || math.Abs(d) <= 1e-7 && x < r) {
					rank++
				}
			}
			if rank <= cutoff {
				want = max(want, 1/rank)
			}
		}
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("query %d: 1/rank is %g, want %g", i, got, want)
		}
	}
}
