package gpu

import "math"

// measuredMargin is how much further than the worst pair that was seen a score is
// taken to be off.
const measuredMargin = 2

// needsPairs reports whether more pairs are wanted.
func (r *rounding) needsPairs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count < r.wantedPairs
}

// addPairs takes in pairs: the same rows scored by both ways.
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

// error is what was measured; +Inf while that is too little.
func (r *rounding) error() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wantedPairs == 0 || r.count < r.wantedPairs {
		return math.Inf(1)
	}
	return measuredMargin * r.worst
}

// pairs is how many were measured.
func (r *rounding) pairs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
