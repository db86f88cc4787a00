package calibrate

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Promise says P(recall@K ≥ Recall) ≥ Share, with confidence 1 − Alpha.
type Promise struct {
	K      int     `json:"k"`
	Recall float64 `json:"recall"`
	Share  float64 `json:"share"`
	Alpha  float64 `json:"alpha"`
}

// spread returns the promise to test at each of n depths, where the first success ends the search.
// Each test may err with probability Alpha/n, so that all of them together err with probability
// Alpha at most (Bonferroni).
func (p Promise) spread(n int) Promise {
	p.Alpha /= float64(n)
	return p
}

// isShownBy reports whether the promise is shown if kept of n queries reach the recall:
// P(X ≥ kept) ≤ Alpha for a binomial X of n draws with probability Share. This holds if
// the Clopper-Pearson bound is at least Share.
func (p Promise) isShownBy(kept, n int) bool {
	return kept > 0 && mathext.RegIncBeta(float64(kept), float64(n-kept+1), p.Share) <= p.Alpha
}

// LeastShare returns the exact lower bound, at confidence 1 − alpha, of the probability of
// an event that was seen in kept of n draws (Clopper and Pearson, Biometrika 26, 1934).
func LeastShare(kept, n int, alpha float64) float64 {
	if kept == 0 {
		return 0
	}
	return mathext.InvRegIncBeta(float64(kept), float64(n-kept+1), alpha)
}

// LeastQueries returns the fewest queries that can show a promise: if all of n reach the
// recall, Share^n ≤ Alpha.
func (p Promise) LeastQueries() int {
	n := max(1, math.Floor(math.Log(p.Alpha)/math.Log(p.Share)))
	for math.Pow(p.Share, n) > p.Alpha {
		n++
	}
	return int(min(n, math.MaxInt32))
}

// leastMean returns a lower bound, at confidence 1 − alpha, of the mean of values in
// [0, 1]: the empirical Bernstein bound (Maurer and Pontil, COLT 2009, theorem 4).
func leastMean(values []float64, alpha float64) float64 {
	n := float64(len(values))
	if n < 2 {
		return 0
	}
	var mean, squares float64
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	l := math.Log(2 / alpha)
	return max(0, mean-math.Sqrt(2*squares/(n-1)*l/n)-7*l/(3*(n-1)))
}
