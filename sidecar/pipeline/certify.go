package pipeline

import (
	"context"
	"math"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// certify fills in the certificate of what was found so far.
func (s *search) certify(ctx context.Context, r Request, round int) {
	_, span := s.span(ctx, "certify")
	defer span.End()
	began := time.Now()
	s.settleDoubt(ctx)
	c := rerank.Certify(s.evidence(s.certifiedK()))
	c.Depth, c.Rounds, c.Candidates = r.Depth, round, s.scored+s.left
	s.calibrate(r, &c)
	s.answer.Certificate = c
	s.answer.Timings.Certify += time.Since(began)
}

// evidence returns what is known of the best k hits.
func (s *search) evidence(k int) rerank.Evidence {
	e := rerank.Evidence{
		K: k, Returned: min(k, s.found()), MaxScore: s.spec.MaxScore,
		Bound:   s.roughly(s.enc.Bound(s.probes, s.lists)),
		Scanned: s.r.Strategy == rerank.Scan, Measured: s.measured, SingleInnerProduct: s.spec.SingleInnerProduct && s.target() != nil,
		// Under a filter or in partitions, an item of several rows can own rows that
		// no list could show, so that the thresholds say nothing of it. In a companion
		// all rows of an item have its payload.
		ListsExact: s.listsExact() && (s.ownerIn(s.Collection) == "" || s.whole()),
	}
	if e.Returned > 0 {
		e.KthScore = s.hits[e.Returned-1].Score
	}
	if exact, _ := s.exhausted(); exact {
		e.Bound.Max, e.ListsExact = float32(math.Inf(-1)), true
	}
	return e
}

// whole reports whether the search is of the whole collection.
func (s *search) whole() bool { return s.r.Filter == "" && len(s.r.Partitions) == 0 }

// found is the number of hits whose score is finite.
func (s *search) found() int {
	n := len(s.hits)
	for n > 0 && !finite(s.hits[n-1].Score) {
		n--
	}
	return n
}

// target is the probe whose inner product is φ itself, nil if there is none.
func (s *search) target() *rerank.Probe {
	for i := range s.probes {
		if s.probes[i].Target == rerank.TargetScore {
			return &s.probes[i]
		}
	}
	return nil
}

func (s *search) listsExact() bool {
	for _, l := range s.lists {
		if !l.Exact {
			return false
		}
	}
	return len(s.lists) > 0
}

// exhausted reports whether one exact list holds every item, which proves that
// nothing is unseen, and whether no list can get any longer.
func (s *search) exhausted() (exact, all bool) {
	all = len(s.lists) > 0
	for _, l := range s.lists {
		exact = exact || l.Exhausted && l.Exact
		all = all && l.Exhausted
	}
	return exact, all
}

// listCertificate certifies every rank that the lists serve, not the requested page
// alone, so that all pages of a query stop at the same depth.
func (s *search) listCertificate(round int) rerank.Certificate {
	if s.certifiedK() == s.r.K {
		return s.answer.Certificate
	}
	c := rerank.Certify(s.evidence(s.r.K))
	c.Rounds = round
	return c
}

// stop says why to search no deeper, or "" if another round pays. c certifies the
// lists of this round and last the lists of the round before; took is the time of
// this round.
func (s *search) stop(ctx context.Context, r Request, c, last rerank.Certificate, took time.Duration) rerank.Stop {
	exact, all := s.exhausted()
	settled := !s.tied(c) && len(s.hits) >= s.r.K
	switch {
	case exact || all:
		return rerank.StopExhausted
	case settled && s.r.MaxGap == nil:
		return rerank.StopFixed
	case settled && (c.Status == rerank.StatusExact || c.Gap <= *s.r.MaxGap):
		return rerank.StopGap
	case settled && !s.narrows(c, last):
		return rerank.StopUnbounded
	case c.Rounds >= s.MaxRounds || r.Depth >= s.MaxDepth:
		return rerank.StopLimit
	case !fits(ctx, took):
		return rerank.StopDeadline
	}
	return ""
}

// tied: an item behind the last row of an inner product's exact list may score
// as much as the K-th, and come before it by its id. Over approximate lists no
// depth settles the order.
func (s *search) tied(c rerank.Certificate) bool {
	p := s.target()
	if p == nil || len(s.probes) != 1 || s.found() < s.r.K || !s.listsExact() {
		return false
	}
	bound := s.enc.Bound(s.probes, s.lists)
	return bound.Max >= c.KthScore-2*bound.Epsilon
}

// narrows: exact lists whose thresholds bound φ, and which fell since the last round.
func (s *search) narrows(c, last rerank.Certificate) bool {
	if !s.listsExact() || !(c.Max < s.spec.MaxScore) {
		return false
	}
	return last.Rounds == 0 || c.Max < last.Max || c.KthScore > last.KthScore
}

// fits reports whether a round of twice the depth, and so about twice the time,
// would end before the deadline.
func fits(ctx context.Context, took time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > 2*took
}
