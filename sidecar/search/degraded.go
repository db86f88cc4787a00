package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// A search keeps back a fifth of its remaining time, at most maxKeptBack, for the store's own
// answer.
const (
	keptBackShare = 5
	maxKeptBack   = 250 * time.Millisecond
)

// keepTimeBack returns a context that ends early: early enough that a fail_open route can still
// answer with the store's own order, or that a ranker's scores so far can be the answer.
func (s *search) keepTimeBack(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || (s.view.Failure != route.FailOpen || s.view.Store == nil) && !s.spending.OrdersAnswer() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/keptBackShare, maxKeptBack)))
}

// fallBack answers with the store's own dot-product order, or returns
// failure.ErrDegraded, as the route's policy says.
func (s *search) fallBack(ctx context.Context, f *failure.Error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	v := s.view
	f.Err = withFilter(f.Err, s.plan.Request.Filter)
	s.engine.log.LogAttrs(ctx, slog.LevelWarn, "search not rescored", slog.String("route", v.Name), slog.String("policy", string(v.Failure)),
		slog.String("reason", f.Reason), slog.Any("error", f.Err))
	r := s.plan.Request
	r.K = s.plan.AnswerRows
	if s.spending.OrdersAnswer() {
		reason := rank.CutFailed
		if f.Reason == failure.Deadline {
			reason = rank.CutDeadline
		}
		s.spending.GiveUp(reason)
	}
	if problem := s.cannotFallBack(ctx); problem != "" {
		return fmt.Errorf("%w: route %q: %s: %w", failure.ErrDegraded, v.Name, problem, f)
	}
	began := time.Now()
	rows, depth, err := retrieve.Plain(ctx, v, r)
	s.answer.Timings.Retrieve += time.Since(began)
	if err != nil {
		return fmt.Errorf("the store's own answer failed too, after %s: %w", f.Error(), err)
	}
	s.answer.Hits, s.answer.NotFinite, s.answer.NotIndexed, s.answer.Reembedded = nil, 0, 0, nil
	for _, h := range rows {
		s.answer.Hits = append(s.answer.Hits, Hit{ID: h.ID, Score: h.Score})
	}
	s.answer.Degraded = &Degraded{Reason: f.Reason, Detail: f.Err.Error()}
	stop := rerank.StopFixed
	if f.Reason == failure.Deadline {
		stop = rerank.StopDeadline
	}
	s.answer.Certificate = certify.Unproved(rerank.Certificate{Stop: stop, Depth: depth})
	return nil
}

// cannotFallBack returns the reason why the store's own answer may not stand in, or "".
func (s *search) cannotFallBack(ctx context.Context) string {
	v := s.view
	switch {
	case v.Failure == route.FailClosed:
		return "its policy is fail_closed"
	case s.plan.Request.NoFallback:
		return "the request asks for no other answer"
	case v.Store == nil:
		return "it has no store to answer in its stead"
	case s.spending.MadeVector():
		return "a ranker's scores of support items cannot be compared with stored vectors"
	case v.Spec.QueryDim != v.Spec.ItemDim:
		return fmt.Sprintf("queries of %d elements cannot be compared with stored vectors of %d", v.Spec.QueryDim, v.Spec.ItemDim)
	case ctx.Err() != nil:
		return "no time is left for the store's own answer"
	}
	return ""
}

// orderWithoutRanker answers in the order of φ because the ranker scored nothing, if the route's
// policy permits that.
func (s *search) orderWithoutRanker(ctx context.Context, hits []rerank.Scored, err error) ([]rerank.Scored, error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	case errors.Is(err, ranker.ErrQuery):
		return nil, err
	case s.view.Failure == route.FailClosed || s.plan.Request.NoFallback:
		return nil, fmt.Errorf("%w: route %q: ranker %q: %w", failure.ErrDegraded, s.view.Name, s.view.RankerName, err)
	}
	s.answer.Degraded = &Degraded{Reason: failure.Ranker, Detail: err.Error()}
	return hits[:min(s.plan.AnswerRows, len(hits))], nil
}
