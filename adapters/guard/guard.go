// Package guard wraps a store across a network and limits the cost of its faults. It
// stops reading a collection that keeps failing, retries a limited share of the failed
// reads, and never retries writes. The wrapper has exactly the abilities of the store.
package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/budget"
)

// Server combines the abilities that every store across a network has.
type Server interface {
	adapters.Store
	adapters.Fetcher
	adapters.Scanner
	adapters.Describer
	adapters.Counter
	adapters.Writer
	adapters.Deleter
	adapters.Matcher
	adapters.Excluder
	adapters.Aliaser
	adapters.Identifier
}

// Options configures New. A zero value selects the default that the field names.
type Options struct {
	// Name is the operator's name of the store, for errors and metrics.
	Name string
	// BreakAfter is the number of consecutive failures after which a collection is not
	// read; 0 means 5. BreakFor is how long it is not read, give or take a fifth; 0
	// means 500 ms. After that, one call at a time is sent until one succeeds.
	BreakAfter int
	BreakFor   time.Duration
	// RetryBudget is the share of the reads, over ten seconds, that may be retried
	// after a transient failure. With a budget above 0 at least one read may be
	// retried. 0 allows no retries.
	RetryBudget float64
	// HedgeAfter is how long a search may run before it is sent a second time. The
	// first answer wins. At most a share hedgeShare of the searches is hedged. 0 turns
	// hedging off.
	HedgeAfter time.Duration
}

const (
	// hedgeShare is the share of the searches, over ten seconds, that may be sent
	// twice.
	hedgeShare = 0.05
	// slowAfter is the least duration after which a call's deadline counts as a
	// failure of the store. A caller may set a deadline that no store could meet.
	slowAfter = time.Second
	// pauseLeast and pauseMost bound the pause before a retry.
	pauseLeast = 5 * time.Millisecond
	pauseMost  = 25 * time.Millisecond
)

func (o Options) withDefaults() Options {
	if o.BreakAfter <= 0 {
		o.BreakAfter = 5
	}
	if o.BreakFor <= 0 {
		o.BreakFor = 500 * time.Millisecond
	}
	return o
}

// Store is a guarded store. It is safe for concurrent use.
type Store struct {
	Server
	options  Options
	observer atomic.Pointer[Observer]
	retries  budget.Budget
	hedges   budget.Budget

	mu       sync.Mutex
	breakers map[string]*breaker // by collection, because one collection can fail while others work
	broken   int                 // number of breakers that are not closed
}

type breaker struct {
	circuitbreaker.CircuitBreaker[any]
}

// cutter is a Store whose server is an adapters.Partitioner.
type cutter struct {
	*Store
	adapters.Partitioner
}

var (
	_ Server               = (*Store)(nil)
	_ adapters.Partitioner = cutter{}
)

// New returns a store that has the abilities of s.
func New(s Server, o Options) adapters.Store {
	o = o.withDefaults()
	g := &Store{
		Server: s, options: o, breakers: map[string]*breaker{},
		retries: budget.Budget{Share: o.RetryBudget}, hedges: budget.Budget{Share: hedgeShare},
	}
	g.Watch(unobserved{})
	if p := adapters.AbilitiesOf(s).Partition; p != nil {
		return cutter{g, p}
	}
	return g
}

// Watch sets the observer for all later calls.
func (s *Store) Watch(o Observer) { s.observer.Store(&o) }

func (s *Store) told() Observer { return *s.observer.Load() }

// breaker returns the breaker of a collection, creating it if need be. There are few,
// because callers only read collections that routes name.
func (s *Store) breaker(collection string) *breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.breakers[collection]
	if b == nil {
		b = &breaker{circuitbreaker.NewBuilder[any]().
			WithFailureThreshold(uint(s.options.BreakAfter)).
			WithSuccessThreshold(1).
			WithDelay(s.options.BreakFor).
			WithJitterFactor(.2).
			OnStateChanged(s.stateChanged).
			Build()}
		s.breakers[collection] = b
	}
	return b
}

// Broken lists, in order, the collections whose breaker is not closed.
func (s *Store) Broken() []string {
	s.mu.Lock()
	all := maps.Clone(s.breakers)
	s.mu.Unlock() // a breaker that changes state holds its own lock while it takes this one
	var out []string
	for collection, b := range all {
		if !b.IsClosed() {
			out = append(out, collection)
		}
	}
	slices.Sort(out)
	return out
}

// stateChanged counts the breakers that are not closed, and tells the observer.
func (s *Store) stateChanged(e circuitbreaker.StateChangedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.OldState == circuitbreaker.ClosedState:
		s.broken++
	case e.NewState == circuitbreaker.ClosedState:
		s.broken--
	}
	s.told().StoreBroken(s.options.Name, s.broken)
}

// read sends a read of a collection, and retries it once after a transient failure if
// the retry budget allows.
func read[T any](ctx context.Context, s *Store, operation, collection string, do func(context.Context) (T, error)) (T, error) {
	b := s.breaker(collection)
	s.retries.Called()
	answer, err := send(ctx, s, b, operation, collection, do)
	if !s.mayRetry(ctx, err) {
		return answer, err
	}
	s.told().StoreRetried(s.options.Name, operation)
	return send(ctx, s, b, operation, collection, do)
}

// errBroken means that the breaker was open and the call was not sent.
var errBroken = fmt.Errorf("%w: not asked", adapters.ErrUnavailable)

// send sends one call if the breaker permits, and records the outcome in the breaker.
func send[T any](ctx context.Context, s *Store, b *breaker, operation, collection string, do func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("store %q, %s: %w", s.options.Name, operation, err)
	}
	if !b.TryAcquirePermit() {
		s.told().StoreCalled(ctx, s.options.Name, operation)(Broken)
		return none, fmt.Errorf("store %q, %s: %w: collection %q failed %d times in a row, and is asked again in %s",
			s.options.Name, operation, errBroken, collection, s.options.BreakAfter, max(b.RemainingDelay(), 0).Round(time.Millisecond))
	}
	began := time.Now()
	ended := s.told().StoreCalled(ctx, s.options.Name, operation)
	panicked := true
	defer func() {
		if panicked { // a half-open breaker must get its permit back
			b.RecordFailure()
			ended(Failed)
		}
	}()
	answer, err := do(ctx)
	panicked = false
	outcome := outcomeOf(ctx, err)
	b.record(outcome, time.Since(began))
	ended(outcome)
	return answer, err
}

// record tells the breaker the outcome of a call. A call that the caller cancelled, or
// gave too little time, says nothing about the store; it only returns the permit of a
// half-open breaker.
func (b *breaker) record(outcome string, took time.Duration) {
	switch {
	case outcome == Unavailable, outcome == Timeout && took >= slowAfter:
		b.RecordFailure()
	case outcome == Timeout, outcome == Cancelled:
		if b.IsHalfOpen() {
			b.RecordFailure()
		}
	default:
		b.RecordSuccess() // the store answered
	}
}

// mayRetry reports, after a pause, whether a failed read may be retried.
func (s *Store) mayRetry(ctx context.Context, err error) bool {
	if !errors.Is(err, adapters.ErrUnavailable) || errors.Is(err, errBroken) || ctx.Err() != nil {
		return false
	}
	wait := retryPause()
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < wait || !s.retries.Spend() {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
