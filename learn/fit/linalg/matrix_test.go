package linalg

import (
	"math"
	"testing"
)

// TestSoftmax: the results add up to 1 and are in the proportions of the exponentials, also where these alone would overflow.
func TestSoftmax(t *testing.T) {
	for _, c := range [][]float32{{0}, {1, 2, 3}, {-1e30, 0, 1e30}, {1000, 1001, 999, 1000.5, 998}} {
		v := append([]float32(nil), c...)
		Softmax(v)
		var top, total float64 = math.Inf(-1), 0
		for _, x := range c {
			top = max(top, float64(x))
		}
		for _, x := range c {
			total += math.Exp(float64(x) - top)
		}
		for i, x := range c {
			if want := math.Exp(float64(x)-top) / total; math.Abs(float64(v[i])-want) > 1e-6 {
				t.Errorf("softmax of %v has %v at %d, want %v", c, v[i], i, want)
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		v := make([]float32, 40)
		v[17] = float32(bad)
		Softmax(v)
		for i, x := range v {
			if x == x {
				t.Errorf("softmax with %v has %v at %d, want NaN", bad, x, i)
			}
		}
	}
}

func TestAddPull(t *testing.T) {
	grad := []float32{1, 1, 1}
	value := AddPull(grad, []float32{3, 0, 1}, []float32{1, 1, 1}, 0.5)
	if value != 0.5*(4+1) || grad[0] != 3 || grad[1] != 0 || grad[2] != 1 {
		t.Errorf("the pull is %g, the gradient %v", value, grad)
	}
}
