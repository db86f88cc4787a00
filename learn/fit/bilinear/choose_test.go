package bilinear

import (
	"testing"
)

// trialsAt are trials whose outcome is known: one a pull, weak to strong.
func trialsAt(logged []float64, admissible []bool) func(i int) (*trial, error) {
	return func(i int) (*trial, error) {
		t := &trial{setting: setting{pull: float64(i)}}
		t.LoggedMRR, t.Admissible = logged[i], admissible == nil || admissible[i]
		return t, nil
	}
}

func TestSearchOfThePullThatGuards(t *testing.T) {
	for name, tc := range map[string]struct {
		logged     []float64
		admissible []bool
		want       float64
	}{
		"the weakest that guards":            {[]float64{.9, .8, .7, .6, .5}, []bool{false, false, true, true, true}, 2},
		"the first guards":                   {[]float64{.9, .8, .7, .6, .5}, []bool{true, true, true, true, true}, 0},
		"only the last guards":               {[]float64{.9, .8, .7, .6, .5}, []bool{false, false, false, false, true}, 4},
		"none guards: the strongest":         {[]float64{.9, .8, .7, .6, .5}, []bool{false, false, false, false, false}, 4},
		"stronger is better for logged ones": {[]float64{.5, .6, .7, .8, .6}, []bool{false, true, true, true, true}, 3},
	} {
		best, err := searchGuarded(len(tc.logged), trialsAt(tc.logged, tc.admissible))
		if err != nil || best.pull != tc.want {
			t.Errorf("%s: chose %v (%v), want %g", name, best, err, tc.want)
		}
	}
}

func TestSearchOfThePullWithoutGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		logged []float64
		want   []float64 // tried
	}{
		"weak is best":         {[]float64{.9, .8, .7, .6, .5}, []float64{0, 1, 2, 4}},
		"the middle is best":   {[]float64{.5, .6, .7, .6, .5, .4}, []float64{0, 1, 2, 3, 4}},
		"strong is best":       {[]float64{.5, .6, .7, .8, .9, 1}, []float64{0, 2, 3, 4, 5}},
		"all the same":         {[]float64{.5, .5, .5}, []float64{0, 1, 2}},
		"there is one":         {[]float64{.5}, []float64{0}},
		"between two steps is": {[]float64{.5, .9, .7, .95, .6}, []float64{0, 1, 2, 3, 4}},
	} {
		tried, err := searchUnguarded(len(tc.logged), trialsAt(tc.logged, nil))
		if err != nil || len(tried) != len(tc.want) {
			t.Errorf("%s: tried %d (%v), want %v", name, len(tried), err, tc.want)
			continue
		}
		for i, want := range tc.want {
			if tried[i].pull != want {
				t.Errorf("%s: tried %g as number %d, want %g", name, tried[i].pull, i, want)
			}
		}
	}
}

// The first hit decides, whatever the rest of the page looks like.
func TestTheFirstHitDecides(t *testing.T) {
	top, page, same := &trial{}, &trial{}, &trial{}
	top.LoggedMRR, top.LoggedNDCG = .9, .5
	page.LoggedMRR, page.LoggedNDCG = .89, .8
	same.LoggedMRR, same.LoggedNDCG = .9, .9
	if bestTrial([]*trial{page, top, same}) != top {
		t.Error("the best trial is another")
	}
}
