package samples

import (
	"math"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// TestColdTraffic: a log with times is judged by its latest pairs, one without times by the
// items of the collection. Vectors of norm 0 do not count as items.
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
		"no times: two of ten items":             {[]int32{3}, false, 0.2},
	} {
		l := *l
		l.Relevant = append(l.Relevant[:19:19], c.last)
		if !c.times {
			l.Times = nil
		}
		if got := l.ColdTraffic(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
	for q := range l.Times {
		l.Times[q] = 5
	}
	if got := l.ColdTraffic(); got != 0.2 {
		t.Errorf("one time for all: %g, want the items' share", got)
	}
}
