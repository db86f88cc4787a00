package search

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// finder runs the steps retrieve, score and certify of one plan, and holds their results.
type finder struct {
	view    route.View
	plan    *plan.Plan
	query   score.Query
	reader  *retrieve.Reader
	scorer  *score.Scorer
	timings Timings
	// certifiedK is how many hits the certificate covers: the rows of the answer or, for a ranker,
	// every candidate that it can choose from.
	certifiedK int

	union       retrieve.Union
	lists       []rerank.List // the lists of the last round
	found       score.Found
	certificate rerank.Certificate
}

// newFinder returns a finder for a plan that has its probes. It scores on this machine's processor.
func (s *search) newFinder(p *plan.Plan) *finder {
	v, r := s.view, p.Request
	f := &finder{
		view: v, plan: p, reader: &retrieve.Reader{View: v}, certifiedK: p.AnswerRows,
		scorer: &score.Scorer{Turns: v.Turns, Table: v.Table, Scanner: v.Scanner()},
		query: score.Query{
			Query: r.Query, Encoded: p.Encoded, K: r.K, Proof: r.MaxGap != nil,
			Settle: !v.Spec.SingleInnerProduct && v.Spec.Kind != rerank.KindLate,
			Keep:   r.Explain || s.spending.KeepsRows(),
		},
	}
	if s.spending.OrdersAnswer() {
		f.certifiedK = r.K
	}
	if v.StoreCan.Fetch != nil {
		f.scorer.ReadExact = f.reader.Exact
	}
	scans := r.Strategy == rerank.Scan
	rows := v.Table
	if v.Placement != route.PlacementTable && !scans {
		rows = nil // the scored rows come from the store
	}
	f.found = score.NewFound(rows, scans, f.query.Proof, p.Can)
	return f
}

// find retrieves and scores candidates, certifies, and repeats that with deeper lists as long as
// another round can improve the answer. A scan and a rewritten search take a single round.
func (f *finder) find(ctx context.Context) error {
	defer func() { f.timings.Retrieve, f.timings.Score = f.timings.Retrieve+f.reader.Fetching, f.found.Time }()
	switch {
	case f.plan.Request.Strategy == rerank.Scan:
		return f.scanTable(ctx)
	case f.plan.Rewritten:
		return f.searchRewritten(ctx)
	}
	var last rerank.Certificate // the certificate of the previous round
	for round := 1; ; round++ {
		began := time.Now()
		if err := f.round(ctx, round); err != nil {
			if f.certificate.Stop = stoppedBy(ctx, round, err); f.certificate.Stop != "" {
				return nil
			}
			return err
		}
		evidence, c := f.certify(ctx, round)
		limits := certify.Limits{MaxGap: f.plan.Request.MaxGap, MaxRounds: f.view.MaxRounds, MaxDepth: f.view.MaxDepth}
		if f.certificate.Stop = evidence.Stop(ctx, limits, c, last, time.Since(began)); f.certificate.Stop != "" {
			return nil
		}
		last = c
		if err := f.plan.Deepen(f.view); err != nil {
			return err
		}
	}
}

// round retrieves lists and scores the candidates that are new.
func (f *finder) round(ctx context.Context, round int) error {
	began := time.Now()
	lists, err := retrieve.Lists(ctx, f.view, f.plan, round)
	f.timings.Retrieve += time.Since(began)
	if err != nil {
		return err
	}
	fresh, err := f.union.Add(f.view, f.plan, lists, round)
	if err != nil {
		return err
	}
	batches, err := f.reader.Candidates(ctx, f.plan, fresh, lists, round)
	if err != nil {
		return err
	}
	err = f.scorer.Candidates(ctx, f.query, batches, &f.found)
	for i := range batches {
		if !f.query.Keep {
			batches[i].Free()
		}
	}
	if err != nil {
		return err
	}
	f.lists = lists
	return nil
}

// searchRewritten answers with the rows of one search by φ, in the store's order and with its scores.
// Which of the rows that tie with the K-th are in the answer is the store's choice.
func (f *finder) searchRewritten(ctx context.Context) error {
	began := time.Now()
	lists, err := retrieve.Lists(ctx, f.view, f.plan, 1)
	if errors.Is(err, adapters.ErrLimit) && retrieve.WithPayload(f.plan) { // the list would be too long for one message
		f.plan.PayloadApart = true
		lists, err = retrieve.Lists(ctx, f.view, f.plan, 1)
	}
	f.timings.Retrieve += time.Since(began)
	if err != nil {
		return err
	}
	if _, err := f.union.Add(f.view, f.plan, lists, 1); err != nil {
		return err
	}
	f.lists = lists
	f.found = score.FromList(lists[0], f.plan.Probes[0])
	evidence, c := f.certify(ctx, 1)
	f.certificate.Stop = evidence.StopRewritten(f.plan.Request.MaxGap, c)
	return nil
}

// scanTable scores every item of the table, or every item that the filter lets through.
func (f *finder) scanTable(ctx context.Context) error {
	within, notIndexed, err := f.reader.Matching(ctx, f.plan)
	if err != nil {
		return err
	}
	if err := f.scorer.All(ctx, f.query, within, &f.found); err != nil {
		return err
	}
	if len(notIndexed) > 0 {
		if err := f.scorer.Candidates(ctx, f.query, notIndexed, &f.found); err != nil {
			return err
		}
	}
	f.certify(ctx, 1)
	f.certificate.Stop = rerank.StopExhausted
	return nil
}

// certify sets the certificate of the answer after a round. It returns the evidence and the
// certificate for every rank that the lists serve, not only for the requested page: they decide
// whether to go deeper, so that all pages of a query stop at the same depth.
func (f *finder) certify(ctx context.Context, round int) (*certify.Evidence, rerank.Certificate) {
	_, sp := span.Step(ctx, "certify")
	defer sp.End()
	began := time.Now()
	defer func() { f.timings.Certify += time.Since(began) }()
	if f.plan.ReadsDerived(f.view) {
		f.view.SettleDoubt(ctx)
		f.view.Behind = f.view.Behind || f.reader.Changed
	}
	evidence := f.evidence(round, f.plan.Request.K)
	c := evidence.Certificate()
	f.certificate = c
	if f.certifiedK != evidence.K {
		f.certificate = f.evidence(round, f.certifiedK).Certificate()
	}
	return evidence, c
}

// evidence describes the first k hits after a round, for certify.
func (f *finder) evidence(round, k int) *certify.Evidence {
	v, p := f.view, f.plan
	e := &certify.Evidence{
		Encoded: p.Encoded, SingleInnerProduct: v.Spec.SingleInnerProduct, SumsInnerProducts: v.Spec.Kind == rerank.KindLate, MaxScore: v.Spec.MaxScore,
		Probes: p.Probes, Lists: f.lists, Target: p.TargetProbe(), Scanned: p.Request.Strategy == rerank.Scan,
		K: k, Hits: len(f.found.Hits), Finite: f.found.Finite(), Measured: f.found.Measured,
		Depth: p.Depth, Rounds: round, Candidate: f.found.Scored + f.found.Spared,
		RoundingError: f.found.RoundingError(), Refined: f.found.Refined(), Source: f.source(), WrongNorm: v.Norms.Wrong() != nil,
		Restricted: !p.Request.IsUnrestricted(), HidesRows: p.Request.HidesRows(), OwnersInCollection: v.OwnerIn(v.Collection) != "", Rule: p.Rule(v),
	}
	if !p.Rewritten { // Closest and Outside assume scores of this machine; the store's may be off by more
		e.Closest, e.Outside = f.found.Closest(k), f.found.Outside
	}
	if field := v.Field; p.Rewritten && field.Quantized != "" && !field.Rescores {
		e.RoundingError = float32(math.Inf(1)) // the database scored rounded vectors, with an error that it does not tell
	}
	if n := min(k, e.Finite); n > 0 {
		e.MedianScore, e.KthScore = f.found.Hits[n/2].Score, f.found.Hits[n-1].Score
	}
	if v.Promise != nil {
		e.Audited = true
		e.Calibration, e.Void = v.Promise.Calibration()
	}
	return e
}

// source says where the plan's lists and scores come from, and how fresh that data is.
func (f *finder) source() certify.Source {
	v := f.view
	return certify.Source{
		Derived: f.plan.ReadsDerived(v), Behind: v.Behind,
		SeesEveryWrite: v.SeesEveryWrite(), AsOf: v.Horizon.AsOf,
	}
}

// stoppedBy returns why a later round ended early, so that the hits of the rounds before are the
// answer. It returns "" if the error ends the search.
func stoppedBy(ctx context.Context, round int, err error) rerank.Stop {
	switch {
	case round == 1:
		return ""
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return rerank.StopDeadline
	case errors.Is(err, adapters.ErrLimit):
		return rerank.StopLimit
	default:
		return ""
	}
}
