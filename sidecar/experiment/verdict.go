package experiment

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrSetting means that a setting of an experiment is not valid.
var ErrSetting = errors.New("experiment setting is not valid")

// Decision says who is better.
type Decision string

// What an experiment can say.
const (
	// Undecided means that the difference may still be nothing.
	Undecided Decision = "undecided"
	// Better means that the candidate is better than the control.
	Better Decision = "better"
	// Worse means that the candidate is worse than the control.
	Worse Decision = "worse"
)

// betSteps is the number of bets of each direction that a Test mixes.
const betSteps = 16

// Test tells whether bounded differences have mean 0, at any time and as often as one likes. It is a
// test by betting (Waudby-Smith and Ramdas 2024): a gambler who stakes shares of a fortune
// on either direction gets rich only if the mean is not 0. By Ville's inequality, a fortune above
// 2/α in one of the two directions has a chance of α/2 at most if nobody is better.
//
// A difference lies in −1 to 1: a preference of a session, or the metric of a session of the candidate
// less one of the control. A unit is a session, so that the clicks of one person count once.
type Test struct {
	Alpha float64 `json:"alpha"`
	// Units counts the differences, Sum and Squares add them up.
	Units   int     `json:"units"`
	Sum     float64 `json:"sum"`
	Squares float64 `json:"squares"`
	// Decided is the first decision, which later evidence does not take back.
	Decided Decision `json:"decided"`
	// DecidedAt is the number of units at which it was made; 0 if it is not.
	DecidedAt int `json:"decided_at,omitempty"`
	// Up and Down hold the logarithms of the fortunes of the gamblers on each direction.
	Up   []float64 `json:"up"`
	Down []float64 `json:"down"`
}

// NewTest makes a test that errs with chance alpha at most. It returns ErrSetting.
func NewTest(alpha float64) (*Test, error) {
	if !(alpha > 0 && alpha < 1) {
		return nil, fmt.Errorf("%w: alpha is %g; want above 0 and below 1", ErrSetting, alpha)
	}
	return &Test{Alpha: alpha, Decided: Undecided, Up: make([]float64, betSteps), Down: make([]float64, betSteps)}, nil
}

// Clone returns a copy, which later differences do not change.
func (t *Test) Clone() *Test {
	out := *t
	out.Up, out.Down = slices.Clone(t.Up), slices.Clone(t.Down)
	return &out
}

// bet returns the share of the fortune that gambler i stakes: from 0.5 down by factors, so that one of
// them suits any difference.
func bet(i int) float64 { return 0.5 * math.Pow(2, -float64(i)/2) }

// Add counts the difference of one more unit and returns the decision so far. It returns ErrSetting if
// the difference is not within −1 to 1.
func (t *Test) Add(difference float64) (Decision, error) {
	if !(difference >= -1 && difference <= 1) {
		return t.Decided, fmt.Errorf("%w: a difference is %g; want -1 to 1", ErrSetting, difference)
	}
	t.Units++
	t.Sum += difference
	t.Squares += difference * difference
	if difference == 0 { // nobody wins a bet
		return t.Decided, nil
	}
	for i := range t.Up {
		t.Up[i] += math.Log1p(bet(i) * difference)
		t.Down[i] += math.Log1p(-bet(i) * difference)
	}
	if t.Decided != Undecided {
		return t.Decided, nil
	}
	enough := math.Log(2 / t.Alpha)
	switch {
	case slices.Max(t.Up) >= enough && meanExp(t.Up) >= enough: // a mean is no more than the greatest
		t.Decided, t.DecidedAt = Better, t.Units
	case slices.Max(t.Down) >= enough && meanExp(t.Down) >= enough:
		t.Decided, t.DecidedAt = Worse, t.Units
	}
	return t.Decided, nil
}

// meanExp returns the logarithm of the mean of exp(v).
func meanExp(v []float64) float64 {
	most := slices.Max(v)
	var sum float64
	for _, x := range v {
		sum += math.Exp(x - most)
	}
	return most + math.Log(sum/float64(len(v)))
}

// Evidence returns the greater of the two fortunes, as a share of the one that decides: 1 and more
// decides.
func (t *Test) Evidence() float64 {
	return math.Exp(max(meanExp(t.Up), meanExp(t.Down))) * t.Alpha / 2
}

// Interval returns bounds of the mean difference that hold for all times together, with chance 1 − α:
// the normal mixture boundary of Robbins (1970) for differences within −1 to 1. It is wider than
// Decided needs where many differences are 0.
func (t *Test) Interval() (low, high float64) {
	if t.Units == 0 {
		return -1, 1
	}
	n := float64(t.Units)
	const tuned = 1000                           // units at which the interval is tightest beside one for that time alone
	scale := tuned / (2*math.Log(1/t.Alpha) + 1) // ρ of the boundary
	half := math.Sqrt((n+scale)*(2*math.Log(1/t.Alpha)+math.Log((n+scale)/scale))) / n
	mean := t.Sum / n
	return max(-1, mean-half), min(1, mean+half)
}

// IsValid reports whether a test that was read from a file can go on.
func (t *Test) IsValid() bool {
	return t != nil && t.Alpha > 0 && t.Alpha < 1 && len(t.Up) == betSteps && len(t.Down) == betSteps &&
		slices.Contains([]Decision{Undecided, Better, Worse}, t.Decided)
}
