package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// retrieve sends the probes, all in one call of the adapter.
func (s *search) retrieve(ctx context.Context, round int) ([]rerank.List, error) {
	ctx, span := s.span(ctx, "retrieve", attribute.Int("likeness.probes", len(s.probes)), attribute.Int("likeness.depth", s.probes[0].Depth))
	defer span.End()
	began := time.Now()
	lists, err := s.Store.Search(ctx, adapters.SearchRequest{
		Collection: s.searched(), Vector: s.Vector, Probes: s.probes, Filter: s.r.Filter,
		Exact: s.ExactSearch, UnitVectors: s.UnitVectors && !s.derivedProbes(), Owner: s.ownerIn(s.searched()), WithVectors: s.withVectors(round),
		Consistency: s.Consistency, Partitions: s.r.Partitions,
	})
	s.answer.Timings.Retrieve += time.Since(began)
	if err != nil {
		fail(span, err)
		return nil, s.retrieveFailed(ctx, err)
	}
	if err := s.checkLists(s.probes, lists, s.ownerIn(s.searched())); err != nil {
		return nil, err
	}
	if s.withVectors(round) && (lists[0].Vectors.Rows != len(lists[0].IDs) || lists[0].Vectors.Cols != s.spec.ItemDim) {
		return nil, s.broken("its list has %d rows and vectors of shape %d x %d", len(lists[0].IDs), lists[0].Vectors.Rows, lists[0].Vectors.Cols)
	}
	return lists, nil
}

// withVectors: vectors come with the ids where that saves a call and costs no
// duplicates: one probe on the stored vectors, in the first round.
func (s *search) withVectors(round int) bool {
	return round == 1 && s.Placement == PlacementStored && len(s.probes) == 1 &&
		!s.derivedProbes() && s.Owner == ""
}

// derivedProbes reports whether the probes search the companion.
func (s *search) derivedProbes() bool { return len(s.probes) > 0 && s.probes[0].Field != "" }

// searched is the collection that the probes search.
func (s *search) searched() string {
	if s.derivedProbes() {
		return s.Companion
	}
	return s.Collection
}

// retrieveFailed tells what the request or the set-up is to blame for, or a
// store that is down, from what the store's plain answer may be had in spite of.
func (s *search) retrieveFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return timedOut(ctx, err)
	}
	final := []error{adapters.ErrFilter, adapters.ErrLimit, adapters.ErrRefused, rerank.ErrQuery}
	if !s.derivedProbes() {
		final = append(final, adapters.ErrUnavailable, adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric)
	}
	for _, f := range final {
		if errors.Is(err, f) {
			return err
		}
	}
	return &failure{ReasonStore, err}
}

func (o *opened) broken(format string, args ...any) error {
	return fmt.Errorf("%w: store %q: %s", errBroken, o.StoreName, fmt.Sprintf(format, args...))
}

// checkLists holds the store to the contract of adapters.Searcher.
func (s *search) checkLists(probes []rerank.Probe, lists []rerank.List, owner string) error {
	if len(lists) != len(probes) {
		return s.broken("%d lists for %d probes", len(lists), len(probes))
	}
	for i, l := range lists {
		switch {
		case len(l.Scores) != len(l.IDs):
			return s.broken("list %d has %d ids and %d scores", i, len(l.IDs), len(l.Scores))
		case len(l.IDs) > probes[i].Depth:
			return s.broken("list %d has %d rows, %d were asked", i, len(l.IDs), probes[i].Depth)
		case owner != "" && len(l.Owners) != len(l.IDs):
			return s.broken("list %d has %d ids and %d owners", i, len(l.IDs), len(l.Owners))
		case !(l.Epsilon >= 0):
			return s.broken("list %d has a rounding error of %v", i, l.Epsilon)
		}
		if row := unsorted(l.Scores); row > 0 {
			return s.broken("list %d is not sorted: row %d scores %v, row %d %v", i, row-1, l.Scores[row-1], row, l.Scores[row])
		}
	}
	return nil
}

// unsorted returns the first row that scores more than the one before it, or 0.
// Rows whose score is not finite come last.
func unsorted(scores []float32) int {
	for i := 1; i < len(scores); i++ {
		if finite(scores[i]) && !(scores[i] <= scores[i-1] && finite(scores[i-1])) {
			return i
		}
	}
	return 0
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// union adds the lists to the candidates and returns those that are new.
func (s *search) union(lists []rerank.List, round int) ([]rerank.ID, error) {
	rows := 0
	for _, l := range lists {
		rows += len(l.IDs)
	}
	if s.seen == nil {
		s.seen = newIDSet(rows)
	}
	known := len(s.seen.ids)
	var owned *idSet // rows, where the candidates are their owners
	if s.ownerIn(s.searched()) != "" {
		owned = newIDSet(rows)
	}
	for i, l := range lists {
		mark := int32(round*len(lists) + i)
		for j, id := range l.IDs {
			item, twice := id, false
			if owned != nil {
				item = l.Owners[j]
				_, twice = owned.add(id, mark)
			}
			_, again := s.seen.add(item, mark)
			if twice || again && owned == nil || id.IsZero() || item.IsZero() {
				return nil, s.broken("row %d of list %d has the id %q of item %q: none, or twice", j, i, id, item)
			}
		}
	}
	return s.seen.ids[known:len(s.seen.ids):len(s.seen.ids)], nil
}
