package adapters_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/adapters"
)

// half rounds to float16.
func half(x float64) float64 {
	step := math.Ldexp(1, max(math.Ilogb(x), -14)-10)
	return math.RoundToEven(x/step) * step
}

func unit(v []float64) []float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x / math.Sqrt(sum)
	}
	return out
}

// On a processor that multiplies float16, a cosine field's score is as far from the cosine
// as Epsilon16 allows and no further: 32 sums side by side, each product and sum rounded.
func TestEpsilon16(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	largest := 0.0
	for _, dim := range []int{4, 31, 32, 100, 384, 1536} {
		epsilon := float64(adapters.Epsilon16(dim, 1, 1))
		for try := range 40 {
			q, x := make([]float64, dim), make([]float64, dim)
			for i := range q {
				q[i] = r.NormFloat64() * math.Pow(10, -float64(try%5)*r.Float64())
				x[i] = r.NormFloat64()
				if try%2 == 0 { // where everything has one sign, errors do not cancel
					q[i], x[i] = 1+float64(try)*0.37*r.Float64(), 1+0.01*float64(try)
				}
			}
			q, x = unit(q), unit(x)
			want, sums := 0.0, make([]float64, 32)
			for i := range q {
				want += q[i] * x[i]
				sums[i%32] = half(sums[i%32] + half(half(q[i])*half(x[i])))
			}
			score := 0.0
			for _, s := range sums {
				score += s
			}
			off := math.Abs(score - want)
			if largest = max(largest, off/epsilon); off > epsilon {
				t.Errorf("%d dimensions: the score is off by %v, ε is %v", dim, off, epsilon)
			}
		}
	}
	if largest < 0.1 {
		t.Errorf("no score is off by more than %v of ε", largest)
	}
	// One number of each vector half a step from its neighbours: nothing of ε is to spare but
	// the rounding of the product.
	q, x := 1+0x1p-11, 1+0x1p-11
	if off, epsilon := q*x-half(half(q)*half(x)), float64(adapters.Epsilon16(1, q, x)); off > epsilon || off < epsilon/2 {
		t.Errorf("off by %v, ε is %v", off, epsilon)
	}
	if e := adapters.Epsilon16(1<<16, 1, 1); !math.IsInf(float64(e), 1) {
		t.Errorf("65,536 dimensions: %v", e)
	}
}

func TestCanCompare(t *testing.T) {
	for name, tc := range map[string]struct {
		datatype adapters.Datatype
		metric   adapters.Metric
		query    []float32
		want     bool
	}{
		"usual": {adapters.Float16, adapters.InnerProduct, []float32{1, -3, 1e-9}, true}, "the largest": {adapters.Float16, adapters.InnerProduct, []float32{-65504}, true},
		"too large": {adapters.Float16, adapters.InnerProduct, []float32{1, -65520}, false}, "too small": {adapters.Float16, adapters.InnerProduct, []float32{0x1p-25, 0}, false},
		"normalised": {adapters.Float16, adapters.Cosine, []float32{1e9}, true}, "float32": {adapters.Float32, adapters.InnerProduct, []float32{1e9}, true},
	} {
		if got := (adapters.VectorField{Datatype: tc.datatype, Metric: tc.metric}).CanCompare(tc.query); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestRoundings: a product is rounded once for each number, or as often as the longest chain of sums is long.
func TestRoundings(t *testing.T) {
	for f, want := range map[adapters.VectorField]int{{Dim: 8}: 8, {Dim: 8, Chain: 3}: 3, {Dim: 8, Chain: 9}: 8} {
		if got := f.Roundings(); got != want {
			t.Errorf("%+v: %d, want %d", f, got, want)
		}
	}
}

// TestLimitErrors: a limit that was exceeded is an ErrLimit.
func TestLimitErrors(t *testing.T) {
	if err := (&adapters.LimitError{Limit: "max_depth", Value: 9, Max: 5}); !errors.Is(err, adapters.ErrLimit) {
		t.Errorf("%v is no ErrLimit", err)
	}
}
