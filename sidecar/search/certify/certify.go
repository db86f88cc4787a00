// Package certify is the fourth step of a search: it says how exact the answer is,
// and whether a deeper round could make it more so. It works on values and calls
// nobody.
package certify

import (
	"context"
	"math"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// Source says who searched the data that an answer rests on, and how fresh the data is.
// The zero value stands for the database itself: it searched its own rows in this
// request, so that a proof holds for the collection.
type Source struct {
	// Derived: the answer rests on a table or companion. The fields below describe these
	// derived data, and are ignored without it.
	Derived bool
	// Behind: a write was seen, or may have been missed, that the derived data may not show.
	// Nothing is proved then.
	Behind bool
	// SeesEveryWrite: the operator declares that all writes pass through this process, and
	// nothing contradicts it. Only then the derived data, if not behind, is the collection.
	SeesEveryWrite bool
	// AsOf is a time before which every write is shown, whoever made it; zero if unknown.
	AsOf time.Time
}

// proves returns what a proof of an answer from this source claims.
func (s Source) proves() (status rerank.Status, asOf time.Time) {
	if s.Derived && !s.SeesEveryWrite {
		return rerank.StatusSnapshot, s.AsOf
	}
	return rerank.StatusExact, time.Time{}
}

func (s Source) isBehind() bool { return s.Derived && s.Behind }

// Evidence describes the state of a search after a round: everything that its
// certificate depends on.
type Evidence struct {
	Encoded rerank.Encoded
	// SingleInnerProduct and MaxScore are taken from rerank.Spec.
	SingleInnerProduct bool
	MaxScore           float32

	// Known is the bound of the items that are not in the answer, where the lists need
	// not be looked through for it; otherwise it is nil.
	Known *rerank.Bound

	Probes []rerank.Probe
	Lists  []rerank.List
	// Target is the probe whose inner product is φ itself, or nil.
	Target *rerank.Probe
	// Scanned: every item of the table, or behind the filter, was scored.
	Scanned bool

	K           int     // rows that the certificate is about
	Hits        int     // rows found
	Finite      int     // of the hits, those with a finite score; they rank first
	KthScore    float32 // score of row K, or of the last finite one before it
	MedianScore float32 // of the rows up to that one
	Measured    *rerank.Measured
	Depth       int
	Rounds      int
	Candidate   int // number of candidates that were scored

	// RoundingError bounds how far the hits' scores are off: if they are Refined (scored
	// in float64, and proved to be the best that were scored) from all roundings,
	// otherwise because the table's format rounds.
	RoundingError float32
	Refined       bool
	// Closest is the least difference between neighbours among the first K hits.
	Closest float32
	// Outside bounds φ of the scored items that are not among the first k, given how far
	// scores are off that were computed in float32.
	Outside func(k int, off float32) float32
	// Source is where the lists and the scores come from.
	Source Source
	// WrongNorm: the route declares unit vectors, and a row was seen that has none, so that
	// no list proves anything.
	WrongNorm bool
	// Restricted: a filter or partitions restrict the search.
	Restricted bool
	// OwnersInCollection: rows of the collection belong to items.
	OwnersInCollection bool
	// Rule says how the candidates were found.
	Rule rerank.Rule
	// Audited: the route has a promise. Calibration is its calibration, or nil; Void
	// says why no answer may carry it.
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
	c.Depth, c.Rounds, c.Candidates, c.Tied = e.Depth, e.Rounds, e.Candidate, e.tied(c)
	e.addPromise(&c)
	return c
}

// proof returns what can be proved from the evidence.
func (e *Evidence) proof() rerank.Evidence {
	out := rerank.Evidence{
		K: e.K, Returned: min(e.K, e.Finite), MaxScore: e.MaxScore, Bound: e.bound(),
		Scanned: e.Scanned, Measured: e.Measured, SingleInnerProduct: e.SingleInnerProduct && e.Target != nil,
		// Under a filter or in partitions, an item of several rows can own rows that no
		// list could show, so that the thresholds say nothing about it. In a companion
		// all rows of an item have its payload.
		ListsExact: e.listsExact() && (!e.OwnersInCollection || !e.Restricted),
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

// bound returns the most that an item in no list can score, widened by the error of
// the hits' scores. Only a similarity that is one inner product has a bound of use
// then; nothing is proved of another's rounded scores, nor of a table or companion
// that may not show every write.
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
	case e.RoundingError > 0 && !e.SingleInnerProduct:
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

// exhausted reports whether one exact list holds every item, which proves that
// nothing is unseen, and whether no list can get any longer.
func (e *Evidence) exhausted() (exact, all bool) {
	all = len(e.Lists) > 0
	for _, l := range e.Lists {
		exact = exact || l.Exhausted && l.Exact
		all = all && l.Exhausted
	}
	return exact, all
}

// addPromise makes a certificate that proves nothing carry the route's calibration,
// or say why it does not.
func (e *Evidence) addPromise(c *rerank.Certificate) {
	if !e.Audited || c.Status != rerank.StatusUnknown {
		return
	}
	void := e.Void
	if e.Calibration != nil && void == "" {
		void = e.Calibration.Lacks(e.K, e.Rule, e.Restricted)
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
	MaxGap              *float32 // nil: no proof was asked for
	MaxRounds, MaxDepth int
}

// Stop says why to search no deeper, or "" if another round pays. c is the
// certificate of this round, last the certificate of the round before, and took the
// duration of this round.
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

// StopRewritten says why a rewritten search, which is over after one round, is over.
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

// tied reports whether an item behind the last row of an exact list of φ's inner
// product may score as much as the K-th, and so come before it by its id. Over
// approximate lists no depth settles the order.
func (e *Evidence) tied(c rerank.Certificate) bool {
	if e.Target == nil || len(e.Probes) != 1 || e.Finite < e.K || !e.listsExact() {
		return false
	}
	b := e.Encoded.Bound(e.Probes, e.Lists)
	return b.Max >= c.KthScore-2*b.Epsilon
}

// staysTied reports whether rounding alone leaves the K-th place open, and the rounds
// that are left do not close it at the pace of the last one. The rounding of a few very
// long rows can exceed the differences of all scores. Equal scores are another matter:
// deeper lists show where they end.
func (e *Evidence) staysTied(c, last rerank.Certificate, l Limits) bool {
	if last.Rounds == 0 || !(c.Max < c.KthScore) {
		return false
	}
	left := 2*e.Encoded.Bound(e.Probes, e.Lists).Epsilon - (c.KthScore - c.Max)
	pace := (c.KthScore - c.Max) - (last.KthScore - last.Max)
	return !(pace*float32(l.MaxRounds-c.Rounds) > left)
}

// vacuous is the share of a score beyond which an error of rounding is no longer small.
const vacuous = 1e-3

// isVacuous reports whether rounding leaves the K-th place open to items that no list
// showed, and is no small part of the scores.
func (e *Evidence) isVacuous(c rerank.Certificate) bool {
	if c.Proof != rerank.ProofInnerProduct && c.Proof != rerank.ProofBound {
		return false
	}
	usual := max(e.MedianScore, -e.MedianScore, c.KthScore, -c.KthScore)
	return c.Epsilon > vacuous*usual && c.KthScore-c.Max <= 2*c.Epsilon
}

// narrowed reports whether the lists are exact, bound φ, and left less room than
// after the round before.
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

// Unproved returns a certificate that claims nothing. It keeps c's record of the search:
// rounds, depth, candidates and stop. It is for answers in the order of a ranker or of the
// store.
func Unproved(c rerank.Certificate) rerank.Certificate {
	inf := float32(math.Inf(1))
	return rerank.Certificate{
		Status: rerank.StatusUnknown, Gap: inf, Max: inf, KthScore: -inf,
		Stop: c.Stop, Depth: c.Depth, Rounds: c.Rounds, Candidates: c.Candidates,
	}
}
