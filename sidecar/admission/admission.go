// Package admission lets in as many searches as can be answered in time, and
// refuses the others at once: work that is begun and then given up helps nobody,
// and a sidecar that tries to do it all answers none.
package admission

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"golang.org/x/sync/semaphore"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/sidecar/search"
)

// ErrOverload: more searches came than can be answered in time, or than a
// limit allows; the error is a *RefusedError. Retrying later may help.
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

// queueCore wait for a processor, a core, while there is more than can be answered:
// enough that it never stands idle, and as many as perCore in flight can be.
const queueCore = perCore - 1

// Options of New.
type Options struct {
	// MaxSearches bounds the searches in flight of all routes together.
	MaxSearches int
	// Adaptive finds each route's own limit below that from the times of its
	// searches: when more in flight make all of them slower, fewer are let in.
	Adaptive bool
	// Limits are those of single routes, by name.
	Limits map[string]Limit
	// Turns are those that searches take on the processors; nil: Arrive does not look at them.
	Turns *turns.Turns
	// Refused, if set, is told of each search that is not let in: its route, "unknown"
	// where there is none of that name, and why. It is called concurrently.
	Refused func(route, reason string)
}

// Searcher is a searcher behind an admission. It is safe for concurrent use.
type Searcher struct {
	search.Searcher
	bounds atomic.Pointer[bounds]
	cores  int // when it was made: a thread to spare comes later
	start  time.Time
	// flying is the searches in flight.
	flying atomic.Int64
	// arriving is the calls that came and whose first search was not asked yet; until
	// overUntil, as since, queue of them and of those that wait for a turn are enough.
	arriving  atomic.Int64
	overUntil atomic.Int64
	queue     int
	turns     *turns.Turns
	busy      *RefusedError
	memory    memory
	refused   func(route, reason string)
}

// bounds are what searches pass; those that Adjust replaced go on for what they let in.
type bounds struct {
	max      int
	adaptive bool
	all      *semaphore.Weighted
	routes   map[string]*route
}

// route is what bounds a route, and until when its calls wait shortly.
type route struct {
	gate
	adaptive  adaptivelimiter.AdaptiveLimiter[any] // nil: the limit is the common one
	overUntil atomic.Int64                         // as Searcher.since
}

// since is the time since start, as a number that can be stored at once.
func (a *Searcher) since() int64 { return int64(time.Since(a.start)) }

var _ search.Searcher = (*Searcher)(nil)

// New puts an admission before a searcher, whose routes are known by now.
func New(s search.Searcher, o Options) *Searcher {
	a := &Searcher{Searcher: s, cores: runtime.GOMAXPROCS(0), start: time.Now(), turns: o.Turns, refused: o.Refused}
	if a.turns == nil {
		a.turns = turns.New(a.cores)
	}
	a.queue, a.busy = queueCore*a.turns.Most(), busy(a.turns.Most())
	if a.refused == nil {
		a.refused = func(string, string) {}
	}
	a.Adjust(o)
	return a
}

// Adjust puts other limits in force for the searches that come; those in flight count
// against the limits that let them in. What was learned of a route goes on, as far as
// its new limits allow. One Adjust runs at a time.
func (a *Searcher) Adjust(o Options) {
	next := &bounds{max: o.MaxSearches, adaptive: o.Adaptive, all: semaphore.NewWeighted(int64(o.MaxSearches)), routes: map[string]*route{}}
	was := a.bounds.Load()
	if was != nil && was.max == next.max {
		next.all = was.all
	}
	for _, r := range a.Routes() {
		limit := o.Limits[r.Name]
		if was != nil && was.max == next.max && was.adaptive == next.adaptive && was.routes[r.Name].limit == limit {
			next.routes[r.Name] = was.routes[r.Name]
			continue
		}
		one := &route{gate: newGate(limit)}
		if o.Adaptive {
			one.adaptive = a.adaptive(o.MaxSearches, limit, was.learned(r.Name))
		}
		next.routes[r.Name] = one
	}
	a.bounds.Store(next)
}

// learned is the limit that was found of a route; 0: none was.
func (b *bounds) learned(name string) uint {
	if b == nil || b.routes[name] == nil || b.routes[name].adaptive == nil {
		return 0
	}
	return uint(b.routes[name].adaptive.Limit())
}

// adaptive finds a route's limit between what its calls keep busy and what it may
// have, from what was learned of it on.
func (a *Searcher) adaptive(maxSearches int, l Limit, learned uint) adaptivelimiter.AdaptiveLimiter[any] {
	most := uint(maxSearches)
	if l.MaxSearches > 0 {
		most = min(most, uint(l.MaxSearches))
	}
	least := min(uint(perCore*a.cores), most)
	return adaptivelimiter.NewBuilder[any]().
		WithLimits(least, most, min(max(cmp.Or(learned, 2*least), least), most)).
		WithMaxLimitStabilizationWindow(time.Minute).
		WithQueueing(queueFrom, queueTo).
		Build()
}

// Search implements search.Searcher; it adds ErrOverload to its errors.
func (a *Searcher) Search(ctx context.Context, r search.Request) (answer search.Answer, err error) {
	arrived(ctx)
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

// Score implements search.Searcher; it adds ErrOverload to its errors.
func (a *Searcher) Score(ctx context.Context, r search.ScoreRequest) (answer search.ScoreAnswer, err error) {
	arrived(ctx)
	leave, _, err := a.bounded(r.Route)
	if err != nil {
		return answer, err
	}
	defer leave()
	return a.Searcher.Score(ctx, r)
}

// Busy reports whether as many searches are in flight as there are cores, so that
// work in the background would slow them down.
func (a *Searcher) Busy() bool { return a.flying.Load() >= int64(a.cores) }

// Load is what a route has in flight.
type Load struct {
	Limit    int `json:"limit"`
	InFlight int `json:"in_flight"`
	Queued   int `json:"queued"`
}

// Load returns the load of a route, if its limit adapts.
func (a *Searcher) Load(route string) (l Load, ok bool) {
	r, ok := a.bounds.Load().routes[route]
	if !ok || r.adaptive == nil {
		return l, false
	}
	return Load{Limit: r.adaptive.Limit(), InFlight: r.adaptive.Inflight(), Queued: r.adaptive.Queued()}, true
}

// refuse tells of a refusal.
func (a *Searcher) refuse(route string, r *RefusedError) error {
	if _, known := a.bounds.Load().routes[route]; !known {
		route = "unknown"
	}
	a.refused(route, r.Reason)
	return r
}

// bounded lets a search of a route through the fixed limits, or refuses it at once.
// leave is called when it has ended. There may be no route of that name.
func (a *Searcher) bounded(name string) (leave func(), of *route, err error) {
	if r := a.memory.refusal(); r != nil {
		return nil, nil, a.refuse(name, r)
	}
	b := a.bounds.Load()
	if !b.all.TryAcquire(1) {
		return nil, nil, a.refuse(name, tooMany("limits.max_searches", b.max))
	}
	of, ok := b.routes[name]
	if !ok { // the pipeline says so
		return func() { b.all.Release(1) }, nil, nil
	}
	if r := of.enter(name); r != nil {
		b.all.Release(1)
		return nil, nil, a.refuse(name, r)
	}
	return func() {
		of.leave()
		b.all.Release(1)
	}, of, nil
}

// enter returns what must be called with the outcome when the search has ended.
func (a *Searcher) enter(ctx context.Context, route string) (leave func(error), err error) {
	free, bounds, err := a.bounded(route)
	if err != nil {
		return nil, err
	}
	if bounds == nil || bounds.adaptive == nil {
		return func(error) { free() }, nil
	}
	permit, ok := bounds.adaptive.TryAcquirePermit()
	if !ok {
		if permit, err = bounds.adaptive.AcquirePermitWithMaxWait(ctx, wait(ctx, a.since() < bounds.overUntil.Load())); err != nil {
			free()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			until := a.since() + int64(interval)
			bounds.overUntil.Store(until)
			a.overUntil.Store(until)
			return nil, a.refuse(route, slow(route, bounds.adaptive.Limit(), err))
		}
	}
	return func(err error) {
		free()
		// What a caller gave up, or asked wrongly, says nothing about the load.
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			permit.Record()
		} else {
			permit.Drop()
		}
	}, nil
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
