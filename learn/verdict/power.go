package verdict

import "math"

// Power is the chance to show a difference that is there, with the number of queries that
// QueriesFor gives.
const Power = 0.8

// mostQueries is the number of queries above which an estimate says nothing.
const mostQueries = 10_000_000

// QueriesFor returns how many queries show a difference of this mean with a chance of
// Power, rounded up to two digits. deviation is the standard deviation of the paired
// differences of single queries. QueriesFor returns 0 if the number would say nothing: if
// the difference is 0 or needs more than ten million queries.
func QueriesFor(deviation, difference, confidence float64) int {
	if !(difference > 0) || math.IsNaN(deviation) {
		return 0
	}
	ratio := (quantile(confidence) + quantile(2*Power-1)) * deviation / difference
	n := ratio * ratio
	if n > mostQueries {
		return 0
	}
	return roundUp(math.Ceil(n))
}

// Detectable returns the smallest difference that this many queries show with a chance of
// Power.
func Detectable(deviation float64, queries int, confidence float64) float64 {
	return (quantile(confidence) + quantile(2*Power-1)) * deviation / math.Sqrt(float64(max(1, queries)))
}

// Deviation returns the standard deviation of single queries that an interval of a mean implies.
// If queries win and lose in groups, it is the deviation that as many independent queries would
// need for the same interval.
func (x Difference) Deviation(confidence float64) float64 {
	return (x.High - x.Low) / 2 / quantile(confidence) * math.Sqrt(float64(x.Queries))
}

// quantile returns how many standard deviations around the mean of a normal distribution
// hold this share of it.
func quantile(share float64) float64 { return math.Sqrt2 * math.Erfinv(share) }

// roundUp rounds a number up to two digits.
func roundUp(n float64) int {
	unit := 1.0
	for n/unit > 100 {
		unit *= 10
	}
	return int(math.Ceil(n/unit) * unit)
}
