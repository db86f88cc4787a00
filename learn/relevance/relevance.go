// Package relevance computes many scores R(x, q) of items and queries with a ranker
// and stores them on disk, so that an interrupted run never asks the ranker for the
// same score twice.
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

// ErrVersion means that the ranker's version changed during the run.
var ErrVersion = errors.New("the ranker changed")

// itemsPerRequest is the number of items in a request if the ranker states no limit.
const itemsPerRequest = 256

// defaultPatience is how long a ranker may be down before the run fails.
const defaultPatience = time.Minute

// Options configures an Asker.
type Options struct {
	Ranker ranker.Ranker
	// Dir is the folder of stored scores, which one process at a time can use. If
	// empty, scores are not stored.
	Dir string
	// Disk provides the files in Dir. If nil, it is the operating system.
	Disk disk.Disk
	// KeptOnly reads stored scores only and never asks the ranker. A score that is not
	// stored is NaN.
	KeptOnly bool
	// PerSecond limits the number of items sent to the ranker per second. If 0, there
	// is no limit.
	PerSecond int
	// Patience is how long a ranker may be down before the run fails. If 0, it is a
	// minute.
	Patience time.Duration
	// Hopeless reports that waiting for the ranker is pointless. It may be nil.
	Hopeless func() bool
}

// Asker asks one version of a ranker for scores. It is safe for concurrent use.
type Asker struct {
	o           Options
	described   plugin.Description
	cache       *scoreCache // nil if scores are not stored
	rateLimit   ratelimiter.RateLimiter[any]
	asked       atomic.Int64
	reportItems func(n int)
}

// New asks the ranker for its description and opens the stored scores of that version.
// The caller closes the Asker. It returns ErrCache or the ranker's error.
func New(ctx context.Context, o Options) (*Asker, error) {
	a := &Asker{o: o, reportItems: func(int) {}}
	if a.o.Patience == 0 {
		a.o.Patience = defaultPatience
	}
	err := a.retryWhileDown(ctx, func() (err error) {
		a.described, err = o.Ranker.Describe(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking the ranker for its description: %w", err)
	}
	if o.PerSecond > 0 {
		a.rateLimit = ratelimiter.NewSmoothBuilder[any](uint(o.PerSecond), time.Second).Build()
	}
	if o.Dir == "" {
		return a, nil
	}
	a.cache, err = openCache(disk.OrOS(o.Disk), o.Dir, a.described)
	return a, err
}

// Description returns the ranker's description of itself.
func (a *Asker) Description() plugin.Description { return a.described }

// Tell makes Fill call done with the number of items of each answered request. It must
// not be called during Fill.
func (a *Asker) Tell(done func(n int)) { a.reportItems = done }

// Asked returns the number of calls made to the ranker so far.
func (a *Asker) Asked() int64 { return a.asked.Load() }

// Kept returns the number of stored scores, and lost, the number of damaged bytes in
// the folder.
func (a *Asker) Kept() (scores, lost int64) {
	if a.cache == nil {
		return 0, 0
	}
	a.cache.mu.Lock()
	defer a.cache.mu.Unlock()
	return a.cache.storedScores, a.cache.lostBytes
}

// Close writes the stored scores to disk and closes the folder.
func (a *Asker) Close() error {
	if a.cache == nil {
		return nil
	}
	return a.cache.close()
}

// Fill writes R(x, q) to dst, with a row for each item and a column for each query,
// for the named columns. It takes stored scores first and asks the ranker for the
// others, in as many concurrent batches as the ranker accepts. NaN marks a score that
// the ranker does not give. It returns the ranker's error, ErrVersion, ErrCache, or
// the context's error; scores answered before the error stay stored.
func (a *Asker) Fill(ctx context.Context, dst rerank.Matrix, items Items, queries []plugin.Query, columns []int) error {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(max(1, a.described.Parallel))
	for _, col := range columns {
		if within.Err() != nil {
			break
		}
		q := queries[col]
		missing := a.takeStored(items, queryKey(q), func(at int, score float32) { dst.Row(at)[col] = score })
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
				a.reportItems(len(batch))
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// takeStored yields the stored scores of a query and returns the indexes of the other
// items.
func (a *Asker) takeStored(items Items, query key, yield func(at int, score float32)) (missing []int) {
	if a.cache != nil {
		return a.cache.get(query, items.rows, yield)
	}
	missing = make([]int, items.Len())
	for i := range missing {
		missing[i] = i
	}
	return missing
}

// batches divides indexes into requests.
func (a *Asker) batches(at []int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		for n := a.requestItems(); len(at) > 0; at = at[min(n, len(at)):] {
			if !yield(at[:min(n, len(at))]) {
				return
			}
		}
	}
}

func (a *Asker) requestItems() int {
	if a.described.MaxItems > 0 {
		return a.described.MaxItems
	}
	return itemsPerRequest
}

// ask asks the ranker to score some items and stores the scores.
func (a *Asker) ask(ctx context.Context, q plugin.Query, items Items) (scores []float32, err error) {
	if a.rateLimit != nil {
		if err := a.rateLimit.AcquirePermits(ctx, uint(items.Len())); err != nil {
			return nil, err
		}
	}
	err = a.retryWhileDown(ctx, func() error {
		r, err := a.o.Ranker.Rank(ctx, q, items.list)
		a.asked.Add(int64(r.Calls))
		if r.Version != "" && r.Version != a.described.Version {
			return fmt.Errorf("%w: it is version %q, and was %q at the beginning; begin again, with the scores of that version", ErrVersion, r.Version, a.described.Version)
		}
		scores = r.Scores
		if err != nil {
			return errors.Join(err, a.storeFinite(queryKey(q), items, scores))
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

// storeFinite stores the scores that arrived before a failure. It skips NaN, which may
// stand for a score that did not arrive.
func (a *Asker) storeFinite(query key, items Items, scores []float32) error {
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

// retryWhileDown calls f again, with growing pauses, while the ranker is unavailable,
// for example because it restarts.
func (a *Asker) retryWhileDown(ctx context.Context, f func() error) error {
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
