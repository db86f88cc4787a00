package gpu

import "math"

// measuredMargin is the factor by which the error is assumed to exceed the worst measured
// one.
const measuredMargin = 2

// needsPairs reports whether more pairs should be measured.
func (r *rounding) needsPairs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count < r.wantedPairs
}

// addPairs measures pairs from two scorings of the same rows.
func (r *rounding) addPairs(rough, exact Survivors) {
	scores := make(map[uint32]float32, len(exact.Rows))
	for i, row := range exact.Rows {
		scores[row] = exact.Scores[i]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, row := range rough.Rows {
		x, both := scores[row]
		if d := math.Abs(float64(x) - float64(rough.Scores[i])); both && d-d == 0 {
			r.count++
			r.worst = max(r.worst, d)
		}
	}
}

// error returns the measured error with its margin, or +Inf if too few pairs were measured.
func (r *rounding) error() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wantedPairs == 0 || r.count < r.wantedPairs {
		return math.Inf(1)
	}
	return measuredMargin * r.worst
}

// pairs returns how many pairs were measured.
func (r *rounding) pairs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
