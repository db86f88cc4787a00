package judge

import (
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
)

func TestGuardWantsAMargin(t *testing.T) {
	for gain, want := range map[float64]bool{-0.01: false, 0: false, 0.005: false, 0.01: true, 0.1: true} {
		if got := (fit.Comparison{Gain: gain, StandardError: 0.01}).ClearlyBetter(); got != want {
			t.Errorf("a gain of %g ± 0.01 is clearly better: %t", gain, got)
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
	if c := Compare(Outcomes{Scores: scores, Baseline: baseline, Items: items}); c.Gain != 0.5 || c.StandardError < 0.35 || c.StandardError > 0.36 {
		t.Errorf("two items, one wins all: %+v, want 0.5 ± √½/2", c)
	}
}

// A pair that counts twice is as two pairs.
func TestWeightsOfMeans(t *testing.T) {
	c := Compare(Outcomes{Scores: []float64{1, 0}, Baseline: []float64{0, 0}, Weights: []float64{3, 1}, Items: []int32{0, 1}})
	if c.Value != 0.75 {
		t.Errorf("the weighted mean is %g, want 0.75", c.Value)
	}
}
