package route

import (
	"math"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestWrongNorms: a vector is wrong unless its norm is 1, up to rounding.
func TestWrongNorms(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		vector []float32
		wrong  bool
	}{
		{[]float32{0.6, 0.8}, false},
		{[]float32{0.60003, 0.80003}, false},
		{[]float32{0.601, 0.801}, true},
		{[]float32{0, 0}, true},
		{[]float32{nan, 1}, true},
		{[]float32{inf, 0}, true},
	} {
		n := new(Norms)
		n.See([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 2, Data: c.vector})
		if wrong := n.Wrong() != nil; wrong != c.wrong {
			t.Errorf("%v: wrong %t", c.vector, wrong)
		}
	}
}
