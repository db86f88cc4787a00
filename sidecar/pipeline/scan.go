package pipeline

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// scanChunk is the number of items that a worker scores at once.
const scanChunk = 1024

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
	ctx, span := s.span(ctx, "retrieve")
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
	src := source{opened: s.opened, tracer: s.tracer}
	b, err := src.fromStored(ctx, missing)
	s.answer.Timings.Retrieve += src.fetching
	s.answer.NotIndexed += len(b.ids)
	return items, []batch{b}, s.featuresFailed(ctx, err)
}

// match lists the items that have a row that the filter lets through, once each.
func (s *search) match(ctx context.Context) ([]rerank.ID, error) {
	seen := newIDSet(0)
	if s.Owner != "" {
		err := s.Store.(adapters.Scanner).Scan(ctx, adapters.ScanRequest{Collection: s.Collection, Filter: s.r.Filter, Owner: s.Owner},
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

// scanTable scores items of the table, all of them if items is nil, on every core.
func (s *search) scanTable(ctx context.Context, items []int32) error {
	n := len(items)
	if items == nil && s.r.Filter == "" {
		n = s.Table.Len()
	}
	ctx, span := s.span(ctx, "score", attribute.Int("likeness.candidates", n))
	defer span.End()
	began := time.Now()
	workers := make([]scanner, max(1, min(runtime.GOMAXPROCS(0), (n+scanChunk-1)/scanChunk)))
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for i := range workers {
		workers[i] = scanner{search: s, items: items, n: n, next: &next, top: rerank.NewTopK(s.r.K)}
		if i > 0 {
			g.Go(func() error { return workers[i].run(gctx) })
		}
	}
	err := workers[0].run(gctx)
	if other := g.Wait(); other != nil {
		err = other
	}
	s.answer.Timings.Score += time.Since(began)
	if err != nil {
		fail(span, err)
		if ctx.Err() != nil {
			return timedOut(ctx, err)
		}
		return &failure{ReasonScoring, err}
	}
	s.merge(workers, n)
	return nil
}

func (s *search) merge(workers []scanner, n int) {
	for _, w := range workers[1:] {
		for _, row := range w.top.Sorted() {
			workers[0].top.Push(row)
		}
		workers[0].notFinite += w.notFinite
	}
	s.hits, s.scored = workers[0].top.Sorted(), n
	s.answer.NotFinite += workers[0].notFinite
}

// scanner scores chunks of the table, which it takes in turn with others.
type scanner struct {
	*search
	items     []int32
	n         int
	next      *atomic.Int64
	top       *rerank.TopK
	notFinite int
	scores    [scanChunk]float32
	scratch   rerank.Items
}

func (w *scanner) run(ctx context.Context) error {
	for {
		from := int(w.next.Add(scanChunk)) - scanChunk
		if from >= w.n {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.chunk(from, min(from+scanChunk, w.n)); err != nil {
			return err
		}
	}
}

func (w *scanner) chunk(from, to int) error {
	scores := w.scores[:to-from]
	var items rerank.Items
	if w.items == nil {
		items = w.Table.Slice(from, to)
	} else {
		items = w.Table.Items(w.items[from:to], &w.scratch)
	}
	if err := w.enc.Score(scores, items); err != nil {
		return err
	}
	for i, x := range scores {
		if !finite(x) {
			w.notFinite++
		}
		item := from + i
		if w.items != nil {
			item = int(w.items[item])
		}
		w.top.Push(rerank.Scored{ID: w.Table.ID(item), Score: x, Index: item})
	}
	return nil
}
