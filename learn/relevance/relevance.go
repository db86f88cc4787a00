// Package relevance asks a ranker for many scores at once, R(x, q) of items and
// queries, and keeps them on disk: none is asked for twice, whatever ends the work
// in between.
package relevance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// ErrVersion: the ranker changed while it was asked.
var ErrVersion = errors.New("the ranker changed")

// itemsPerRequest is what one request has where a ranker names no limit.
const itemsPerRequest = 256

// patience is how long a ranker may be down before the work is given up.
const patience = time.Minute

// Options of an Asker.
type Options struct {
	Ranker ranker.Ranker
	// Dir is the folder of kept scores; empty keeps none. One process can use it.
	Dir string
	// Disk holds the files in Dir; nil is the operating system's.
	Disk disk.Disk
	// KeptOnly asks the ranker for nothing: a score that is not kept is NaN.
	KeptOnly bool
	// PerSecond are the items that it is asked of in a second, at most; 0: as many
	// as it answers.
	PerSecond int
	// Patience is how long a ranker may be down; 0 is a minute.
	Patience time.Duration
	// Hopeless reports that there is no use in waiting for it; nil: there always is.
	Hopeless func() bool
}

// Asker asks a ranker of one version. It is safe for concurrent use.
type Asker struct {
	o         Options
	described plugin.Description
	cache     *cache // nil: nothing is kept
	limit     ratelimiter.RateLimiter[any]
	asked     atomic.Int64
	done      func(n int)
}

// New asks the ranker what it is and opens what is kept of that version. The caller
// closes it. It returns ErrCache, or the ranker's error.
func New(ctx context.Context, o Options) (*Asker, error) {
	a := &Asker{o: o, done: func(int) {}}
	if a.o.Patience == 0 {
		a.o.Patience = patience
	}
	err := a.patiently(ctx, func() (err error) {
		a.described, err = o.Ranker.Describe(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking the ranker what it is: %w", err)
	}
	if o.PerSecond > 0 {
		a.limit = ratelimiter.NewSmoothBuilder[any](uint(o.PerSecond), time.Second).Build()
	}
	if o.Dir == "" {
		return a, nil
	}
	a.cache, err = openCache(disk.OrOS(o.Disk), o.Dir, a.described)
	return a, err
}

// Description is what the ranker said of itself.
func (a *Asker) Description() plugin.Description { return a.described }

// Tell has done told of the items that the ranker answers of from now on. It is not to
// be called beside Fill.
func (a *Asker) Tell(done func(n int)) { a.done = done }

// Asked are the items that the ranker was asked of so far, each for a query.
func (a *Asker) Asked() int64 { return a.asked.Load() }

// Kept are the scores in the folder; lost are the bytes of it that are damaged.
func (a *Asker) Kept() (scores, lost int64) {
	if a.cache == nil {
		return 0, 0
	}
	a.cache.mu.Lock()
	defer a.cache.mu.Unlock()
	return a.cache.kept, a.cache.lost
}

// Close makes what was kept last.
func (a *Asker) Close() error {
	if a.cache == nil {
		return nil
	}
	return a.cache.close()
}

// Fill writes R(x, q) to dst, a row an item and a column a query, for the columns
// named: kept scores, and otherwise the ranker's, in batches, as many at a time as it
// takes. NaN is a score that it does not give. It returns the ranker's error,
// ErrVersion, ErrCache, or the context's; what was answered before is kept.
func (a *Asker) Fill(ctx context.Context, dst rerank.Matrix, items Items, queries []plugin.Query, columns []int) error {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(max(1, a.described.Parallel))
	for _, col := range columns {
		if within.Err() != nil {
			break
		}
		q := queries[col]
		missing := a.take(items, queryKey(q), func(at int, score float32) { dst.Row(at)[col] = score })
		if a.o.KeptOnly {
			for _, at := range missing {
				dst.Row(at)[col] = float32(math.NaN())
			}
			continue
		}
		for batch := range a.batches(missing) {
			g.Go(func() error {
				scores, err := a.ask(within, q, items.Pick(batch))
				for i, at := range batch[:len(scores)] {
					dst.Row(at)[col] = scores[i]
				}
				if err != nil {
					return fmt.Errorf("query %d: %w", col, err)
				}
				a.done(len(batch))
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// take yields the kept scores of a query and returns the places of the others.
func (a *Asker) take(items Items, query key, yield func(at int, score float32)) (missing []int) {
	if a.cache != nil {
		return a.cache.get(query, items.rows, yield)
	}
	missing = make([]int, items.Len())
	for i := range missing {
		missing[i] = i
	}
	return missing
}

// batches cuts places into what one request has.
func (a *Asker) batches(at []int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		for n := a.perRequest(); len(at) > 0; at = at[min(n, len(at)):] {
			if !yield(at[:min(n, len(at))]) {
				return
			}
		}
	}
}

func (a *Asker) perRequest() int {
	if a.described.MaxItems > 0 {
		return a.described.MaxItems
	}
	return itemsPerRequest
}

// ask asks the ranker for some items and keeps what it says.
func (a *Asker) ask(ctx context.Context, q plugin.Query, items Items) (scores []float32, err error) {
	if a.limit != nil {
		if err := a.limit.AcquirePermits(ctx, uint(items.Len())); err != nil {
			return nil, err
		}
	}
	err = a.patiently(ctx, func() error {
		r, err := a.o.Ranker.Rank(ctx, q, items.list)
		a.asked.Add(int64(r.Calls))
		if r.Version != "" && r.Version != a.described.Version {
			return fmt.Errorf("%w: it is version %q, and was %q at the beginning; begin again, with the scores of that version", ErrVersion, r.Version, a.described.Version)
		}
		scores = r.Scores
		if err != nil {
			return errors.Join(err, a.keepFinite(queryKey(q), items, scores))
		}
		if len(scores) != items.Len() {
			return fmt.Errorf("%w: %d scores for %d items", ranker.ErrAnswer, len(scores), items.Len())
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case a.cache == nil:
		return scores, nil
	}
	return scores, a.cache.put(queryKey(q), items.keys, scores)
}

// keepFinite keeps what came before a failure; a NaN may be what did not come.
func (a *Asker) keepFinite(query key, items Items, scores []float32) error {
	if a.cache == nil || len(scores) != items.Len() {
		return nil
	}
	var keys []key
	var kept []float32
	for i, s := range scores {
		if s == s {
			keys, kept = append(keys, items.keys[i]), append(kept, s)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return a.cache.put(query, keys, kept)
}

// patiently calls f again while the ranker is down, as one is that starts anew.
func (a *Asker) patiently(ctx context.Context, f func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 5*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		if err != nil && (!errors.Is(err, ranker.ErrUnavailable) || a.o.Hopeless != nil && a.o.Hopeless()) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(a.o.Patience))
	return err
}
