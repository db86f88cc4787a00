package experiment

import (
	"fmt"
	"math"
)

// Question asks how many impressions show a difference of a given size.
type Question struct {
	// Preference is the share of the sessions with a preference that prefer the better arm, such as
	// 0.52.
	Preference float64
	// Measured is the number of sessions with a preference in which Preference was measured. The plan then holds
	// with chance Power over what such a measurement finds. 0 takes Preference for the truth.
	Measured float64
	// Decisive is the share of the sessions that have a preference: some feedback, and not as much for
	// both arms.
	Decisive float64
	// Alpha is the chance of a wrong decision where nobody is better, Power the chance of a right one
	// within the plan.
	Alpha, Power float64
	// Impressions is the number of answers in a session, PerDay the number of answers of the route in a
	// day, and Share the share of the traffic that takes part. PerDay may be 0 if it is unknown.
	Impressions, PerDay, Share float64
}

// Plan says how long an experiment takes.
type Plan struct {
	// Preferences is the number of sessions with a preference, Sessions of all sessions, and
	// Impressions of the answers that take part.
	Preferences int `json:"preferences"`
	Sessions    int `json:"sessions"`
	Impressions int `json:"impressions"`
	// Days is the number of days in which the route answers Impressions; 0 if the traffic is
	// unknown.
	Days float64 `json:"days,omitempty"`
}

// mixtureCost is how much smaller the logarithm of a Test's fortune is than with the best bet alone: a
// Test does not know the best bet, and divides its fortune among several.
const mixtureCost = 1.5

// NewPlan answers the question. The best bet on a mean difference δ multiplies the fortune by
// exp(δ²/2) a preference, with a standard deviation of δ in the logarithm; the plan is the number n of
// preferences after which the fortune decides with chance Power. A δ that was measured over m preferences
// has a standard error of 1/√m, beside which n's own is 1/√n. NewPlan returns ErrSetting, also if such a δ may be 0.
func NewPlan(q Question) (Plan, error) {
	isShare := func(v float64) bool { return v > 0 && v <= 1 }
	switch {
	case !(q.Preference > 0.5 && q.Preference < 1):
		return Plan{}, fmt.Errorf("%w: preference is %g; want above 0.5 and below 1", ErrSetting, q.Preference)
	case !isShare(q.Decisive) || !isShare(q.Share):
		return Plan{}, fmt.Errorf("%w: %g of the sessions have a preference and %g of the traffic takes part; want above 0, and 1 at most", ErrSetting, q.Decisive, q.Share)
	case !(q.Alpha > 0 && q.Alpha < 0.5) || !(q.Power >= 0.5 && q.Power < 1):
		return Plan{}, fmt.Errorf("%w: alpha is %g and power %g; want above 0 and below 0.5, and 0.5 to below 1", ErrSetting, q.Alpha, q.Power)
	case !(q.Measured >= 0) || math.IsInf(q.Measured, 0):
		return Plan{}, fmt.Errorf("%w: the preference was measured in %g sessions; want 0 at least", ErrSetting, q.Measured)
	case !(q.Impressions >= 1) || !(q.PerDay >= 0) || math.IsInf(q.Impressions+q.PerDay, 0):
		return Plan{}, fmt.Errorf("%w: %g answers in a session and %g in a day; want 1 and 0 at least", ErrSetting, q.Impressions, q.PerDay)
	}
	z := math.Sqrt2 * math.Erfinv(2*q.Power-1)
	difference, spread := 2*q.Preference-1, 0.0 // spread is the variance of a measured difference
	if q.Measured > 0 {
		spread = 1 / q.Measured
	}
	known := difference*difference - z*z*spread
	if known <= 0 {
		return Plan{}, fmt.Errorf("%w: a preference of %g in %g sessions may be none; measure it in more than %.0f", ErrSetting, q.Preference, q.Measured, z*z/(difference*difference))
	}
	enough := 2 * (math.Log(2/q.Alpha) + mixtureCost)
	root := (difference*math.Sqrt(z*z+enough) + z*math.Sqrt(difference*difference+enough*spread)) / known
	preferences := math.Ceil(root * root)
	if preferences/q.Decisive*q.Impressions > math.MaxInt32 {
		return Plan{}, fmt.Errorf("%w: a preference of %g takes %.3g answers; ask for a greater difference", ErrSetting, q.Preference, preferences/q.Decisive*q.Impressions)
	}
	p := Plan{Preferences: int(preferences), Sessions: int(math.Ceil(preferences / q.Decisive))}
	p.Impressions = int(math.Ceil(float64(p.Sessions) * q.Impressions))
	if q.PerDay > 0 {
		p.Days = float64(p.Impressions) / (q.PerDay * q.Share)
	}
	return p, nil
}
