// Package guard wraps a store across a network and limits the cost of its faults. It
// stops reading a collection that keeps failing for everybody, retries a limited share of
// the failed reads, and never retries writes. The wrapper has exactly the abilities of the
// store.
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

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/breaker"
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
	// read if it fails for a read of our own too; 0 means 5. BreakFor is how long it is
	// not read, give or take a fifth; 0 means 500 ms. After that, one call at a time is
	// sent until it or a read of our own succeeds.
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
	// failure of the store. A caller may set a deadline that no store could meet. A read
	// of our own may take as long.
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
	breakers map[string]*breaker.Breaker // by collection, because one collection can fail while others work
	broken   int                         // number of breakers that are not closed
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
		Server: s, options: o, breakers: map[string]*breaker.Breaker{},
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
func (s *Store) breaker(collection string) *breaker.Breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.breakers[collection]
	if b == nil {
		b = breaker.New(breaker.Options{After: s.options.BreakAfter, For: s.options.BreakFor, Changed: s.stateChanged})
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
		if b.State() != breaker.Closed {
			out = append(out, collection)
		}
	}
	slices.Sort(out)
	return out
}

// stateChanged counts the breakers that are not closed, and tells the observer.
func (s *Store) stateChanged(from, to breaker.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case from == breaker.Closed:
		s.broken++
	case to == breaker.Closed:
		s.broken--
	}
	s.told().StoreBroken(s.options.Name, s.broken)
}

// read sends a read of a collection, and retries it once after a transient failure if
// the retry budget allows. own is a read of the same kind without anything that a caller
// chose.
func read[T any](ctx context.Context, s *Store, operation, collection string, do func(context.Context) (T, error), own func(context.Context) error) (T, error) {
	b := s.breaker(collection)
	s.retries.Called()
	answer, err := send(ctx, s, b, operation, collection, do, own)
	if !s.mayRetry(ctx, err) {
		return answer, err
	}
	s.told().StoreRetried(s.options.Name, operation)
	return send(ctx, s, b, operation, collection, do, own)
}

// errBroken means that the breaker was open and the call was not sent.
var errBroken = fmt.Errorf("%w: not asked", adapters.ErrUnavailable)

// send sends one call if the breaker permits, and gives the breaker its verdict.
func send[T any](
	ctx context.Context, s *Store, b *breaker.Breaker, operation, collection string, do func(context.Context) (T, error), own func(context.Context) error,
) (answer T, err error) {
	if err := ctx.Err(); err != nil {
		return answer, fmt.Errorf("store %q, %s: %w", s.options.Name, operation, err)
	}
	call, ok := b.Begin()
	if !ok {
		s.told().StoreCalled(ctx, s.options.Name, operation)(Broken)
		return answer, fmt.Errorf("store %q, %s: %w: collection %q failed %d times in a row, and is asked again in %s",
			s.options.Name, operation, errBroken, collection, s.options.BreakAfter, b.Pause().Round(time.Millisecond))
	}
	began := time.Now()
	verdict := breaker.Fails // of a call that panics
	defer func() { call.End(verdict, func() bool { return s.works(ctx, operation, own) }) }()
	err = s.sendOnce(ctx, operation, func() error {
		answer, err = do(ctx)
		return err
	})
	verdict = verdictOf(outcomeOf(ctx, err), err, time.Since(began))
	return answer, err
}

// verdictOf says what a call's outcome tells about the store. A call that the caller
// cancelled or gave too little time tells nothing, and neither does a request that was
// refused, perhaps without asking the store.
func verdictOf(outcome string, err error, took time.Duration) breaker.Verdict {
	switch {
	case outcome == OK:
		return breaker.Works
	case outcome == Unavailable, outcome == Timeout && took >= slowAfter, outcome == Failed && errors.Is(err, adapters.ErrStore):
		return breaker.Fails
	default:
		return breaker.Unknown
	}
}

// works reports whether the store answers a read of our own in time, if only to refuse it.
func (s *Store) works(ctx context.Context, operation string, own func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slowAfter)
	defer cancel()
	err := s.sendOnce(ctx, operation, func() error { return own(ctx) })
	return verdictOf(outcomeOf(ctx, err), err, slowAfter) != breaker.Fails
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
