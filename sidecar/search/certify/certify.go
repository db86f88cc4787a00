// Package certify is the fourth step of a search: it says how exact the answer is, and whether a
// deeper round could make it more exact. Its functions work on values alone and call no other part
// of the program.
package certify

import (
	"context"
	"math"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Source says which data an answer rests on, and how fresh the data is. The zero value stands for
// the database itself, which searched its own rows during this request, so that a proof holds for
// the collection.
type Source struct {
	// Derived: the answer rests on a table or companion, which the fields below describe. Without
	// it they are ignored.
	Derived bool
	// Behind: the derived data may lack a write that was seen or missed. Nothing is proved then.
	Behind bool
	// SeesEveryWrite: the operator declares that all writes pass through this process, and nothing
	// contradicts it. Only then does derived data that is not behind equal the collection.
	SeesEveryWrite bool
	// AsOf is the time before which the data shows every write, whoever made it; zero if unknown.
	AsOf time.Time
}

// proves returns the status that a proof from this source gives an answer.
func (s Source) proves() (status rerank.Status, asOf time.Time) {
	if s.Derived && !s.SeesEveryWrite {
		return rerank.StatusSnapshot, s.AsOf
	}
	return rerank.StatusExact, time.Time{}
}

func (s Source) isBehind() bool { return s.Derived && s.Behind }

// Scores returns the certificate of the scores of n items that the caller named. None can be missing,
// so that only where their vectors come from matters. lossy: some vectors are rounded.
func (s Source) Scores(n int, lossy bool) rerank.Certificate {
	c := rerank.Certificate{
		Status: rerank.StatusUnknown, Gap: float32(math.Inf(1)), Max: float32(math.Inf(1)), KthScore: float32(math.Inf(-1)),
		Stop: rerank.StopExhausted, Rounds: 1, Candidates: n,
	}
	if !lossy && !s.isBehind() {
		c.Status, c.AsOf = s.proves()
		c.Proof, c.Gap = rerank.ProofExhausted, 0
	}
	return c
}

// Evidence describes the state of a search after a round: everything that its
// certificate depends on.
type Evidence struct {
	Encoded rerank.Encoded
	// SingleInnerProduct and MaxScore are taken from rerank.Spec.
	SingleInnerProduct bool
	// SumsInnerProducts: φ adds inner products of rows, as late interaction does.
	SumsInnerProducts bool
	MaxScore          float32

	// Known is a bound of φ over the items outside the answer that does not depend on the lists, as of a rewritten
	// search; nil if there is none.
	Known *rerank.Bound

	Probes []rerank.Probe
	Lists  []rerank.List
	// Target is the probe whose inner product is φ itself, or nil.
	Target *rerank.Probe
	// Scanned: every item of the table, or behind the filter, was scored.
	Scanned bool

	K           int     // how many rows the certificate covers
	Hits        int     // how many rows were found
	Finite      int     // how many of the hits have a finite score; they rank first
	KthScore    float32 // the score of row K, or of the last finite row before it
	MedianScore float32 // the median score of the rows up to that one
	Measured    *rerank.Measured
	Depth       int
	Rounds      int
	Candidate   int // number of candidates that were scored

	// RoundingError bounds how far off the hits' scores are. If they are Refined (scored in
	// float64, and proved to be the best of the scored items), it covers all rounding, otherwise
	// only rounding to the table's format.
	RoundingError float32
	Refined       bool
	// Closest is the least difference between neighbours among the first K hits.
	Closest float32
	// Outside bounds φ of the scored items that are not among the first k, given how far off the
	// scores computed in float32 are.
	Outside func(k int, off float32) float32
	// Source is where the lists and the scores come from.
	Source Source
	// WrongNorm: the route declares unit vectors, and a row without norm 1 was seen, so no list
	// proves anything.
	WrongNorm bool
	// Restricted: a filter, partitions or excluded items restrict the search. HidesRows: a filter
	// or partitions do, which may hide some of an item's rows and not others.
	Restricted, HidesRows bool
	// OwnersInCollection: rows of the collection belong to items.
	OwnersInCollection bool
	// Rule says how the candidates were found.
	Rule rerank.Rule
	// Audited: the route promises a recall. Calibration is the calibration behind the promise, or nil; Void says
	// why answers may not carry it at present.
	Audited     bool
	Calibration *rerank.Calibration
	Void        string
}

// Certificate returns the certificate of the answer as it is after this round. The
// caller fills in Stop.
func (e *Evidence) Certificate() rerank.Certificate {
	c := rerank.Certify(e.proof())
	switch {
	case c.Status != rerank.StatusExact:
	case e.isVacuous(c):
		c.Status, c.Proof, c.Ordered = rerank.StatusUnknown, rerank.ProofNone, false
	default:
		c.Status, c.AsOf = e.Source.proves()
	}
	c.Depth, c.Rounds, c.Candidates = e.Depth, e.Rounds, e.Candidate
	c.Tied = e.Depth > e.K && e.tied(c) // a list that ends at the K-th row shows no item after it
	e.addPromise(&c)
	return c
}

// proof returns the proof that the evidence supports, or "".
func (e *Evidence) proof() rerank.Evidence {
	out := rerank.Evidence{
		K: e.K, Returned: min(e.K, e.Finite), MaxScore: e.MaxScore, Bound: e.bound(),
		Scanned: e.Scanned, Measured: e.Measured, SingleInnerProduct: e.SingleInnerProduct && e.Target != nil,
		// Under a filter or in partitions, an item of several rows can own rows that no
		// list could show, so that the thresholds say nothing about it. In a companion
		// all rows of an item have its payload.
		ListsExact: e.listsExact() && (!e.OwnersInCollection || !e.HidesRows),
	}
	if e.Outside != nil {
		out.HitError = max(0, out.Bound.Epsilon-out.Bound.Lists)
		out.Closest, out.Outside = e.Closest, e.Outside(e.K, out.HitError)
	}
	if e.Finite > 0 {
		out.KthScore = e.KthScore
	}
	if exact, _ := e.exhausted(); exact {
		out.Bound.Max, out.ListsExact = float32(math.Inf(-1)), true
	}
	return out
}

// bound returns the highest score of an item in no list, widened by the error of the hits' scores.
// If those were rounded, only a similarity that is an inner product, or a sum of such, has a useful
// bound; for another one nothing is proved, and nothing is proved from a table or companion that may lack
// writes.
func (e *Evidence) bound() rerank.Bound {
	var b rerank.Bound
	if e.Known != nil {
		b = *e.Known
	} else {
		b = e.Encoded.Bound(e.Probes, e.Lists)
	}
	switch {
	case e.Refined:
		b.Epsilon = b.Lists + e.RoundingError
	case e.RoundingError > 0 && !e.SingleInnerProduct && !e.SumsInnerProducts:
		b.Epsilon = float32(math.Inf(1))
	default:
		b.Epsilon += e.RoundingError
	}
	if e.Source.isBehind() || e.WrongNorm && !e.Scanned {
		b.Epsilon = float32(math.Inf(1))
	}
	return b
}

func (e *Evidence) listsExact() bool {
	for _, l := range e.Lists {
		if !l.Exact {
			return false
		}
	}
	return len(e.Lists) > 0
}

// exhausted reports whether one exact list holds every item, so that no item is unseen, and whether
// no list can get longer.
func (e *Evidence) exhausted() (exact, all bool) {
	all = len(e.Lists) > 0
	for _, l := range e.Lists {
		exact = exact || l.Exhausted && l.Exact
		all = all && l.Exhausted
	}
	return exact, all
}

// addPromise adds the route's calibration to a certificate that proves nothing, or the reason why
// it does not apply.
func (e *Evidence) addPromise(c *rerank.Certificate) {
	if !e.Audited || c.Status != rerank.StatusUnknown {
		return
	}
	void := e.Void
	if e.Calibration != nil && void == "" {
		void = e.Calibration.Lacks(e.K, e.Rule, e.HidesRows, e.Restricted)
	}
	if void == "" && e.Source.isBehind() {
		void = rerank.UncalibratedBehind
	}
	if c.Uncalibrated = void; e.Calibration != nil && void == "" {
		c.Status, c.Calibration = rerank.StatusCalibrated, e.Calibration
	}
}

// Limits say how long a search may go on.
type Limits struct {
	MaxGap              *float32 // nil if no proof was asked for
	MaxRounds, MaxDepth int
}

// Stop returns why the search should end after this round, or "" if another round pays. c is the
// certificate of this round, last the certificate of the round before, and took how long this round
// took.
func (e *Evidence) Stop(ctx context.Context, l Limits, c, last rerank.Certificate, took time.Duration) rerank.Stop {
	exact, all := e.exhausted()
	settled := !e.tied(c) && e.Hits >= e.K
	switch {
	case exact || all:
		return rerank.StopExhausted
	case settled && l.MaxGap == nil:
		return rerank.StopFixed
	case settled && (c.Proved() || c.Gap <= *l.MaxGap):
		return rerank.StopGap
	case settled && !e.narrowed(c, last), !settled && e.Hits >= e.K && e.staysTied(c, last, l):
		return rerank.StopUnbounded
	case c.Rounds >= l.MaxRounds || e.Depth >= l.MaxDepth:
		return rerank.StopLimit
	case !anotherRoundFits(ctx, took):
		return rerank.StopDeadline
	}
	return ""
}

// StopRewritten returns why a rewritten search ended, which always has a single round.
func (e *Evidence) StopRewritten(maxGap *float32, c rerank.Certificate) rerank.Stop {
	exact, _ := e.exhausted()
	switch {
	case exact:
		return rerank.StopExhausted
	case maxGap == nil:
		return rerank.StopFixed
	case c.Proved() || c.Gap <= *maxGap:
		return rerank.StopGap
	default:
		return rerank.StopUnbounded // deeper lists would come from the same index
	}
}

// tied reports whether an item after the last row of an exact list of φ itself may have the same
// score as the K-th, and so may rank before it by its id. Approximate lists never settle that,
// however deep.
func (e *Evidence) tied(c rerank.Certificate) bool {
	if e.Target == nil || len(e.Probes) != 1 || e.Finite < e.K || !e.listsExact() {
		return false
	}
	b := e.Encoded.Bound(e.Probes, e.Lists)
	return b.Max >= c.KthScore-2*b.Epsilon
}

// staysTied reports whether only rounding leaves the K-th place open, and the remaining rounds
// would not close it at the pace of the last one: the rounding of a few very long rows can exceed
// all differences between scores. Equal scores are different, because deeper lists show where they
// end.
func (e *Evidence) staysTied(c, last rerank.Certificate, l Limits) bool {
	if last.Rounds == 0 || !(c.Max < c.KthScore) {
		return false
	}
	left := 2*e.Encoded.Bound(e.Probes, e.Lists).Epsilon - (c.KthScore - c.Max)
	pace := (c.KthScore - c.Max) - (last.KthScore - last.Max)
	return !(pace*float32(l.MaxRounds-c.Rounds) > left)
}

// vacuous is the share of a score above which a rounding error is no longer small.
const vacuous = 1e-3

// isVacuous reports whether the rounding error is so large that the K-th place is open to items in
// no list, and is no small part of the scores.
func (e *Evidence) isVacuous(c rerank.Certificate) bool {
	if c.Proof != rerank.ProofInnerProduct && c.Proof != rerank.ProofBound {
		return false
	}
	usual := max(e.MedianScore, -e.MedianScore, c.KthScore, -c.KthScore)
	return c.Epsilon > vacuous*usual && c.KthScore-c.Max <= 2*c.Epsilon
}

// narrowed reports whether the lists are exact and bound φ, and the gap is smaller than after the
// round before.
func (e *Evidence) narrowed(c, last rerank.Certificate) bool {
	if !e.listsExact() || !(c.Max < e.MaxScore) {
		return false
	}
	return last.Rounds == 0 || c.Max < last.Max || c.KthScore > last.KthScore
}

// anotherRoundFits reports whether a round of twice the depth, and so about twice
// the time, would end before the deadline.
func anotherRoundFits(ctx context.Context, took time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > 2*took
}

// Unproved returns a certificate that claims nothing, and keeps c's record of the search: rounds,
// depth, candidates and stop. Answers in a ranker's or the store's order get it.
func Unproved(c rerank.Certificate) rerank.Certificate {
	inf := float32(math.Inf(1))
	return rerank.Certificate{
		Status: rerank.StatusUnknown, Gap: inf, Max: inf, KthScore: -inf,
		Stop: c.Stop, Depth: c.Depth, Rounds: c.Rounds, Candidates: c.Candidates,
	}
}
