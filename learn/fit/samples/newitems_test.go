package samples

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// TestColdTraffic: a log with times is judged by its latest pairs, one without times by the pairs
// whose item has no other.
func TestColdTraffic(t *testing.T) {
	l := &Log{Items: rerank.NewMatrix(12, 1), Counts: fit.Counts{Items: 12, ZeroItems: 2, LoggedItems: 8, Pairs: 20}}
	for q := range 20 {
		l.Relevant = append(l.Relevant, []int32{int32(q % 4)})
		l.Times = append(l.Times, int64(q))
	}
	l.Relevant[18] = []int32{7} // new, as item 8
	for name, c := range map[string]struct {
		last  []int32
		times bool
		want  float64
	}{
		"one of two late pairs is of a new item": {[]int32{3}, true, 0.5},
		"two of three":                           {[]int32{3, 8}, true, 2. / 3},
		"no times: one of twenty pairs":          {[]int32{3}, false, 0.05},
		"no times: two of twenty":                {[]int32{8}, false, 0.1},
	} {
		l := *l
		l.Relevant = append(l.Relevant[:19:19], c.last)
		if !c.times {
			l.Times = nil
		}
		if got := l.ColdTraffic(); !(math.Abs(got-c.want) <= 1e-12) {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
	for q := range l.Times {
		l.Times[q] = 5
	}
	if got := l.ColdTraffic(); got != 0.05 {
		t.Errorf("one time for all: %g, want what a log without times gives", got)
	}
}

// TestColdTrafficOfALogWithFavourites: the estimate without times is near the share of later pairs
// whose item has none, however many items of the collection have none.
func TestColdTrafficOfALogWithFavourites(t *testing.T) {
	const items, pairs = 5000, 4000
	for _, skew := range []float64{0, 0.7, 1, 1.5} {
		rng := rand.New(rand.NewPCG(1, 7))
		sums := make([]float64, items) // of the items' popularity
		var sum float64
		for x := range sums {
			sum += math.Pow(float64(1+x), -skew)
			sums[x] = sum
		}
		draw := func() int32 { return int32(sort.SearchFloat64s(sums, sum*rng.Float64())) }
		l, logged := &Log{Items: rerank.NewMatrix(items, 1), Counts: fit.Counts{Items: items, Pairs: pairs}}, map[int32]bool{}
		for range pairs {
			x := draw()
			l.Relevant, logged[x] = append(l.Relevant, []int32{x}), true
		}
		l.Counts.LoggedItems = len(logged)
		var cold float64
		for range pairs {
			if !logged[draw()] {
				cold++
			}
		}
		if got := l.ColdTraffic(); !(math.Abs(got-cold/pairs) <= 0.03) {
			t.Errorf("skew %g: %.3f, and %.3f of the later pairs are for items without logs; %d of %d items have none", skew, got, cold/pairs, items-len(logged), items)
		}
	}
}
