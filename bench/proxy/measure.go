package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/learn/eval"
)

// way is one way to make the same call.
type way struct {
	name string
	call call
}

// comparison compares the first way with the others.
type comparison struct {
	name string
	bar  float64 // target for the second way; 0: none
	ways []way
}

// alternate makes one call at a time, by each way in turn, alternately forwards and
// backwards, so that other activity on the machine affects all ways equally.
func (c comparison) alternate(ctx context.Context, d time.Duration, into *aloneResult) error {
	const warmUp = 50 // calls
	took := make([][]time.Duration, len(c.ways))
	until := time.Now().Add(d)
	for n := 0; n < 2*warmUp || time.Now().Before(until); n++ {
		for i := range c.ways {
			if n%2 == 1 {
				i = len(c.ways) - 1 - i
			}
			began := time.Now()
			if err := c.ways[i].call(ctx, n); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, c.ways[i].name, err)
			}
			if n >= warmUp {
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	for i := range c.ways {
		into.Ways[i].Rounds = append(into.Ways[i].Rounds, aloneRound{
			Calls: len(took[i]), P50: eval.Percentile(took[i], 0.50), P99: eval.Percentile(took[i], 0.99),
		})
	}
	return nil
}

// load makes concurrent calls in blocks of one way each, first forwards and then backwards.
func (c comparison) load(ctx context.Context, s settings, processes []process, into *loadResult) error {
	rounds := make([]loadRound, len(c.ways))
	order := make([]int, 0, 2*len(c.ways))
	for i := range c.ways {
		order = append(order, i)
	}
	for i := range slices.Backward(c.ways) {
		order = append(order, i)
	}
	for _, i := range order {
		if err := c.ways[i].block(ctx, s, processes, &rounds[i]); err != nil {
			return fmt.Errorf("%s, %s: %w", c.name, c.ways[i].name, err)
		}
	}
	for i := range c.ways {
		rounds[i].perCall()
		into.Ways[i].Rounds = append(into.Ways[i].Rounds, rounds[i])
	}
	return nil
}

// block adds the results of one block of calls.
func (w way) block(ctx context.Context, s settings, processes []process, r *loadRound) error {
	if _, err := w.callers(ctx, s.callers, s.load/8); err != nil { // warm-up
		return err
	}
	before, err := times(processes)
	if err != nil {
		return err
	}
	began := time.Now()
	calls, err := w.callers(ctx, s.callers, s.load)
	if err != nil {
		return err
	}
	r.Seconds += time.Since(began).Seconds()
	r.Calls += calls
	after, err := times(processes)
	if err != nil {
		return err
	}
	if r.CPU == nil {
		r.CPU = map[string]float64{}
	}
	for i, p := range processes {
		r.CPU[p.name] += (after[i] - before[i]).Seconds()
	}
	return nil
}

func times(processes []process) (t []time.Duration, err error) {
	t = make([]time.Duration, len(processes))
	for i, p := range processes {
		if t[i], err = p.cpu(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// callers makes calls from several concurrent callers, each of which waits for its answer
// before the next call. It ends at the first error.
func (w way) callers(ctx context.Context, callers int, d time.Duration) (calls int, err error) {
	until, cancel := context.WithTimeoutCause(ctx, d, nil)
	defer cancel()
	var next atomic.Int64
	var once sync.Once
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for until.Err() == nil {
				if failed := w.call(ctx, int(next.Add(1))); failed != nil {
					once.Do(func() { err = failed })
					cancel()
				}
			}
		})
	}
	wg.Wait()
	return int(next.Load()), err
}
