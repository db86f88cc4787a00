package certify

import (
	"context"
	"math"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// bounded is an Encoded with only Bound.
type bounded struct {
	rerank.Encoded
	bound rerank.Bound
}

func (b bounded) Bound([]rerank.Probe, []rerank.List) rerank.Bound { return b.bound }

var infinite = float32(math.Inf(1))

// exactList returns the evidence of one list ordered by φ, from a store that searched exhaustively.
// The scores are the hits', best first.
func exactList(k int, bound rerank.Bound, scores ...float32) *Evidence {
	probes := []rerank.Probe{{Target: rerank.TargetScore}}
	e := &Evidence{Encoded: bounded{bound: bound}, Probes: probes, Target: &probes[0], Lists: []rerank.List{{Exact: true}}, K: k, Hits: len(scores)}
	for _, x := range scores {
		if !math.IsInf(float64(x), 0) && !math.IsNaN(float64(x)) {
			e.Finite++
			e.KthScore = x
		}
	}
	return e
}

// TestTied: a list is deepened while a row after it may score as much as the K-th, within the
// errors of both. A tie to the last bit counts.
func TestTied(t *testing.T) {
	for name, c := range map[string]struct {
		max, epsilon float32
		scores       []float32
		inexact      bool
		want         bool
	}{
		"below":                      {1, 0, []float32{3, 2}, false, false},
		"equal":                      {2, 0, []float32{3, 2}, false, true},
		"above":                      {2.5, 0, []float32{3, 2}, false, true},
		"below by both roundings":    {1.5, 0.25, []float32{3, 2}, false, true},
		"below by more than both":    {1.25, 0.25, []float32{3, 2}, false, false},
		"exhausted":                  {-infinite, 0.25, []float32{3, 2}, false, false},
		"fewer than K":               {2, 0, []float32{3}, false, false},
		"approximate":                {2, 0, []float32{3, 2}, true, false},
		"the K-th is no number":      {2, 0, []float32{3, infinite}, false, false},
		"more than K were not asked": {2, 0, []float32{4, 3}, false, false},
	} {
		s := exactList(2, rerank.Bound{Max: c.max, Epsilon: c.epsilon}, c.scores...)
		s.Lists[0].Exact = !c.inexact
		if got := s.tied(rerank.Certificate{KthScore: c.scores[len(c.scores)-1]}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestTieThatNoRowShows: the certificate says that the K-th is tied only if the list reaches behind it. A
// search whose list ends there goes on.
func TestTieThatNoRowShows(t *testing.T) {
	for depth, want := range map[int]bool{2: false, 3: true} {
		s := exactList(2, rerank.Bound{Max: 2}, 3, 2)
		s.Depth = depth
		if c := s.Certificate(); c.Tied != want {
			t.Errorf("depth %d: tied %t, want %t", depth, c.Tied, want)
		}
		if stop := s.Stop(t.Context(), Limits{MaxRounds: 2, MaxDepth: 10}, s.Certificate(), rerank.Certificate{}, 0); stop != "" {
			t.Errorf("depth %d: the search ends, %s", depth, stop)
		}
	}
}

// TestSettled: a search continues while the K-th place is not settled, whatever gap was requested,
// and ends once it is.
func TestSettled(t *testing.T) {
	tie, clear := rerank.Bound{Max: 2}, rerank.Bound{Max: 1}
	gap := float32(100)
	for name, c := range map[string]struct {
		bound  rerank.Bound
		scores []float32
		gap    *float32
		want   rerank.Stop
	}{
		"settled":              {clear, []float32{3, 2}, nil, rerank.StopFixed},
		"a tie":                {tie, []float32{3, 2}, nil, ""},
		"too few":              {clear, []float32{3}, nil, ""},
		"a tie within the gap": {tie, []float32{3, 2}, &gap, ""},
		"within the gap":       {clear, []float32{3, 2}, &gap, rerank.StopGap},
	} {
		s := exactList(2, c.bound, c.scores...)
		s.Depth = 10
		certificate := rerank.Certificate{KthScore: c.scores[len(c.scores)-1], Gap: 1, Rounds: 1}
		if got := s.Stop(context.Background(), Limits{MaxGap: c.gap, MaxRounds: 9, MaxDepth: 1000}, certificate, rerank.Certificate{}, 0); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestEvidence checks each field of the evidence: finite hits, lists, errors that a device
// measured, and the effects of rounded rows and of writes that are not visible yet.
func TestEvidence(t *testing.T) {
	bound := rerank.Bound{Max: 7, Epsilon: 0.25}
	for name, c := range map[string]struct {
		change func(*Evidence)
		want   rerank.Evidence
	}{
		"as found":    {func(*Evidence) {}, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
		"not numbers": {func(s *Evidence) { s.Hits, s.Finite, s.KthScore = 4, 2, 8 }, rerank.Evidence{Returned: 2, KthScore: 8, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
		"measured": {func(s *Evidence) { s.Scanned, s.Measured = true, &rerank.Measured{Pairs: 5} },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true, Scanned: true, Measured: &rerank.Measured{Pairs: 5}}},
		"one list is approximate": {func(s *Evidence) { s.Lists = append(s.Lists, rerank.List{}) }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"no list":                 {func(s *Evidence) { s.Lists = nil }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"an approximate list ends": {func(s *Evidence) { s.Lists = []rerank.List{{Exhausted: true}} },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"an exact list ends": {func(s *Evidence) { s.Lists = []rerank.List{{}, {Exhausted: true, Exact: true}} },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: -infinite, Epsilon: 0.25}, ListsExact: true, SingleInnerProduct: true}},
		"a probe that only suggests": {func(s *Evidence) { s.Target = nil }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true}},
		"rounded rows":               {func(s *Evidence) { s.RoundingError = 0.5 }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: 0.75}, ListsExact: true, SingleInnerProduct: true}},
		"rows of gates":              {func(s *Evidence) { s.SingleInnerProduct = false }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true}},
		"rounded rows of gates": {func(s *Evidence) { s.RoundingError, s.SingleInnerProduct = 0.5, false },
			rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: infinite}, ListsExact: true}},
		"scored in float64": {func(s *Evidence) {
			s.Encoded = bounded{bound: rerank.Bound{Max: 7, Epsilon: 0.75, Lists: 0.5}}
			s.RoundingError, s.Refined, s.SingleInnerProduct = 0.125, true, false
			s.Closest, s.Outside = 1, func(k int, off float32) float32 { return float32(k) + off }
		}, rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: 0.625, Lists: 0.5}, ListsExact: true, HitError: 0.125, Closest: 1, Outside: 3.125}},
		"writes are not shown":           {func(s *Evidence) { s.Source = Source{Derived: true, Behind: true} }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: rerank.Bound{Max: 7, Epsilon: infinite}, ListsExact: true, SingleInnerProduct: true}},
		"rows of items under a filter":   {func(s *Evidence) { s.OwnersInCollection, s.HidesRows = true, true }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, SingleInnerProduct: true}},
		"rows of items without a filter": {func(s *Evidence) { s.OwnersInCollection = true }, rerank.Evidence{Returned: 3, KthScore: 4, Bound: bound, ListsExact: true, SingleInnerProduct: true}},
	} {
		s := exactList(3, bound, 9, 8, 4)
		s.SingleInnerProduct, s.MaxScore = true, 20
		c.change(s)
		c.want.K, c.want.MaxScore = 3, 20
		got := s.proof()
		if got.Measured != nil && c.want.Measured != nil && *got.Measured == *c.want.Measured {
			got.Measured = c.want.Measured
		}
		if got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// TestVacuous: a rounding error that is no small part of the scores, whatever their sign, proves nothing while it leaves
// the K-th place open. What needs no bound is proved all the same.
func TestVacuous(t *testing.T) {
	for name, c := range map[string]struct {
		median, kth, max, epsilon float32
		proof                     rerank.Proof
		want                      bool
	}{
		"small beside the scores":        {2, 1, 1, 1e-3, rerank.ProofInnerProduct, false},
		"large beside the scores":        {2, 1, 1, 3e-3, rerank.ProofInnerProduct, true},
		"by a bound":                     {2, 1, 1, 3e-3, rerank.ProofBound, true},
		"large, every item was scored":   {2, 1, 1, 3e-3, rerank.ProofScan, false},
		"large, the place is settled":    {2, 1, 0.9, 3e-3, rerank.ProofInnerProduct, false},
		"small, negative scores":         {-1, -2, -2, 1e-3, rerank.ProofInnerProduct, false},
		"large, negative scores":         {-1, -2, -2, 3e-3, rerank.ProofInnerProduct, true},
		"small beside a negative median": {-2, -1, -1, 1e-3, rerank.ProofInnerProduct, false},
	} {
		e := &Evidence{MedianScore: c.median}
		if got := e.isVacuous(rerank.Certificate{Proof: c.proof, Epsilon: c.epsilon, KthScore: c.kth, Max: c.max}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
