package adversary

import (
	"math"
	"testing"
)

// Attained checks a measured error (in float64) against its bound, on data that nearly
// attain it. The bound must hold, and the error must be most of it. So the test would
// detect a bound that is halved or lacks the term for which the data were made. There is
// some slack for what the data cannot reach: steps of a format end at 0.49 of a step, and a
// bound of a slope lies above the slope.
func Attained(t testing.TB, what string, off, bound float64) {
	t.Helper()
	const reached, oracle = 0.85, 1 + 1e-9 // float64 sums of a thousand terms are off by less
	if !(off <= bound*oracle) || !(off > reached*bound) {
		t.Errorf("%s: off by %v, the bound is %v; want a bound that holds and is nearly attained", what, off, bound)
	}
}

// Exactly checks that a term of a bound has the value of its formula. It is for terms that
// no data attain, such as the rounding error of a long sum, whose parts rarely all have the
// same sign: with half of the term the bound would hold on any test data, but would not be
// proved. The slack covers conversions to float32 and the factors 1 + 10⁻⁶ for them.
func Exactly(t testing.TB, what string, have, formula float64) {
	t.Helper()
	const slack = 3e-6
	if d := math.Abs(have - formula); have != formula && !(d <= slack*math.Abs(formula) && !math.IsInf(d, 0)) {
		t.Errorf("%s: %v, the formula gives %v", what, have, formula)
	}
}
