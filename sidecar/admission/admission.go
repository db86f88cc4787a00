// Package admission lets in as many searches as can be answered in time, and
// refuses the others at once: work that is begun and then given up helps nobody,
// and a sidecar that tries to do it all answers none.
package admission

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"golang.org/x/sync/semaphore"

	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// ErrOverload: more searches are in flight than can be answered in time, or
// than the limit allows. Retrying later may help.
var ErrOverload = errors.New("too many searches in flight")

// What a route that is full makes wait: queueFrom to queueTo times its limit, in
// which refusals become more likely, and no search for longer than half of the
// time that it has left. A burst waits for up to maxWait. Within an interval of
// a refusal it is no burst but more than can be answered: a queue then makes
// every answer later and none more, so a call waits for shortWait, which keeps
// somebody at hand for each permit that becomes free (after the controlled delay
// of Nichols and Jacobson).
const (
	queueFrom = 3
	queueTo   = 4
	maxWait   = 250 * time.Millisecond
	interval  = 100 * time.Millisecond
	shortWait = 4 * time.Millisecond
)

// perCore is the least that a route is let have in flight, a core. Scoring is
// bound by the processor, which more calls do not speed up; but a call waits for
// its store, too.
const perCore = 4

// Options of New.
type Options struct {
	// MaxSearches bounds the searches in flight of all routes together.
	MaxSearches int
	// Adaptive finds each route's own limit below that from the times of its
	// searches: when more in flight make all of them slower, fewer are let in.
	Adaptive bool
}

// Searcher is a searcher behind an admission. It is safe for concurrent use.
type Searcher struct {
	pipeline.Searcher
	max    int
	cores  int // when it was made: a thread to spare comes later
	all    *semaphore.Weighted
	start  time.Time
	routes map[string]*route
	// flying is the searches in flight.
	flying atomic.Int64
}

// route is a route's limit, and until when its calls wait shortly.
type route struct {
	adaptivelimiter.AdaptiveLimiter[any]
	overUntil atomic.Int64 // as Searcher.since
}

// since is the time since start, as a number that can be stored at once.
func (a *Searcher) since() int64 { return int64(time.Since(a.start)) }

var _ pipeline.Searcher = (*Searcher)(nil)

// New puts an admission before a searcher, whose routes are known by now.
func New(s pipeline.Searcher, o Options) *Searcher {
	a := &Searcher{Searcher: s, max: o.MaxSearches, cores: runtime.GOMAXPROCS(0), all: semaphore.NewWeighted(int64(o.MaxSearches)),
		start: time.Now(), routes: map[string]*route{}}
	if !o.Adaptive {
		return a
	}
	least := uint(min(perCore*a.cores, o.MaxSearches))
	for _, r := range s.Routes() {
		a.routes[r.Name] = &route{AdaptiveLimiter: adaptivelimiter.NewBuilder[any]().
			WithLimits(least, uint(o.MaxSearches), min(2*least, uint(o.MaxSearches))).
			WithMaxLimitStabilizationWindow(time.Minute).
			WithQueueing(queueFrom, queueTo).
			Build()}
	}
	return a
}

// Search implements pipeline.Searcher; it adds ErrOverload to its errors.
func (a *Searcher) Search(ctx context.Context, r pipeline.Request) (answer pipeline.Answer, err error) {
	leave, err := a.enter(ctx, r.Route)
	if err != nil {
		return answer, err
	}
	a.flying.Add(1)
	defer func() {
		a.flying.Add(-1)
		leave(err)
	}()
	return a.Searcher.Search(ctx, r)
}

// Score implements pipeline.Searcher; it adds ErrOverload to its errors.
func (a *Searcher) Score(ctx context.Context, r pipeline.ScoreRequest) (answer pipeline.ScoreAnswer, err error) {
	if !a.all.TryAcquire(1) {
		return answer, a.full()
	}
	defer a.all.Release(1)
	return a.Searcher.Score(ctx, r)
}

// Busy reports whether as many searches are in flight as there are cores, so that
// work in the background would slow them down.
func (a *Searcher) Busy() bool { return a.flying.Load() >= int64(a.cores) }

// Load is what a route has in flight.
type Load struct {
	Limit, InFlight, Queued int
}

// Load returns the load of a route, if its limit adapts.
func (a *Searcher) Load(route string) (l Load, ok bool) {
	limiter, ok := a.routes[route]
	if !ok {
		return l, false
	}
	return Load{Limit: limiter.Limit(), InFlight: limiter.Inflight(), Queued: limiter.Queued()}, true
}

func (a *Searcher) full() error {
	return fmt.Errorf("%w: limits.max_searches is %d; send fewer at a time, or raise it", ErrOverload, a.max)
}

// enter returns what must be called with the outcome when the search has ended.
func (a *Searcher) enter(ctx context.Context, route string) (leave func(error), err error) {
	if !a.all.TryAcquire(1) {
		return nil, a.full()
	}
	limiter, ok := a.routes[route]
	if !ok { // there is no such route, or its limit is the common one
		return func(error) { a.all.Release(1) }, nil
	}
	permit, ok := limiter.TryAcquirePermit()
	if !ok {
		if permit, err = limiter.AcquirePermitWithMaxWait(ctx, wait(ctx, a.since() < limiter.overUntil.Load())); err != nil {
			if ctx.Err() == nil {
				limiter.overUntil.Store(a.since() + int64(interval))
			}
			a.all.Release(1)
			return nil, refused(ctx, err, route, limiter.Limit())
		}
	}
	return func(err error) {
		a.all.Release(1)
		// What a caller gave up, or asked wrongly, says nothing about the load.
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			permit.Record()
		} else {
			permit.Drop()
		}
	}, nil
}

func refused(ctx context.Context, err error, route string, limit int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: route %q answers %d at a time without slowing down, and as many wait as it can answer soon; send fewer at a time, or add a sidecar: %w",
		ErrOverload, route, limit, err)
}

// wait is how long a call waits for a route that is full.
func wait(ctx context.Context, overloaded bool) time.Duration {
	most := maxWait
	if overloaded {
		most = shortWait
	}
	if deadline, has := ctx.Deadline(); has {
		return min(most, time.Until(deadline)/2)
	}
	return most
}
