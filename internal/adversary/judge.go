package adversary

import (
	"math"
	"testing"
)

// Attained checks an error, measured in float64, against its bound, on data that was
// made to attain it. The bound must hold, and the error must be most of it: then half
// of the bound, or the bound without the term that the data is for, would not hold.
// The slack is for what the data cannot reach: steps of a format end at
// 0.49 of a step, and a slope's bound lies above the slope.
func Attained(t testing.TB, what string, off, bound float64) {
	t.Helper()
	const reached, oracle = 0.85, 1 + 1e-9 // float64 sums of a thousand terms are off by less
	if !(off <= bound*oracle) || !(off > reached*bound) {
		t.Errorf("%s: off by %v, the bound is %v; want a bound that holds and is nearly attained", what, off, bound)
	}
}

// Exactly checks a term that no data attains against the formula that it is derived
// by. Such are the roundings of a long sum, which hardly ever all point in one
// direction: a bound of half as many would hold on any data, and prove nothing. The
// slack is for conversions to float32 and for the factors 1 + 10⁻⁶ that cover them.
func Exactly(t testing.TB, what string, have, formula float64) {
	t.Helper()
	const slack = 3e-6
	if d := math.Abs(have - formula); have != formula && !(d <= slack*math.Abs(formula) && !math.IsInf(d, 0)) {
		t.Errorf("%s: %v, the formula gives %v", what, have, formula)
	}
}
