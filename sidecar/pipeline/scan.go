package pipeline

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
)

// scan scores every item of the table, or every item that the filter lets through.
func (s *search) scan(ctx context.Context) error {
	var items []int32 // nil: all
	var rest []batch
	if s.r.Filter != "" {
		var err error
		if items, rest, err = s.matching(ctx); err != nil {
			return err
		}
	}
	if err := s.scanTable(ctx, items); err != nil {
		return err
	}
	if len(rest) > 0 {
		if err := s.score(ctx, rest); err != nil {
			return err
		}
	}
	s.certify(ctx, Request{Strategy: rerank.Scan, Weights: s.Weights, Head: s.Head}, 1)
	s.answer.Certificate.Stop = rerank.StopExhausted
	return nil
}

// matching returns the items of the table that the filter lets through, and the
// features of those that the table does not have.
func (s *search) matching(ctx context.Context) ([]int32, []batch, error) {
	ctx, span := s.span(ctx, "match")
	defer span.End()
	began := time.Now()
	ids, err := s.match(ctx)
	s.answer.Timings.Retrieve += time.Since(began)
	if err != nil {
		fail(span, err)
		return nil, nil, s.retrieveFailed(ctx, err)
	}
	items, places := s.Table.Lookup(ids, make([]int32, 0, len(ids)), nil)
	_, missing := split(ids, places)
	if len(missing) == 0 {
		return items, nil, nil
	}
	if len(missing) > s.MaxDepth {
		return nil, nil, &failure{ReasonFetch, fmt.Errorf("the table lacks %d items that the filter lets through, more than max_depth %d can be fetched; build it again with `likeness index`",
			len(missing), s.MaxDepth)}
	}
	src := source{opened: s.opened, resident: s.resident, tracer: s.tracer}
	rest, err := src.fromStore(ctx, missing)
	s.answer.Timings.Retrieve += src.fetching
	for _, b := range rest {
		s.answer.NotIndexed += len(b.ids)
	}
	return items, rest, s.featuresFailed(ctx, err)
}

// match lists the items that have a row that the filter lets through, once each.
func (s *search) match(ctx context.Context) ([]rerank.ID, error) {
	seen := newIDSet(0)
	if owner := s.ownerIn(s.Collection); owner != "" {
		err := s.Store.(adapters.Scanner).Scan(ctx, adapters.ScanRequest{Collection: s.Collection, Filter: s.r.Filter, Owner: owner},
			func(rows adapters.Rows, _ string) error {
				for _, id := range rows.Owners {
					seen.add(id, 0)
				}
				return nil
			})
		return seen.ids, err
	}
	ids, err := s.Store.(adapters.Matcher).Match(ctx, s.Collection, s.r.Filter)
	for _, id := range ids {
		seen.add(id, 0)
	}
	return seen.ids, err
}

// scanTable finds the best items of the table, of all of them if items is nil.
func (s *search) scanTable(ctx context.Context, items []int32) error {
	q := scan.Query{Encoded: s.enc, K: s.rough.keep(s.r.K)}
	if items != nil || s.r.Filter != "" {
		q.Within = scan.NewBitmap(s.Table.Len())
		q.Within.Add(items...)
	}
	ctx, span := s.span(ctx, "score")
	defer span.End()
	began := time.Now()
	found, ok := s.scanOnDevice(ctx, q)
	var err error
	if !ok {
		found, err = s.scannerOf(s.Table).Scan(ctx, q, nil)
	}
	s.answer.Timings.Score += time.Since(began)
	if err != nil {
		fail(span, err)
		if ctx.Err() != nil {
			return timedOut(ctx, err)
		}
		return &failure{ReasonScoring, err}
	}
	span.SetAttributes(attribute.Int("likeness.candidates", found.Items), attribute.Int("likeness.scored", found.Scored))
	s.split(found.Top, found.Items)
	s.answer.NotFinite += found.NotFinite
	return s.refine(ctx)
}
