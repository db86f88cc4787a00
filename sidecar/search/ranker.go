package search

import (
	"context"
	"log/slog"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// rank lets the ranker score the best candidates in rounds. Between two rounds it fits the query to
// the scores so far and searches again. It returns the rows of the answer in their order.
func (s *search) rank(ctx context.Context, first *finder) ([]rerank.Scored, error) {
	k := s.plan.AnswerRows
	candidates := rank.Candidates{Hits: first.found.Hits, Rows: first.itemRows, Database: s.mixIn(ctx)}
	for i, calls := range s.spending.Shares(candidates) {
		if i > 0 && s.spending.CanRefine() {
			from := s.findRefined(ctx, first, calls)
			candidates = rank.Candidates{Hits: from.found.Hits, Rows: from.itemRows}
		}
		if !s.spending.Round(ctx, candidates, calls, k) {
			break
		}
	}
	c := s.answer.Certificate
	rows, err := s.spending.Order(ctx, first.found.Hits, k, s.plan.Request.IsUnrestricted())
	if err != nil {
		rows, err = s.orderWithoutRanker(ctx, first.found.Hits, err)
	}
	// nothing is proved about a ranker's order
	s.answer.Certificate = certify.Unproved(c)
	return rows, err
}

// mixIn returns the items of the store's own order that the ranker scores in its first round. If the
// store cannot be searched, the ranker scores the similarity's candidates alone.
func (s *search) mixIn(ctx context.Context) []rerank.ID {
	r := s.plan.Request
	n := int(*r.Mix * float64(s.spending.FirstShare()))
	switch {
	case n == 0:
		return nil
	case len(r.StoredVector) > 0:
		r.Query.Vector = r.StoredVector
	case s.view.Spec.Kind == rerank.KindDot:
		return nil // the store's order is the similarity's
	}
	r.K = s.plan.AtMost(s.view, n+s.spending.Asked())
	began := time.Now()
	hits, _, err := retrieve.Plain(ctx, s.view, r)
	s.answer.Timings.Retrieve += time.Since(began)
	if err != nil && ctx.Err() == nil {
		s.engine.log.LogAttrs(ctx, slog.LevelWarn, "store's order not mixed in, its search failed", slog.String("route", s.view.Name), slog.Any("error", withFilter(err, r.Filter)))
	}
	return s.spending.FromDatabase(hits, n)
}

// findRefined searches with a query that was fitted to the ranker's scores so far. If that fails,
// the search goes on with the candidates that it has.
func (s *search) findRefined(ctx context.Context, first *finder, calls int) *finder {
	q, err := s.spending.Refine(ctx, s.plan.Encoded)
	if err == nil {
		p := s.plan.Refined(q, max(1, s.plan.AtMost(s.view, s.spending.WantedInAll(calls))))
		again := s.newFinder(p) // without the device, which would encode the query itself
		if err = s.start(ctx, p); err == nil {
			err = again.find(ctx)
		}
		again.timings.Encode = p.Encoding
		s.answer.Timings.add(again.timings)
		if err == nil {
			return again
		}
	}
	if ctx.Err() == nil {
		s.engine.log.LogAttrs(ctx, slog.LevelWarn, "no candidates found by the refined query", slog.String("route", s.view.Name), slog.Any("error", withFilter(err, s.plan.Request.Filter)))
	}
	return first
}
