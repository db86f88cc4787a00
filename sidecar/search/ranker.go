package search

import (
	"context"
	"log/slog"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// rank has the ranker score the best candidates in rounds. Between two rounds it
// fits the query to the scores so far and searches again. It returns the rows of the
// answer in their order.
func (s *search) rank(ctx context.Context, first *finder) ([]rerank.Scored, error) {
	from, k := first, s.plan.AnswerRows
	for i, calls := range s.spending.Shares(first.found.Hits) {
		if i > 0 && s.spending.CanRefine() {
			from = s.findRefined(ctx, first, calls)
		}
		candidates := rank.Candidates{Hits: from.found.Hits, Rows: from.itemRows}
		if !s.spending.Round(ctx, candidates, calls, k) {
			break
		}
	}
	c := s.answer.Certificate
	rows, err := s.spending.Order(ctx, first.found.Hits, k, s.plan.Request.IsUnrestricted())
	if err != nil {
		rows, err = s.orderWithoutRanker(ctx, first.found.Hits, err)
	}
	// Of a ranker's order nothing is proved.
	s.answer.Certificate = certify.Unproved(c)
	return rows, err
}

// findRefined finds candidates by a query that is fitted to the ranker's scores so
// far. Where that fails the first candidates are still the best there are.
func (s *search) findRefined(ctx context.Context, first *finder, calls int) *finder {
	q, err := s.spending.Refine(ctx, s.plan.Encoded)
	if err == nil {
		p := s.plan.Refined(q, max(1, s.plan.AtMost(s.view, s.spending.WantedInAll(calls))))
		again := s.newFinder(p) // without the device, which encodes the query itself
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
