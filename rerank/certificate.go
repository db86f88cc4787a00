package rerank

import (
	"math"
	"time"
)

// Status is the claim that a certificate makes about an answer.
type Status string

const (
	// StatusExact: the answer is proved to be the exact top K of the collection as the
	// database held it during the search, up to the stated rounding error.
	StatusExact Status = "exact"
	// StatusSnapshot: the answer is proved to be the exact top K of a table or companion,
	// which shows the collection as of a time that the certificate states. Writes after
	// that time may be missing if this process did not see them.
	StatusSnapshot Status = "snapshot"
	// StatusCalibrated: the answer is not proved, but rests on a measurement that the
	// certificate names: either a Calibration (recall@K ≥ r for a share c of queries at
	// confidence 1−α, by audit), or, for a scan, the Measured rounding error.
	StatusCalibrated Status = "calibrated"
	// StatusUnknown: the answer is neither proved nor covered by a measurement.
	StatusUnknown Status = "unknown"
)

// Proof says how an answer was proved exact.
type Proof string

const (
	ProofNone Proof = ""
	// ProofInnerProduct: φ is one inner product, and the store searched its list exactly.
	ProofInnerProduct Proof = "inner_product"
	// ProofScan: every item of the table was scored.
	ProofScan Proof = "table_scan"
	// ProofBound: no item outside the exact lists can reach the K-th score.
	ProofBound Proof = "bound_closed"
	// ProofExhausted: the exact lists contain every item of the collection.
	ProofExhausted Proof = "exhausted"
)

// Stop says why the search did not fetch deeper lists.
type Stop string

const (
	// StopGap: the gap is no larger than requested.
	StopGap Stop = "gap_reached"
	// StopFixed: exactness was not requested, so there was one round at the route's depth.
	StopFixed Stop = "fixed_depth"
	// StopDeadline: another round would have missed the deadline.
	StopDeadline Stop = "deadline"
	// StopLimit: the store or the route allows no deeper lists.
	StopLimit Stop = "depth_limit"
	// StopExhausted: the lists contain every item of the store.
	StopExhausted Stop = "exhausted"
	// StopUnbounded: deeper lists cannot narrow the gap, because there is no bound or
	// because the lists are not exact.
	StopUnbounded Stop = "no_bound"
)

// Certificate says how far an answer can be from the exact one.
type Certificate struct {
	Status Status
	Proof  Proof
	// Gap bounds by how much an item outside the answer can exceed the K-th score; +Inf if
	// no bound is known.
	Gap float32
	// Max is U, an upper bound of φ over all items that were not scored.
	Max float32
	// KthScore is the score of the last returned row; −Inf if fewer than K items exist.
	KthScore float32
	// Epsilon is the rounding error of store and kernel together, in units of φ.
	Epsilon     float32
	Calibration *Calibration
	// Measured is the measured rounding error on which the answer of a scan rests; nil if
	// the answer does not rest on one.
	Measured *Measured
	// Uncalibrated is the reason why an answer that is not exact does not carry its route's
	// calibration: an Uncalibrated constant, or the reason why the route has withdrawn its
	// calibration. It is empty if the route was never calibrated.
	Uncalibrated string
	Stop         Stop
	// Tied: exact lists show that an item outside the answer may score as much as the K-th,
	// so that the store chose between them.
	Tied bool
	// Ordered: arithmetic without rounding gives the same rows in the same order, because
	// each score, and the best outside the answer, is farther from the next than rounding
	// can move both.
	Ordered bool
	// AsOf belongs to StatusSnapshot: the answer shows every write before this time, and
	// of the later ones those that this process saw. It is zero if the time is not known.
	AsOf time.Time
	// RowsVerified belongs to StatusSnapshot: the score of every returned row was compared
	// with the vector that the database holds now, and is right.
	RowsVerified bool
	// Depth is the number of rows requested from each probe in the last round, Rounds the
	// number of rounds, and Candidates the number of scored items.
	Depth, Rounds, Candidates int
}

// Proved reports whether the answer is proved exact: of the collection, or of a snapshot.
func (c Certificate) Proved() bool {
	return c.Status == StatusExact || c.Status == StatusSnapshot
}

// Measured is a rounding error that was measured because no proved bound was tight enough:
// Error is twice the largest error seen over Pairs pairs of a query and an item.
type Measured struct {
	Pairs int
	Error float32
}

// Evidence is the input of Certify.
type Evidence struct {
	// K is the number of rows requested, Returned the number found.
	K, Returned int
	// KthScore is the score of row K. It is ignored if Returned < K.
	KthScore float32
	// Bound is the similarity's bound for items that no list contains.
	Bound Bound
	// MaxScore bounds φ over all queries and items (Spec.MaxScore).
	MaxScore float32
	// ListsExact: the store searched every list exactly. If it did not, only MaxScore is a
	// sound bound.
	ListsExact bool
	// Scanned: every item was scored, so the lists do not matter.
	Scanned bool
	// Measured is set if a scan skipped items because of a measured rounding error, not a
	// proved one.
	Measured *Measured
	// SingleInnerProduct: the store's inner products are φ itself.
	SingleInnerProduct bool
	// HitError bounds how far the scores of the returned rows are off. Closest is the least
	// difference between two of them that are neighbours; 0: not known.
	HitError, Closest float32
	// Outside bounds φ of the items that were scored and are not returned.
	Outside float32
}

// Certify turns evidence into a certificate by the definitions of docs/concepts/mathematics.md
// (certificates): U, ε and gap = max(0, U − S_K + 2ε). The status is exact only if no
// unseen item can exceed the K-th score by more than 2ε. NaN never proves anything: a NaN
// bound counts as +Inf, a NaN K-th score as −Inf, and with an ε that is NaN, infinite or
// negative the status is unknown. A scan that rests on a measured error is calibrated.
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
	c.Ordered = isOrdered(e, c)
	return c
}

// isOrdered reports whether rounding decided neither the rows of an exact answer nor
// their order.
func isOrdered(e Evidence, c Certificate) bool {
	if !(e.Closest > 2*e.HitError) {
		return false
	}
	if math.IsInf(float64(c.KthScore), -1) { // fewer than K items exist
		return math.IsInf(float64(c.Max), -1)
	}
	return max(e.Outside, c.Max+e.Bound.Lists)+e.HitError < c.KthScore
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

// unlessNaN returns bound, or +Inf if bound is NaN.
func unlessNaN(bound float32) float32 {
	if math.IsNaN(float64(bound)) {
		return float32(math.Inf(1))
	}
	return bound
}

func gap(upper, kth, epsilon float32) float32 {
	switch {
	case math.IsInf(float64(upper), -1):
		return 0 // every item was scored
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
