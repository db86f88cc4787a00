package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Outcome says how a call under load ended.
type Outcome string

// The outcomes. Good is a timely answer that is not degraded.
const (
	Good     Outcome = "good"
	Degraded Outcome = "degraded"
	Refused  Outcome = "refused" // refused because of a limit
	Late     Outcome = "late"    // the deadline passed
	Failed   Outcome = "failed"
	// Unsent: the call was skipped because MaxOpen calls were already open.
	Unsent Outcome = "unsent"
)

// Load describes the calls of a load test.
type Load struct {
	// Rate is the number of calls per second, at exponentially distributed intervals that do
	// not depend on answers (an open loop). 0 means a closed loop of Workers callers: each
	// waits for its answer before the next call.
	Rate    float64
	Workers int
	// Duration is measured, after WarmUp.
	Duration, WarmUp time.Duration
	// MaxOpen limits the concurrent calls of an open loop.
	MaxOpen int
	Seed    uint64
}

// LoadResult is the result of a load test. The latency of a call in an open loop counts
// from the time at which the call was due, so it includes delays in the generator (no
// coordinated omission).
type LoadResult struct {
	Rate     float64                     `json:"rate,omitempty"` // requested calls per second; 0: closed loop
	Workers  int                         `json:"workers,omitempty"`
	Seconds  float64                     `json:"seconds"`
	Calls    int                         `json:"calls"`
	Goodput  float64                     `json:"goodput"` // good answers per second
	Outcomes map[Outcome]int             `json:"outcomes"`
	Latency  map[Outcome]LatencyQuantile `json:"latency"`
	// For good calls that report where their time went: the sidecar's time without its
	// store, and the time outside the search (network, queues, the caller's own delay).
	Own    *LatencyQuantile `json:"own,omitempty"`
	Around *LatencyQuantile `json:"around,omitempty"`
}

// Spent is how long a call spent in the whole search and, as part of it, in the store, as
// reported by its answer. 0 means unknown.
type Spent struct {
	Search, Store time.Duration
}

// LatencyQuantile is in milliseconds.
type LatencyQuantile struct {
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

// Run makes the calls. It calls call concurrently, with the number of the call; call must
// limit its own time. Run waits for calls that are open at the end and counts them. If ctx
// ends, Run returns the results so far.
func (l Load) Run(ctx context.Context, call func(ctx context.Context, n int) Outcome) LoadResult {
	return l.RunSpent(ctx, func(ctx context.Context, n int) (Outcome, Spent) { return call(ctx, n), Spent{} })
}

// RunSpent is Run for calls that report where their time went.
func (l Load) RunSpent(ctx context.Context, call func(ctx context.Context, n int) (Outcome, Spent)) LoadResult {
	m := &tally{took: map[Outcome][]time.Duration{}}
	until, cancel := context.WithTimeout(ctx, l.WarmUp+l.Duration)
	defer cancel()
	begin := time.Now()
	m.from = begin.Add(l.WarmUp)
	makeCall := func(due time.Time, n int) {
		outcome, spent := call(ctx, n)
		m.add(due, outcome, spent)
	}
	if l.Rate > 0 {
		l.open(until, m, makeCall)
	} else {
		l.closed(until, makeCall)
	}
	return m.result(l, min(time.Since(begin)-l.WarmUp, l.Duration))
}

func (l Load) closed(until context.Context, makeCall func(time.Time, int)) {
	var wg sync.WaitGroup
	for w := range l.Workers {
		wg.Go(func() {
			for n := w; until.Err() == nil; n += l.Workers {
				makeCall(time.Now(), n)
			}
		})
	}
	wg.Wait()
}

// open starts each call when it is due, and immediately if it is late.
func (l Load) open(until context.Context, m *tally, makeCall func(time.Time, int)) {
	rng := rand.New(rand.NewPCG(l.Seed, 0x10ad))
	slots := make(chan struct{}, max(l.MaxOpen, 1))
	timer := time.NewTimer(0)
	defer timer.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	next := time.Now()
	for n := 0; ; n++ {
		next = next.Add(time.Duration(rng.ExpFloat64() / l.Rate * float64(time.Second)))
		due := next // a copy, because the loop changes next while the call runs
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-until.Done():
				return
			case <-timer.C:
			}
		}
		if until.Err() != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			m.add(due, Unsent, Spent{})
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			makeCall(due, n)
		})
	}
}

// tally collects the calls that were due after the warm-up.
type tally struct {
	from        time.Time
	mu          sync.Mutex
	took        map[Outcome][]time.Duration
	own, around []time.Duration
}

func (m *tally) add(due time.Time, o Outcome, s Spent) {
	took := time.Since(due)
	if due.Before(m.from) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took[o] = append(m.took[o], took)
	if o == Good && s.Search > 0 {
		m.own = append(m.own, s.Search-s.Store)
		m.around = append(m.around, took-s.Search)
	}
}

func (m *tally) result(l Load, elapsed time.Duration) LoadResult {
	r := LoadResult{
		Rate: l.Rate, Seconds: elapsed.Seconds(), Outcomes: map[Outcome]int{}, Latency: map[Outcome]LatencyQuantile{},
	}
	if l.Rate == 0 {
		r.Workers = l.Workers
	}
	for o, took := range m.took {
		r.Calls += len(took)
		r.Outcomes[o] = len(took)
		r.Latency[o] = latencies(took)
	}
	if len(m.own) > 0 {
		own, around := latencies(m.own), latencies(m.around)
		r.Own, r.Around = &own, &around
	}
	if elapsed > 0 {
		r.Goodput = float64(r.Outcomes[Good]) / elapsed.Seconds()
	}
	return r
}

// latencies summarises at least one duration. It sorts took.
func latencies(took []time.Duration) LatencyQuantile {
	slices.Sort(took)
	at := func(p float64) float64 {
		return float64(took[min(int(p*float64(len(took))), len(took)-1)]) / float64(time.Millisecond)
	}
	return LatencyQuantile{P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: at(1)}
}
