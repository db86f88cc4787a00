package calibrate

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Promise is what a calibration is to show: P(recall@K ≥ Recall) ≥ Share, with
// confidence 1 − Alpha.
type Promise struct {
	K      int     `json:"k"`
	Recall float64 `json:"recall"`
	Share  float64 `json:"share"`
	Alpha  float64 `json:"alpha"`
}

// kept reports whether that many queries with the recall, of n, show the promise:
// P(X ≥ kept) ≤ Alpha for X of n draws with the probability Share, which is that
// the Clopper-Pearson bound is at least Share.
func (p Promise) kept(kept, n int) bool {
	return kept > 0 && mathext.RegIncBeta(float64(kept), float64(n-kept+1), p.Share) <= p.Alpha
}

// LeastShare is the exact lower bound, at confidence 1 − alpha, of the probability
// of what came kept times of n (Clopper and Pearson, Biometrika 26, 1934).
func LeastShare(kept, n int, alpha float64) float64 {
	if kept == 0 {
		return 0
	}
	return mathext.InvRegIncBeta(float64(kept), float64(n-kept+1), alpha)
}

// LeastQueries is the fewest queries that can show a promise: with all of them
// kept, Share^n ≤ Alpha.
func (p Promise) LeastQueries() int {
	n := max(1, math.Floor(math.Log(p.Alpha)/math.Log(p.Share)))
	for math.Pow(p.Share, n) > p.Alpha {
		n++
	}
	return int(min(n, math.MaxInt32))
}

// leastMean is a lower bound, at confidence 1 − alpha, of the mean of values in
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
