package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// failure is an error that the route's failure policy decides on.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// timedOut sorts an error of a step whose context is done: time that ran out is
// a failure, a caller that went away is not.
func timedOut(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return &failure{ReasonDeadline, err}
}

// The share of the time left that is kept back for a plain answer, and its most.
const (
	reserveShare = 5
	maxReserve   = 250 * time.Millisecond
)

// reserve ends the rescoring early enough for a fail_open route to answer in time,
// and a ranker early enough for what it said to be the answer.
func (s *search) reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || (s.Failure != FailOpen || s.Store == nil) && !s.ranks() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/reserveShare, maxReserve)))
}

// degrade answers with the store's own dot-product order, or with ErrDegraded.
func (s *search) degrade(ctx context.Context, f *failure) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	f.err = withFilter(f.err, s.r.Filter)
	s.log.LogAttrs(ctx, slog.LevelWarn, "search not rescored", slog.String("route", s.Name), slog.String("policy", string(s.Failure)),
		slog.String("reason", f.reason), slog.Any("error", f.err))
	s.r.K = s.k
	if s.ranks() {
		s.spending.Cut, s.spending.Reason = s.spending.left(), CutFailed
		if f.reason == ReasonDeadline {
			s.spending.Reason = CutDeadline
		}
	}
	if problem := s.cannotFallBack(ctx); problem != "" {
		return fmt.Errorf("%w: route %q: %s: %w", ErrDegraded, s.Name, problem, f)
	}
	hits, err := s.plain(ctx)
	if err != nil {
		return fmt.Errorf("no plain answer either after %s: %w", f.Error(), err)
	}
	s.answer.Hits, s.answer.NotFinite, s.answer.NotIndexed = hits, 0, 0
	s.answer.Degraded = &Degraded{Reason: f.reason, Detail: f.err.Error()}
	inf := float32(math.Inf(1))
	s.answer.Certificate = rerank.Certificate{Status: rerank.StatusUnknown, Gap: inf, Max: inf, KthScore: -inf, Stop: rerank.StopFixed, Depth: s.plainDepth()}
	if f.reason == ReasonDeadline {
		s.answer.Certificate.Stop = rerank.StopDeadline
	}
	return nil
}

func (s *search) cannotFallBack(ctx context.Context) string {
	switch {
	case s.Failure == FailClosed:
		return "its policy is fail_closed"
	case s.r.NoFallback:
		return "the request asks for no other answer"
	case s.Store == nil:
		return "it has no store to answer in its stead"
	case s.spending != nil && len(s.spending.query.Vector) == 0:
		return "a ranker's scores of support items cannot be compared with stored vectors"
	case s.spec.QueryDim != s.spec.ItemDim:
		return fmt.Sprintf("queries of %d elements cannot be compared with stored vectors of %d", s.spec.QueryDim, s.spec.ItemDim)
	case ctx.Err() != nil:
		return "no time is left for the store's own answer"
	}
	return ""
}

// plain is the store's own answer to the query vector. Where items own several
// rows, it goes deeper until K of them are there.
func (s *search) plain(ctx context.Context) ([]Hit, error) {
	ctx, span := s.span(ctx, "fallback")
	defer span.End()
	began := time.Now()
	defer func() { s.answer.Timings.Retrieve += time.Since(began) }()
	owner := s.ownerIn(s.Collection)
	for depth := s.plainDepth(); ; depth = min(4*depth, s.MaxDepth) {
		probes := []rerank.Probe{{Vector: s.r.Query.Vector, Depth: depth}}
		lists, err := s.Store.Search(ctx, adapters.SearchRequest{
			Collection: s.Collection, Vector: s.Vector, Probes: probes, Filter: s.r.Filter, Exact: s.ExactSearch,
			UnitVectors: s.UnitVectors, Owner: owner, Consistency: s.Consistency, Partitions: s.r.Partitions,
		})
		if err == nil {
			err = s.checkLists(probes, lists, owner)
		}
		if err != nil {
			fail(span, err)
			return nil, err
		}
		hits, err := s.firstHits(lists[0], owner)
		if err != nil || owner == "" || len(hits) >= s.r.K || lists[0].Exhausted || depth >= s.MaxDepth {
			return hits, err
		}
	}
}

// plainDepth: where items own several rows, more rows than K are K items.
func (s *search) plainDepth() int {
	if s.ownerIn(s.Collection) != "" {
		return min(4*s.r.K, s.MaxDepth)
	}
	return min(s.r.K, s.MaxDepth)
}

// firstHits are the first K items of a list, each with its best row's score.
func (s *search) firstHits(l rerank.List, owner string) ([]Hit, error) {
	keys := l.IDs
	if owner != "" {
		keys = l.Owners
	}
	seen := newIDSet(len(keys))
	var hits []Hit
	for i, id := range keys {
		fresh, _ := seen.add(id, 0)
		if !fresh && owner == "" {
			return nil, s.broken("its list has the id %q twice", id)
		}
		if fresh && len(hits) < s.r.K {
			hits = append(hits, Hit{ID: id, Score: l.Scores[i]})
		}
	}
	return hits, nil
}
