// Package guard stands before a store across a network, and bounds what its faults
// cost: reads of a collection that keeps failing are not sent, a share of the reads
// that failed are sent again, and writes never are. It adds nothing that the store
// cannot do, and hides nothing that it can.
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

// Server is what every store across a network can do.
type Server interface {
	adapters.Store
	adapters.Fetcher
	adapters.Scanner
	adapters.RangeSearcher
	adapters.Describer
	adapters.Counter
	adapters.Writer
	adapters.Deleter
	adapters.Matcher
	adapters.Aliaser
	adapters.Identifier
}

// Options of New. Zero values are the defaults that are named.
type Options struct {
	// Name is the operator's, for errors and metrics.
	Name string
	// BreakAfter failures in a row a collection is not read for BreakFor, a fifth more
	// or less, and then by one call at a time until one succeeds; 0 is 5, and 500 ms.
	BreakAfter int
	BreakFor   time.Duration
	// RetryBudget is the share of the reads, over ten seconds, that may be sent again
	// after a failure that can pass; 0 is none, above it one of them always may.
	RetryBudget float64
	// HedgeAfter is how long a search may be under way before it is sent a second time,
	// of which the first answer counts; 0 sends none. It is bounded to a share of 0.05.
	HedgeAfter time.Duration
}

const (
	// hedgeShare is that of the searches, over ten seconds, that may be sent twice.
	hedgeShare = 0.05
	// slowAfter is how long a call has to have been under way for its deadline to count
	// against the store: a caller may give it less than any store needs.
	slowAfter = time.Second
	// pauseLeast and pauseMost bound the pause before a read is sent again.
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
	breakers map[string]*breaker // by collection: one that is not loaded says nothing of the others
	broken   int                 // of them, not closed
}

type breaker struct {
	circuitbreaker.CircuitBreaker[any]
}

// cutter is a Store of a server that can cut collections.
type cutter struct {
	*Store
	adapters.Partitioner
}

var (
	_ Server               = (*Store)(nil)
	_ adapters.Partitioner = cutter{}
)

// New returns a store that can do what s can.
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

// Watch has an observer told of what happens from now on.
func (s *Store) Watch(o Observer) { s.observer.Store(&o) }

func (s *Store) told() Observer { return *s.observer.Load() }

// breaker is that of a collection. Callers read those that routes name, which are few.
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
			OnStateChanged(s.changed).
			Build()}
		s.breakers[collection] = b
	}
	return b
}

// Broken are the collections that are not read, or by one call at a time, in order.
func (s *Store) Broken() []string {
	s.mu.Lock()
	all := maps.Clone(s.breakers)
	s.mu.Unlock() // a breaker that changes holds its own lock when it asks for this one
	var out []string
	for collection, b := range all {
		if !b.IsClosed() {
			out = append(out, collection)
		}
	}
	slices.Sort(out)
	return out
}

// changed counts the collections that are not read, or by one call at a time.
func (s *Store) changed(e circuitbreaker.StateChangedEvent) {
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

// read sends a read of a collection, and once more after a failure that can pass, if
// the budget has it.
func read[T any](ctx context.Context, s *Store, operation, collection string, do func(context.Context) (T, error)) (T, error) {
	b := s.breaker(collection)
	s.retries.Called()
	answer, err := send(ctx, s, b, operation, collection, do)
	if !s.again(ctx, err) {
		return answer, err
	}
	s.told().StoreRetried(s.options.Name, operation)
	return send(ctx, s, b, operation, collection, do)
}

// errBroken: the call was not sent.
var errBroken = fmt.Errorf("%w: not asked", adapters.ErrUnavailable)

// send sends one call, if the breaker lets it through, and tells the breaker.
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
		if panicked { // the permit of a probe has to be given back
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

// record tells the breaker what a call says of the store. What the caller gave up, or
// gave little time, says nothing; but the permit of a probe has to be given back.
func (b *breaker) record(outcome string, took time.Duration) {
	switch {
	case outcome == Unavailable, outcome == Timeout && took >= slowAfter:
		b.RecordFailure()
	case outcome == Timeout, outcome == Cancelled:
		if b.IsHalfOpen() {
			b.RecordFailure()
		}
	default:
		b.RecordSuccess() // it answered
	}
}

// again reports, after a pause, whether a read that failed may be sent once more.
func (s *Store) again(ctx context.Context, err error) bool {
	if !errors.Is(err, adapters.ErrUnavailable) || errors.Is(err, errBroken) || ctx.Err() != nil {
		return false
	}
	wait := pause()
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
