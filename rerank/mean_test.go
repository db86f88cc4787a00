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
		m.Add([]float32{0, 0}, 4) // without a direction, and counts all the same
		want := [2]float64{3 * 3. / 8, (3*4 - 2) / 8.}
		if unit {
			want = [2]float64{3 * .6 / 8, (3*.8 - 1) / 8}
		}
		v, ok := m.Vector()
		if !ok || !(math.Abs(float64(v[0])-want[0]) <= 1e-6 && math.Abs(float64(v[1])-want[1]) <= 1e-6) { // also if they are NaN
			t.Errorf("unit %t: %v, want %v", unit, v, want)
		}
	}
}
