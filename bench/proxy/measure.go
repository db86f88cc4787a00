package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// system is a database with one of its interfaces, and the ways to search it.
type system struct {
	name      string
	ways      []way // the first one is direct
	processes []process
}

// way is one way to make the same search.
type way struct {
	name string
	call call
}

// call makes the n-th search. It may return errDegraded.
type call func(ctx context.Context, n int) error

// shares of the searches that the database can answer, at which latency is measured.
var shares = []float64{0.5, 0.8}

// measure measures one round.
func (s system) measure(ctx context.Context, o settings, into *systemResult) error {
	into.begin(s)
	round := make([]wayRound, len(s.ways))
	if err := s.alternate(ctx, o.alone, round); err != nil {
		return err
	}
	order := make([]int, 0, 2*len(s.ways))
	for i := range s.ways {
		order = append(order, i)
	}
	forwards := order
	for i := range slices.Backward(s.ways) {
		order = append(order, i)
	}
	for _, i := range order {
		if err := s.full(ctx, o, i, &round[i]); err != nil {
			return err
		}
	}
	for i := range round {
		round[i].perCall()
	}
	for _, share := range shares {
		for _, i := range forwards {
			at, err := s.atShare(ctx, o, i, share*round[0].Rate, &round[i])
			if err != nil {
				return err
			}
			round[i].Shares = append(round[i].Shares, at)
		}
	}
	for i := range round {
		into.Ways[i].Rounds = append(into.Ways[i].Rounds, round[i])
	}
	return nil
}

// alternate makes one search at a time, by each way in turn, alternately forwards and
// backwards, so that other activity on the machine affects all ways equally.
func (s system) alternate(ctx context.Context, d time.Duration, round []wayRound) error {
	const warmUp = 50 // searches
	took := make([][]time.Duration, len(s.ways))
	until := time.Now().Add(d)
	for n := 0; n < 2*warmUp || time.Now().Before(until); n++ {
		for i := range s.ways {
			if n%2 == 1 {
				i = len(s.ways) - 1 - i
			}
			began := time.Now()
			if err := s.ways[i].call(ctx, n); errors.Is(err, errDegraded) {
				round[i].Degraded++
			} else if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, s.ways[i].name, err)
			}
			if n >= warmUp {
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	for i := range round {
		round[i].Alone = latency{eval.Percentile(took[i], 0.50), eval.Percentile(took[i], 0.99)}
	}
	return nil
}

// full adds a block of searches by one way from callers that each wait for their answer.
func (s system) full(ctx context.Context, o settings, i int, r *wayRound) error {
	load := bench.Load{Workers: o.callers, Duration: o.full / 8}
	if _, err := s.run(ctx, load, i, r); err != nil { // warm-up
		return err
	}
	before, err := times(s.processes)
	if err != nil {
		return err
	}
	load.Duration = o.full
	began := time.Now()
	result, err := s.run(ctx, load, i, r)
	if err != nil {
		return err
	}
	r.Seconds += time.Since(began).Seconds()
	r.Calls += result.Calls
	after, err := times(s.processes)
	if err != nil {
		return err
	}
	if r.CPU == nil {
		r.CPU = map[string]float64{}
	}
	for p, process := range s.processes {
		r.CPU[process.name] += (after[p] - before[p]).Seconds()
	}
	return nil
}

// atShare measures a way at a rate of searches that do not wait for answers.
func (s system) atShare(ctx context.Context, o settings, i int, rate float64, r *wayRound) (latency, error) {
	const enough = 1024 // searches in flight; more are skipped
	result, err := s.run(ctx, bench.Load{Rate: rate, MaxOpen: enough, Duration: o.open, WarmUp: o.open / 8, Seed: 1}, i, r)
	if err != nil {
		return latency{}, err
	}
	good := result.Latency[bench.Good]
	return latency{good.P50, good.P99}, nil
}

// run makes searches by one way and counts degraded answers. It returns the first other
// error of a search.
func (s system) run(ctx context.Context, load bench.Load, i int, r *wayRound) (bench.LoadResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first sync.Once
	var failed error
	result := load.Run(ctx, func(ctx context.Context, n int) bench.Outcome {
		err := s.ways[i].call(ctx, n)
		switch {
		case err == nil:
			return bench.Good
		case errors.Is(err, errDegraded):
			return bench.Degraded
		default:
			first.Do(func() {
				failed = fmt.Errorf("%s, %s: %w", s.name, s.ways[i].name, err)
				cancel(failed)
			})
			return bench.Failed
		}
	})
	r.Degraded += result.Outcomes[bench.Degraded]
	return result, failed
}

// times returns the processor time that each process has used.
func times(processes []process) (t []time.Duration, err error) {
	t = make([]time.Duration, len(processes))
	for i, p := range processes {
		if t[i], err = p.cpu(); err != nil {
			return nil, err
		}
	}
	return t, nil
}
