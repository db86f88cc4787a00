package fit

import (
	"testing"
)

// The search over trials whose outcome is known: columns are pulls, weak to strong.
func TestSearchOfThePull(t *testing.T) {
	for name, tc := range map[string]struct {
		guard      bool
		logged     []float64
		admissible []bool
		want       int
	}{
		"the weakest that guards":            {true, []float64{.9, .8, .7, .6, .5}, []bool{false, false, true, true, true}, 2},
		"the first guards":                   {true, []float64{.9, .8, .7, .6, .5}, []bool{true, true, true, true, true}, 0},
		"only the last guards":               {true, []float64{.9, .8, .7, .6, .5}, []bool{false, false, false, false, true}, 4},
		"none guards: the strongest":         {true, []float64{.9, .8, .7, .6, .5}, []bool{false, false, false, false, false}, 4},
		"stronger is better for logged ones": {true, []float64{.5, .6, .7, .8, .6}, []bool{false, true, true, true, true}, 3},
		"unguarded: the first peak":          {false, []float64{.5, .6, .7, .6, .9}, []bool{true, true, true, true, true}, 2},
		"unguarded: weaker on a tie":         {false, []float64{.5, .5, .5, .5, .5}, []bool{true, true, true, true, true}, 0},
	} {
		c := &pulls{work: &work{}, guard: tc.guard}
		for i := range tc.logged {
			c.trials = append(c.trials, &PullTrial{Pull: float64(i), Logged: tc.logged[i], Admissible: tc.admissible[i]})
		}
		best, err := c.search(t.Context())
		if err != nil || best.Pull != float64(tc.want) {
			t.Errorf("%s: chose %v (%v), want %d", name, best, err, tc.want)
		}
	}
}

func TestGuardWantsAMargin(t *testing.T) {
	for gain, want := range map[float64]bool{-0.01: false, 0: false, 0.004: false, 0.005: true, 0.1: true} {
		if got := (Comparison{Gain: gain, StandardError: 0.01}).kept(); got != want {
			t.Errorf("a gain of %g ± 0.01 is kept: %t", gain, got)
		}
	}
}

// One item's queries win and lose together: a thousand of them are one item.
func TestStandardErrorIsOfItems(t *testing.T) {
	scores, baseline, items := make([]float64, 1000), make([]float64, 1000), make([]int32, 1000)
	for i := range scores {
		items[i] = int32(i % 2)
		scores[i] = float64(i % 2)
	}
	if c := compare(scores, baseline, items); c.Gain != 0.5 || c.StandardError < 0.35 || c.StandardError > 0.36 {
		t.Errorf("two items, one wins all: %+v, want 0.5 ± √½/2", c)
	}
}
