package samples

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/rerank"
)

func matrix(cols int, v ...float32) rerank.Matrix {
	return rerank.Matrix{Rows: len(v) / cols, Cols: cols, Data: v}
}

// TestScale: rows of norm 1, or of a mean square norm of 1, in a copy.
func TestScale(t *testing.T) {
	m := matrix(2, 3, 4, 0, 0, 6, 8)
	for unit, want := range map[bool][]float32{true: {0.6, 0.8, 0, 0, 0.6, 0.8}, false: {0.464758, 0.619677, 0, 0, 0.929516, 1.239355}} {
		forgotten := 0
		got, isZero, err := Scale("items", m, unit, func() { forgotten++ })
		if forgotten == 0 {
			t.Error("the memory of the original is kept")
		}
		if err != nil || !slices.Equal(isZero, []bool{false, true, false}) {
			t.Fatal(isZero, err)
		}
		for i, x := range got.Data {
			if !(math.Abs(float64(x-want[i])) <= 1e-5) {
				t.Errorf("unit %t: scaled to %v, want %v", unit, got.Data, want)
				break
			}
		}
	}
	if !slices.Equal(m.Data, []float32{3, 4, 0, 0, 6, 8}) {
		t.Errorf("the data became %v", m.Data)
	}
	units := matrix(2, 0.6, 0.8, 1, 0)
	if got, isZero, err := Scale("items", units, true, nil); err != nil || &got.Data[0] != &units.Data[0] || !slices.Equal(isZero, []bool{false, false}) {
		t.Errorf("unit rows were copied: %v %v, %v", got, isZero, err)
	}
	if got := RootMeanSquareNorm(m); !(math.Abs(float64(got)-math.Sqrt(125./3)) <= 1e-5) {
		t.Errorf("the root mean square norm is %v", got)
	}
}

// TestWeightsStayWithTheirPairs: also where a pair of the query is left out.
func TestWeightsStayWithTheirPairs(t *testing.T) {
	l, err := Prepare(fit.Data{
		Items: matrix(2, 0, 0, 1, 0, 0, 1, 1, 1), Queries: matrix(2, 1, 0, 0, 1),
		Relevant: [][]int32{{0, 1, 3}, {2, 3}}, Weights: [][]float32{{5, 6, 7}, {8, 9}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []Pair{{0, 1, 6}, {0, 3, 7}, {1, 2, 8}, {1, 3, 9}}
	if got := l.Pairs([]int32{0, 1}, nil); !slices.Equal(got, want) {
		t.Errorf("pairs %v, want %v", got, want)
	}
	if got := l.Pairs([]int32{1, 0}, []bool{false, false, false, true}); !slices.Equal(got, []Pair{want[2], want[0]}) {
		t.Errorf("without item 3: %v", got)
	}
	if got := PairStarts([]Pair{{7, 0, 1}, {7, 1, 1}, {3, 0, 1}, {5, 0, 1}}); !slices.Equal(got, []int{0, 2, 3, 4}) {
		t.Errorf("the pairs of the queries begin at %v", got)
	}
}

// TestWhatIsKnownOfAQueryIsKept, whether vectors are scaled or not.
func TestWhatIsKnownOfAQueryIsKept(t *testing.T) {
	d := fit.Data{
		Items: matrix(2, 1, 0, 0, 2), Queries: matrix(2, 3, 0, 0, 4), Relevant: [][]int32{{0}, {1}},
		Times: []int64{5, 6}, Asked: []float64{7, 8}, Seen: [][]int32{{1}, {0}}, Inverse: []float64{2, 3}, UserIDs: []int64{70, 80},
		Looks: [][]clicks.Look{{{Item: 0, Times: 1}}, {{Item: 1, Times: 2}}},
	}
	scaled, err := Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	unscaled, err := PrepareUnscaled(d)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(scaled.Users, d.UserIDs) {
		t.Errorf("the users are %v", scaled.Users)
	}
	for _, l := range []*Log{scaled, unscaled} {
		if !slices.Equal(l.Times, d.Times) || !slices.Equal(l.Asked, d.Asked) || !slices.Equal(l.Inverse, d.Inverse) ||
			!reflect.DeepEqual(l.Seen, d.Seen) || !reflect.DeepEqual(l.Looks, d.Looks) {
			t.Errorf("%+v", l)
		}
	}
}

// TestQuestionsAlike: a question at another length, or with −0, is the same question, on one
// side of a split and the twin of the same item, whether vectors are scaled or not.
func TestQuestionsAlike(t *testing.T) {
	zero := float32(math.Copysign(0, -1))
	d := fit.Data{
		Items: matrix(3, 1, 0, 0, 0, 2, 0, 0, 0, 1), Queries: matrix(3, 4, 0, 0, 1, zero, 0, 0, 1, zero, 5, 5, 1),
		Relevant: [][]int32{{1}, {2}, {0}, {0}},
	}
	unit, err := Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := PrepareUnscaled(d)
	if err != nil {
		t.Fatal(err)
	}
	raw.FindTwins([]int32{0, 1, 2, 3})
	for name, l := range map[string]*Log{"scaled": unit, "as stored": raw} {
		if l.hashQuery(0, 1) != l.hashQuery(1, 1) || l.hashQuery(0, 1) == l.hashQuery(0, 2) || l.hashQuery(0, 1) == l.hashQuery(2, 1) {
			t.Errorf("%s: questions alike have different hashes, or different ones the same", name)
		}
		for q, want := range []int32{0, 0, 1, -1} {
			for x := range int32(3) {
				if got := l.IsTwin(int32(q), x); got != (x == want) {
					t.Errorf("%s: item %d is the twin of question %d: %t", name, x, q, got)
				}
			}
		}
	}
}

// TestHeldOutItems: of the seed and the log alone, as many as the share says, in sets of
// their own; who chose other items too does not judge them.
func TestHeldOutItems(t *testing.T) {
	l, err := Prepare(fittest.RandomData(200, 50, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	reversed := *l
	reversed.Relevant = slices.Clone(l.Relevant)
	slices.Reverse(reversed.Relevant)
	first := l.HoldOutItems(0.2, 4, 7)
	for i, set := range reversed.HoldOutItems(0.2, 4, 7) {
		if !slices.Equal(set, first[i]) {
			t.Error("the held-out items depend on the order of the log")
		}
	}
	if slices.Equal(l.HoldOutItems(0.2, 1, 8)[0], first[0]) {
		t.Error("another seed holds out the same items")
	}
	seen := make([]bool, 50)
	for _, set := range first {
		for x, in := range set {
			if in && seen[x] {
				t.Errorf("item %d is in two sets", x)
			}
			seen[x] = seen[x] || in
		}
		if n := countTrue(set); n != 10 && l.Counts.LoggedItems == 50 {
			t.Errorf("%d items of 50 are held out", n)
		}
	}
	small := &Log{Relevant: [][]int32{{0, 1}, {0}, {1}, {2}, {}}}
	if got := small.QueriesWithin([]bool{true, false, true}, []int32{0, 1, 2, 3}); !slices.Equal(got, []int32{1, 3}) {
		t.Errorf("queries %v chose nothing but items 0 and 2, want 1 and 3", got)
	}
	if got := small.UnseenQueries(Split{Train: []int32{0, 1}, HeldOut: []int32{2}}, []bool{true, false, false}); !slices.Equal(got, []int32{2, 1}) {
		t.Errorf("queries %v are unseen without item 0, want 2 and 1", got)
	}
}

// TestDecidingItemSets: as few sets as bring enough items and queries that a fit has not seen, and all
// where the log is short. Queries that chose other items too, and are not held out, do not count.
func TestDecidingItemSets(t *testing.T) {
	for name, c := range map[string]struct {
		items, queries, others int // queries of one item, and of all
		want                   int
	}{
		"a long log":                 {2000, 6000, 0, 1},
		"a log of middle length":     {1000, 2000, 0, 3},
		"a short log":                {1000, 600, 0, 5},
		"few items":                  {77, 10000, 0, 5},
		"some items":                 {600, 10000, 0, 2},
		"few queries of single ones": {1000, 600, 4000, 5},
	} {
		l := &Log{Items: rerank.NewMatrix(c.items, 1)}
		var s Split
		for q := range c.queries + c.others {
			items := []int32{int32(q % c.items)}
			if q >= c.queries {
				items = fittest.AllRows(c.items)
			}
			l.Relevant, s.Train = append(l.Relevant, items), append(s.Train, int32(q))
		}
		sets := l.DecidingItemSets(s, 0.2, 5, 1)
		if len(sets) != c.want {
			t.Errorf("%s: %d sets, want %d", name, len(sets), c.want)
		}
		for i, set := range l.HoldOutItems(0.2, len(sets), 1) {
			if !slices.Equal(set, sets[i]) {
				t.Errorf("%s: set %d is not that of HoldOutItems", name, i)
			}
		}
	}
}

// TestSplits: about the share that is asked for, the latest by time, with everything of the
// second in which they begin.
func TestSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := &Log{Queries: fittest.NormalMatrix(rng, 1000, 3), Items: matrix(1, 1, 2)}
	for q := range 1000 {
		l.Relevant, l.Times = append(l.Relevant, []int32{0}), append(l.Times, int64(q/10))
	}
	s := l.splitByQuery(0.2, 1)
	if n := len(s.HeldOut); n < 150 || n > 250 || len(s.All()) != 1000 {
		t.Errorf("a fifth of 1,000 queries is %d", n)
	}
	if other := l.splitByQuery(0.2, 2); slices.Equal(other.HeldOut, s.HeldOut) {
		t.Error("another seed holds out the same queries")
	}
	if s = l.splitByTime(0.205); len(s.HeldOut) != 210 || s.HeldOut[0] != 790 || len(s.Train) != 790 {
		t.Errorf("of 1,000 queries, ten a second, %d from %d on are held out, want 210 from 790 on", len(s.HeldOut), s.HeldOut[0])
	}
	c := fit.DefaultCommon()
	c.SplitBy = fit.ByTime
	same := &Log{Queries: l.Queries, Relevant: l.Relevant, Times: make([]int64, 1000)}
	if _, err := same.Split(c); !errors.Is(err, fit.ErrData) {
		t.Errorf("queries of one second are split: %v", err)
	}
}
