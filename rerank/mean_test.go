package rerank_test

import (
	"math"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestMean: vectors count by their weights, and in a mean of unit vectors not by their norms.
func TestMean(t *testing.T) {
	for _, unit := range []bool{false, true} {
		m := rerank.Mean{Unit: unit}
		if v, ok := m.Vector(); ok {
			t.Errorf("the mean of no vectors is %v", v)
		}
		m.Add([]float32{3, 4}, 3)
		m.Add([]float32{0, -2}, 1)
		want := [2]float64{3 * 3. / 4, (3*4 - 2) / 4.}
		if unit {
			want = [2]float64{3 * .6 / 4, (3*.8 - 1) / 4}
		}
		v, ok := m.Vector()
		if !ok || math.Abs(float64(v[0])-want[0]) > 1e-6 || math.Abs(float64(v[1])-want[1]) > 1e-6 {
			t.Errorf("unit %t: %v, want %v", unit, v, want)
		}
	}
}
