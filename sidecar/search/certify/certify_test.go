package certify_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/certify"
)

// bounded is a query whose lists bound the score of unseen items by max.
type bounded struct {
	rerank.Encoded
	max, epsilon float32
}

func (b bounded) Bound([]rerank.Probe, []rerank.List) rerank.Bound {
	return rerank.Bound{Max: b.max, Epsilon: b.epsilon}
}

var inf = float32(math.Inf(1))

// evidence returns the evidence of one exact list, not exhausted, for an inner product that is φ:
// all three rows were found, the last scores 1, and an unseen item scores at most .5.
func evidence(change func(*certify.Evidence)) *certify.Evidence {
	probe := rerank.Probe{Target: rerank.TargetScore, Scale: 1}
	e := &certify.Evidence{
		Encoded: bounded{max: .5, epsilon: .001}, SingleInnerProduct: true, MaxScore: 10,
		Probes: []rerank.Probe{probe}, Lists: []rerank.List{{Exact: true, Scores: []float32{1}}}, Target: &probe,
		K: 3, Hits: 3, Finite: 3, KthScore: 1, Depth: 10, Rounds: 1, Candidate: 10,
	}
	if change != nil {
		change(e)
	}
	return e
}

func TestCertificate(t *testing.T) {
	calibration := &rerank.Calibration{K: 3, Rule: rerank.Rule{Strategy: rerank.Average, Depth: 10}}
	for name, c := range map[string]struct {
		change func(*certify.Evidence)
		status rerank.Status
		proof  rerank.Proof
		void   string
	}{
		"an exact list of φ itself":           {nil, rerank.StatusExact, rerank.ProofInnerProduct, ""},
		"an approximate list":                 {func(e *certify.Evidence) { e.Lists[0].Exact = false }, rerank.StatusUnknown, "", ""},
		"no probe stands for φ":               {func(e *certify.Evidence) { e.Target = nil }, rerank.StatusExact, rerank.ProofBound, ""},
		"an unseen item may score more":       {func(e *certify.Evidence) { e.Encoded = bounded{max: 1.1, epsilon: .001} }, rerank.StatusUnknown, "", ""},
		"rounding beyond the scores":          {func(e *certify.Evidence) { e.Encoded = bounded{max: .5, epsilon: 1} }, rerank.StatusUnknown, "", ""},
		"rounding, of greater scores":         {func(e *certify.Evidence) { e.Encoded, e.MedianScore = bounded{max: .5, epsilon: 1}, 1000 }, rerank.StatusExact, rerank.ProofInnerProduct, ""},
		"rounding that cannot reach":          {func(e *certify.Evidence) { e.Encoded = bounded{max: .5, epsilon: .24} }, rerank.StatusExact, rerank.ProofInnerProduct, ""},
		"rounding, and every item was scored": {func(e *certify.Evidence) { e.Encoded, e.Scanned = bounded{max: .5, epsilon: 1}, true }, rerank.StatusExact, rerank.ProofScan, ""},
		"too few rows":                        {func(e *certify.Evidence) { e.Finite = 2 }, rerank.StatusUnknown, "", ""},
		"too few rows, all that there are":    {func(e *certify.Evidence) { e.Finite, e.Lists[0].Exhausted = 2, true }, rerank.StatusExact, rerank.ProofExhausted, ""},
		"a scan":                              {func(e *certify.Evidence) { e.Scanned, e.Lists = true, nil }, rerank.StatusExact, rerank.ProofScan, ""},
		"a scan that a device measured":       {func(e *certify.Evidence) { e.Scanned, e.Lists, e.Measured = true, nil, &rerank.Measured{Pairs: 9} }, rerank.StatusCalibrated, "", ""},
		"writes that the table does not show": {func(e *certify.Evidence) {
			e.Source = certify.Source{Derived: true, Behind: true, SeesEveryWrite: true}
		}, rerank.StatusUnknown, "", ""},
		"writes that no table has to show": {func(e *certify.Evidence) { e.Source.Behind = true }, rerank.StatusExact, rerank.ProofInnerProduct, ""},
		"a table that others write past": {func(e *certify.Evidence) { e.Source.Derived, e.Scanned, e.Lists = true, true, nil },
			rerank.StatusSnapshot, rerank.ProofScan, ""},
		"a table that nobody writes past": {func(e *certify.Evidence) {
			e.Source, e.Scanned, e.Lists = certify.Source{Derived: true, SeesEveryWrite: true}, true, nil
		}, rerank.StatusExact, rerank.ProofScan, ""},
		"a companion that others write past, and no proof": {func(e *certify.Evidence) { e.Source.Derived, e.Lists[0].Exact = true, false }, rerank.StatusUnknown, "", ""},
		"rounded rows that may change more":                {func(e *certify.Evidence) { e.RoundingError = inf }, rerank.StatusUnknown, "", ""},
		"a bound of several terms, rounded":                {func(e *certify.Evidence) { e.SingleInnerProduct, e.RoundingError = false, 1e-6 }, rerank.StatusUnknown, "", ""},
		"rows that are no unit vectors":                    {func(e *certify.Evidence) { e.WrongNorm = true }, rerank.StatusUnknown, "", ""},
		"such rows, and every item was scored":             {func(e *certify.Evidence) { e.WrongNorm, e.Scanned, e.Lists = true, true, nil }, rerank.StatusExact, rerank.ProofScan, ""},
		"owners under a filter":                            {func(e *certify.Evidence) { e.OwnersInCollection, e.Restricted, e.HidesRows = true, true, true }, rerank.StatusUnknown, "", ""},
		"owners without a filter":                          {func(e *certify.Evidence) { e.OwnersInCollection = true }, rerank.StatusExact, rerank.ProofInnerProduct, ""},
		"a calibration of this rule": {func(e *certify.Evidence) {
			e.Lists[0].Exact, e.Audited, e.Calibration, e.Rule = false, true, calibration, calibration.Rule
		}, rerank.StatusCalibrated, "", ""},
		"a calibration of another depth": {func(e *certify.Evidence) {
			e.Lists[0].Exact, e.Audited, e.Calibration, e.Rule = false, true, calibration, rerank.Rule{Strategy: rerank.Average, Depth: 5}
		}, rerank.StatusUnknown, "", "depth"},
		"a calibration under a filter": {func(e *certify.Evidence) {
			e.Lists[0].Exact, e.Audited, e.Calibration, e.Rule, e.Restricted, e.HidesRows = false, true, calibration, calibration.Rule, true, true
		}, rerank.StatusUnknown, "", rerank.UncalibratedFilter},
		"a calibration of answers with all items, and some are excluded": {func(e *certify.Evidence) {
			e.Lists[0].Exact, e.Audited, e.Calibration, e.Rule, e.Restricted = false, true, calibration, calibration.Rule, true
		}, rerank.StatusUnknown, "", rerank.UncalibratedFilter},
		"a calibration of answers without some items": {func(e *certify.Evidence) {
			excluding := *calibration
			excluding.Excluding = true
			e.Lists[0].Exact, e.Audited, e.Calibration, e.Rule, e.Restricted = false, true, &excluding, calibration.Rule, true
		}, rerank.StatusCalibrated, "", ""},
		"a calibration that was revoked": {func(e *certify.Evidence) {
			e.Lists[0].Exact, e.Audited, e.Calibration, e.Rule, e.Void = false, true, calibration, calibration.Rule, "revoked"
		}, rerank.StatusUnknown, "", "revoked"},
		"a calibration of a table that lags": {func(e *certify.Evidence) {
			e.Audited, e.Calibration, e.Rule, e.Source = true, calibration, calibration.Rule, certify.Source{Derived: true, Behind: true}
		}, rerank.StatusUnknown, "", rerank.UncalibratedBehind},
		"a proof needs no calibration": {func(e *certify.Evidence) {
			e.Audited, e.Calibration, e.Rule = true, calibration, calibration.Rule
		}, rerank.StatusExact, rerank.ProofInnerProduct, ""},
	} {
		got := evidence(c.change).Certificate()
		if got.Status != c.status || got.Proof != c.proof || (c.void == "") != (got.Uncalibrated == "") {
			t.Errorf("%s: %s by %q, uncalibrated %q; want %s by %q, %q", name, got.Status, got.Proof, got.Uncalibrated, c.status, c.proof, c.void)
		}
		if got.Depth != 10 || got.Rounds != 1 || got.Candidates != 10 {
			t.Errorf("%s: depth %d, %d rounds, %d candidates, want 10, 1, 10", name, got.Depth, got.Rounds, got.Candidates)
		}
	}
}

// TestAsOf: only a snapshot states the time of its data.
func TestAsOf(t *testing.T) {
	at := time.Now()
	for want, source := range map[rerank.Status]certify.Source{
		rerank.StatusSnapshot: {Derived: true, AsOf: at},
		rerank.StatusExact:    {Derived: true, SeesEveryWrite: true, AsOf: at},
		rerank.StatusUnknown:  {Derived: true, Behind: true, AsOf: at},
	} {
		c := evidence(func(e *certify.Evidence) { e.Source = source }).Certificate()
		if c.Status != want || c.AsOf.Equal(at) != (want == rerank.StatusSnapshot) || c.Proved() != (want != rerank.StatusUnknown) {
			t.Errorf("%+v: %s as of %s, proved %t", source, c.Status, c.AsOf, c.Proved())
		}
	}
}

func TestStop(t *testing.T) {
	over, end := context.WithDeadline(t.Context(), time.Now().Add(time.Minute))
	defer end()
	none, small := float32(0), rerank.Certificate{Rounds: 1, Max: .5, KthScore: 1}
	for name, c := range map[string]struct {
		change func(*certify.Evidence)
		limits certify.Limits
		last   rerank.Certificate
		took   time.Duration
		want   rerank.Stop
	}{
		"nothing was asked to be proved":         {nil, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopFixed},
		"the proof is there, of a snapshot":      {func(e *certify.Evidence) { e.Source.Derived = true }, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopGap},
		"the proof is there":                     {nil, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopGap},
		"no further row":                         {func(e *certify.Evidence) { e.Lists[0].Exhausted = true }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopExhausted},
		"the next row may tie with the K-th":     {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: .001} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, ""},
		"a tie, but no depth is left":            {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: .001} }, certify.Limits{MaxRounds: 8, MaxDepth: 10}, rerank.Certificate{}, 0, rerank.StopLimit},
		"a tie, but no round is left":            {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: .001} }, certify.Limits{MaxRounds: 1, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopLimit},
		"a tie, but no time is left":             {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: .001} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, time.Hour, rerank.StopDeadline},
		"a tie, and time for a longer round":     {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: .001} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 20 * time.Second, ""},
		"a tie, and time for an equal round":     {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: .001} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 40 * time.Second, rerank.StopDeadline},
		"rounding ties, at a pace that suffices": {func(e *certify.Evidence) { e.Encoded = bounded{max: .5, epsilon: .5} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{Rounds: 1, Max: .6, KthScore: 1}, 0, ""},
		"rounding ties, at a pace that does not": {func(e *certify.Evidence) { e.Encoded = bounded{max: .5, epsilon: 5} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{Rounds: 1, Max: .6, KthScore: 1}, 0, rerank.StopUnbounded},
		"rounding ties, for the first time":      {func(e *certify.Evidence) { e.Encoded = bounded{max: .5, epsilon: 5} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, ""},
		"scores tie, and rounding":               {func(e *certify.Evidence) { e.Encoded = bounded{max: 1, epsilon: 5} }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{Rounds: 1, Max: 1, KthScore: 1}, 0, ""},
		"too few rows":                           {func(e *certify.Evidence) { e.Hits, e.Finite = 2, 2 }, certify.Limits{MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, ""},
		"the gap is open and narrows":            {open, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{Rounds: 1, Max: 9, KthScore: 1}, 0, ""},
		"the bound is wider, the K-th is better": {open, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{Rounds: 1, Max: .5, KthScore: .5}, 0, ""},
		"the gap is open and does not narrow":    {open, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, small, 0, rerank.StopUnbounded},
		"approximate lists prove at no depth":    {func(e *certify.Evidence) { open(e); e.Lists[0].Exact = false }, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopUnbounded},
		"lists that do not bound φ never will":   {func(e *certify.Evidence) { open(e); e.Encoded = bounded{max: inf} }, certify.Limits{MaxGap: &none, MaxRounds: 8, MaxDepth: 100}, rerank.Certificate{}, 0, rerank.StopUnbounded},
	} {
		e := evidence(c.change)
		if got := e.Stop(over, c.limits, e.Certificate(), c.last, c.took); got != c.want {
			t.Errorf("%s: stop %q, want %q", name, got, c.want)
		}
	}
}

// open leaves a gap between the K-th score and the bound, in a search of several lists.
func open(e *certify.Evidence) {
	e.Encoded, e.Target = bounded{max: 2, epsilon: .001}, nil
	e.Lists = append(e.Lists, rerank.List{Exact: true})
	e.Probes = append(e.Probes, rerank.Probe{})
}
