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

// finder runs the steps retrieve, score and certify of one plan, and holds their results. Its loop,
// find, is in search.go.
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

func (s *search) newFinder(p *plan.Plan) *finder {
	v := s.view
	f := &finder{
		view: v, plan: p, reader: &retrieve.Reader{View: v},
		query: score.Query{Query: p.Request.Query, Encoded: p.Encoded, K: p.Request.K, Proof: p.Request.MaxGap != nil, Settle: !v.Spec.SingleInnerProduct && v.Spec.Kind != rerank.KindLate, Keep: p.Request.Explain || s.spending.KeepsRows()},
	}
	if f.certifiedK = p.AnswerRows; s.spending.OrdersAnswer() {
		f.certifiedK = p.Request.K
	}
	f.scorer = &score.Scorer{Turns: v.Turns, Table: v.Table, Scanner: v.Scanner()}
	if v.StoreCan.Fetch != nil {
		f.scorer.ReadExact = f.reader.Exact
	}
	rows := v.Table
	if v.Placement != route.PlacementTable && p.Request.Strategy != rerank.Scan {
		rows = nil
	}
	f.found = score.NewFound(rows, p.Request.Strategy == rerank.Scan, f.query.Proof, p.Can)
	return f
}

// scan scores every item of the table, or every item that the filter lets through.
func (f *finder) scan(ctx context.Context) error {
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
	if !p.Rewritten { // a rewritten answer has the store's scores, which may be off by more
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
