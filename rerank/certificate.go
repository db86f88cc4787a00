package rerank

import "math"

// Status is what a certificate claims of an answer.
type Status string

const (
	// StatusExact: proved to be the exact top K within the stated rounding error.
	StatusExact Status = "exact"
	// StatusCalibrated: not proved, but it rests on what was measured, and the certificate
	// names that: a Calibration, recall@K ≥ r for a share c of queries at confidence 1−α,
	// as audited; or the Measured error of rounding, of a scan.
	StatusCalibrated Status = "calibrated"
	// StatusUnknown: nothing was proved or audited.
	StatusUnknown Status = "unknown"
)

// Proof says how an answer was proved exact.
type Proof string

const (
	ProofNone Proof = ""
	// ProofInnerProduct: φ is one inner product and the list of it was exact.
	ProofInnerProduct Proof = "inner_product"
	// ProofScan: every item of the table was scored.
	ProofScan Proof = "table_scan"
	// ProofBound: no item outside the exact lists can reach the K-th score.
	ProofBound Proof = "bound_closed"
	// ProofExhausted: the exact lists hold every item.
	ProofExhausted Proof = "exhausted"
)

// Stop says what ended the deepening of the lists.
type Stop string

const (
	// StopGap: the gap is at most what was asked.
	StopGap Stop = "gap_reached"
	// StopFixed: no exactness was asked; one round at the route's depth.
	StopFixed Stop = "fixed_depth"
	// StopDeadline: another round would not have fitted the deadline.
	StopDeadline Stop = "deadline"
	// StopLimit: the store or the route allows no deeper list.
	StopLimit Stop = "depth_limit"
	// StopExhausted: the lists hold everything the store has.
	StopExhausted Stop = "exhausted"
	// StopUnbounded: deeper lists cannot narrow the gap (no bound, or inexact lists).
	StopUnbounded Stop = "no_bound"
)

// Certificate says how far an answer can be from the exact one.
type Certificate struct {
	Status Status
	Proof  Proof
	// Gap is the most by which an item that is not in the answer can exceed the
	// K-th score; +Inf where no bound is known.
	Gap float32
	// Max is U, the sound upper bound of every item that was not scored.
	Max float32
	// KthScore is the last returned score; −Inf if fewer than K items exist.
	KthScore float32
	// Epsilon is the rounding error of store and kernel, in units of φ.
	Epsilon     float32
	Calibration *Calibration
	// Measured is what an answer rests on instead of a Calibration, nil if it does not.
	Measured *Measured
	// Uncalibrated is why an answer that is not exact does not carry the calibration
	// of its route: one of the Uncalibrated constants, or why the route's is not
	// claimed at all. It is empty where the route has none.
	Uncalibrated string
	Stop         Stop
	// Depth is the rows asked of each probe in the last round, Rounds the number
	// of rounds, Candidates the number of items that were scored.
	Depth, Rounds, Candidates int
}

// Measured is an error of rounding that was measured, where no bound of it closed: twice
// the greatest that was seen on so many pairs of a query and an item.
type Measured struct {
	Pairs int
	Error float32
}

// Evidence is what Certify judges.
type Evidence struct {
	// K is the number of rows asked, Returned the number found.
	K, Returned int
	// KthScore is the score of row K; only read if Returned ≥ K.
	KthScore float32
	// Bound is the similarity's word on the items in no list.
	Bound Bound
	// MaxScore is the a-priori bound of φ (Spec.MaxScore).
	MaxScore float32
	// ListsExact: every list was exact. Without it, only MaxScore is sound.
	ListsExact bool
	// Scanned: every item was scored; the lists do not matter.
	Scanned bool
	// Measured, of a scan: that items were left out rests on it, and on no bound.
	Measured *Measured
	// SingleInnerProduct: the lists are of φ itself.
	SingleInnerProduct bool
}

// Certify applies the definitions of docs/design.md (certificates): U, ε and
// gap = max(0, U − S_K + 2ε). It claims exact only if nothing unseen can exceed
// the K-th score by more than 2ε. Evidence that is not a number proves nothing:
// such a bound is +Inf, such a K-th score −Inf, and with such an ε, or one that
// is infinite or negative, the answer is unknown. A scan that rests on a measured
// error is calibrated.
func Certify(e Evidence) Certificate {
	c := Certificate{
		Status:   StatusUnknown,
		KthScore: float32(math.Inf(-1)),
		Max:      upperBound(e),
		Epsilon:  e.Bound.Epsilon,
	}
	if e.Returned >= e.K && !notFinite(e.KthScore) {
		c.KthScore = e.KthScore
	}
	c.Gap = gap(c.Max, c.KthScore, c.Epsilon)
	switch {
	case notFinite(c.Epsilon) || c.Epsilon < 0:
		return c
	case c.Gap > 2*c.Epsilon:
		if e.Scanned && e.Measured != nil {
			c.Status, c.Measured = StatusCalibrated, e.Measured
		}
		return c
	}
	c.Status, c.Proof = StatusExact, proof(e, c.Max)
	return c
}

func upperBound(e Evidence) float32 {
	upper := unlessNaN(e.MaxScore)
	switch {
	case e.Scanned && e.Measured == nil:
		return float32(math.Inf(-1))
	case e.ListsExact:
		return min(unlessNaN(e.Bound.Max), upper)
	default:
		return upper
	}
}

// unlessNaN is a bound, or +Inf if it is not a number.
func unlessNaN(bound float32) float32 {
	if math.IsNaN(float64(bound)) {
		return float32(math.Inf(1))
	}
	return bound
}

func gap(upper, kth, epsilon float32) float32 {
	switch {
	case math.IsInf(float64(upper), -1):
		return 0 // nothing is unseen
	case math.IsInf(float64(kth), -1), notFinite(epsilon):
		return float32(math.Inf(1))
	}
	return max(0, upper-kth+2*epsilon)
}

func proof(e Evidence, upper float32) Proof {
	switch {
	case e.Scanned && e.Measured == nil:
		return ProofScan
	case math.IsInf(float64(upper), -1):
		return ProofExhausted
	case e.SingleInnerProduct && e.ListsExact:
		return ProofInnerProduct
	default:
		return ProofBound
	}
}
