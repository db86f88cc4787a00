package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Outcome is how a call under load ended.
type Outcome string

// The outcomes. Good is an answer in time that is not degraded.
const (
	Good     Outcome = "good"
	Degraded Outcome = "degraded"
	Refused  Outcome = "refused" // by a limit
	Late     Outcome = "late"    // the deadline passed
	Failed   Outcome = "failed"
	// Unsent: the generator had MaxOpen calls open.
	Unsent Outcome = "unsent"
)

// Load describes the calls of a load test.
type Load struct {
	// Rate is calls a second, at exponentially distributed distances, whatever
	// the answers do (an open loop). 0 is a closed loop: Workers callers, each of
	// which calls again when it has its answer.
	Rate    float64
	Workers int
	// Duration is measured; WarmUp before it is not.
	Duration, WarmUp time.Duration
	// MaxOpen bounds the calls that an open loop waits for.
	MaxOpen int
	Seed    uint64
}

// LoadResult is what a load did. Latencies of an open loop count from the time
// at which the call was due, so that a call which had to wait for the generator
// shows the wait (no coordinated omission).
type LoadResult struct {
	Rate     float64                     `json:"rate,omitempty"` // asked, calls a second; 0: closed loop
	Workers  int                         `json:"workers,omitempty"`
	Seconds  float64                     `json:"seconds"`
	Calls    int                         `json:"calls"`
	Goodput  float64                     `json:"goodput"` // good answers a second
	Outcomes map[Outcome]int             `json:"outcomes"`
	Latency  map[Outcome]LatencyQuantile `json:"latency"`
	// Of good calls, where the call tells: what the sidecar did without its store,
	// and what lay around the search (network, queues, the caller's own wait).
	Own    *LatencyQuantile `json:"own,omitempty"`
	Around *LatencyQuantile `json:"around,omitempty"`
}

// Spent is where the time of a call went, as its answer says: in the whole search,
// and of that in the store. 0: it does not say.
type Spent struct {
	Search, Store time.Duration
}

// LatencyQuantile are milliseconds.
type LatencyQuantile struct {
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

// Run makes the calls. call is called concurrently with the number of the call;
// it bounds its own time. Calls that are open at the end are waited for and
// count. Run ends early, with what was measured, when ctx does.
func (l Load) Run(ctx context.Context, call func(ctx context.Context, n int) Outcome) LoadResult {
	return l.RunSpent(ctx, func(ctx context.Context, n int) (Outcome, Spent) { return call(ctx, n), Spent{} })
}

// RunSpent is Run for calls that tell where their time went.
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

// open sends each call when it is due, late ones at once.
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
		due := next // of this call alone: the loop goes on while it runs
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

// latencies sorts what it is given, which is at least one time.
func latencies(took []time.Duration) LatencyQuantile {
	slices.Sort(took)
	at := func(p float64) float64 {
		return float64(took[min(int(p*float64(len(took))), len(took)-1)]) / float64(time.Millisecond)
	}
	return LatencyQuantile{P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: at(1)}
}
