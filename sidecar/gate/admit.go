package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"golang.org/x/sync/semaphore"
)

// A route that is full lets searches wait: in a queue of queueFrom to queueTo times its
// limit, in which refusals become more likely, and no search for longer than half of the
// time that it has left. A burst waits for up to maxWait. Searches that come within
// overloadTime of a refusal are no burst but more than can be answered. A queue then makes
// every answer later and none more, so a search waits for shortWait, which keeps a search
// at hand for each permit that becomes free (controlled delay, Nichols and Jacobson 2012).
const (
	queueFrom    = 3
	queueTo      = 4
	maxWait      = 250 * time.Millisecond
	overloadTime = 100 * time.Millisecond
	shortWait    = 4 * time.Millisecond
)

// leastPerCore is the smallest adaptive limit of a route, per core. More searches do not speed up
// scoring, which keeps processors busy, but a search also waits for its store.
const leastPerCore = 4

// waitingPerCore is how many searches per core may wait for a processor during an overload: enough
// that no processor is ever idle.
const waitingPerCore = leastPerCore - 1

// Limits are the limits of searches.
type Limits struct {
	// MaxSearches bounds the searches in flight of all routes together. 0 is no bound.
	MaxSearches int
	// Adaptive finds a limit for each route, below the fixed ones, from how long its searches take:
	// fewer are let in when more in flight make all of them slower.
	Adaptive bool
	// Routes has a Limit for every route, by name.
	Routes map[string]Limit
}

// searches holds the searches in flight to their limits.
type searches struct {
	bounds atomic.Pointer[bounds]
	flying atomic.Int64
	// arriving counts the calls that have arrived and have not asked for admission yet.
	arriving atomic.Int64
	// overUntil is the end of the last overload, in the units of Gate.now. Until then at most
	// mostWaiting searches may arrive or wait for a processor.
	overUntil   atomic.Int64
	mostWaiting int
}

// bounds are the limits in force. Searches that they let in count against them even after
// SetLimits replaced them.
type bounds struct {
	max      int
	adaptive bool
	all      *semaphore.Weighted
	shares   *shares // the callers' shares of max
	routes   map[string]*routeBounds
}

// routeBounds are the limits of one route.
type routeBounds struct {
	fixedLimit
	adaptive  adaptivelimiter.AdaptiveLimiter[any] // nil if only the common limits hold
	shares    shares
	overUntil atomic.Int64 // in the units of Gate.now, as searches.overUntil
}

// SetLimits replaces the limits for searches that begin later. A route keeps the adaptive limit
// that was found for it, as far as its new limits allow. Calls of SetLimits must not overlap.
func (g *Gate) SetLimits(l Limits) {
	l.MaxSearches = cmp.Or(l.MaxSearches, math.MaxInt32)
	next := &bounds{max: l.MaxSearches, adaptive: l.Adaptive, all: semaphore.NewWeighted(int64(l.MaxSearches)), shares: &shares{}, routes: map[string]*routeBounds{}}
	last := g.searches.bounds.Load()
	sameMax := last != nil && last.max == next.max
	if sameMax {
		next.all, next.shares = last.all, last.shares
	}
	for name, limit := range l.Routes {
		if sameMax && last.adaptive == next.adaptive && last.routes[name] != nil && last.routes[name].limit == limit {
			next.routes[name] = last.routes[name]
			continue
		}
		r := &routeBounds{fixedLimit: newFixedLimit(limit)}
		if l.Adaptive {
			r.adaptive = newAdaptiveLimiter(g.cores, l.MaxSearches, limit, last.foundLimit(name))
		}
		next.routes[name] = r
	}
	g.searches.bounds.Store(next)
}

// foundLimit returns the adaptive limit found for a route, or 0.
func (b *bounds) foundLimit(route string) uint {
	if b == nil || b.routes[route] == nil || b.routes[route].adaptive == nil {
		return 0
	}
	return uint(b.routes[route].adaptive.Limit())
}

// newAdaptiveLimiter makes the limiter that finds a route's limit, between the number of searches
// that keeps the cores busy and the route's fixed limit. It starts at the limit that was found
// before, unless that is 0.
func newAdaptiveLimiter(cores, maxSearches int, l Limit, found uint) adaptivelimiter.AdaptiveLimiter[any] {
	most := uint(maxSearches)
	if l.MaxSearches > 0 {
		most = min(most, uint(l.MaxSearches))
	}
	least := min(uint(leastPerCore*cores), most)
	return adaptivelimiter.NewBuilder[any]().
		WithLimits(least, most, min(max(cmp.Or(found, 2*least), least), most)).
		WithMaxLimitStabilizationWindow(time.Minute).
		WithQueueing(queueFrom, queueTo).
		Build()
}

// Admit lets a search of a route begin. If the route is full, the search waits briefly. The caller
// calls leave with the search's error when the search has ended. A search of an unknown route
// counts towards the limit of all routes only. Admit returns a *RefusedError of the kind
// ErrOverload, or the context's error.
func (g *Gate) Admit(ctx context.Context, route string) (leave func(error), err error) {
	endArrival(ctx)
	free, bounds, err := g.admitFixed(ctx, route)
	if err != nil {
		return nil, err
	}
	endPermit := func(error) {}
	if bounds != nil && bounds.adaptive != nil {
		if endPermit, err = g.permit(ctx, route, bounds); err != nil {
			free()
			return nil, err
		}
	}
	g.searches.flying.Add(1)
	return func(err error) {
		g.searches.flying.Add(-1)
		free()
		endPermit(err)
	}, nil
}

// permit takes a permit of the route's adaptive limit. If none is free, it waits briefly. The
// caller calls end with the search's error.
func (g *Gate) permit(ctx context.Context, route string, r *routeBounds) (end func(error), err error) {
	permit, ok := r.adaptive.TryAcquirePermit()
	if !ok {
		permit, err = r.adaptive.AcquirePermitWithMaxWait(ctx, queueTime(ctx, g.now() < r.overUntil.Load()))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		until := g.now() + int64(overloadTime)
		r.overUntil.Store(until)
		g.searches.overUntil.Store(until)
		return nil, g.refuse(route, routeSlow(route, r.adaptive.Limit(), err))
	}
	return func(err error) {
		// A search that its caller cancelled, or requested wrongly, says nothing about the load.
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			permit.Record()
		} else {
			permit.Drop()
		}
	}, nil
}

// AdmitScoring lets a call begin that only scores items of a route. Such calls count
// against the fixed limits and not against the adaptive one. The caller calls leave when
// the call has ended. It returns a *RefusedError of the kind ErrOverload.
func (g *Gate) AdmitScoring(ctx context.Context, route string) (leave func(), err error) {
	endArrival(ctx)
	leave, _, err = g.admitFixed(ctx, route)
	return leave, err
}

// admitFixed lets a search of a route through the fixed limits, or refuses it at once. The caller
// calls leave when the search has ended. r is nil if no route has that name.
func (g *Gate) admitFixed(ctx context.Context, route string) (leave func(), r *routeBounds, err error) {
	if refused := g.memory.refusal(); refused != nil {
		return nil, nil, g.refuse(route, refused)
	}
	b, caller := g.searches.bounds.Load(), CallerOf(ctx)
	if callers, ok := b.shares.enter(caller, g.now(), b.max, fixedLimit{}); !ok {
		return nil, nil, g.refuse(route, shareTaken("here", callers))
	}
	if !b.all.TryAcquire(1) {
		b.shares.reached(caller, g.now())
		return nil, nil, g.refuse(route, tooManySearches("limits.max_searches", b.max))
	}
	leaveAll := func() {
		b.all.Release(1)
		b.shares.leave(caller)
	}
	r = b.routes[route]
	if r == nil { // the search itself returns the error
		return leaveAll, nil, nil
	}
	leaveRoute, refused := r.admit(route, caller, g.now())
	if refused != nil {
		leaveAll()
		return nil, nil, g.refuse(route, refused)
	}
	return func() {
		leaveRoute()
		leaveAll()
	}, r, nil
}

// admit counts a search of a caller within the route's fixed limits and the caller's share
// of the route, or refuses it. The caller calls leave when the search has ended.
func (r *routeBounds) admit(route, caller string, now int64) (leave func(), refused *RefusedError) {
	callers, ok := r.shares.enter(caller, now, r.places(), r.fixedLimit)
	if !ok {
		return nil, shareTaken(fmt.Sprintf("route %q", route), callers)
	}
	if refused := r.enter(route); refused != nil {
		r.shares.reached(caller, now)
		return nil, refused
	}
	return func() {
		r.leave()
		r.shares.leave(caller)
	}, nil
}

// places returns how many searches of the route may be in flight now; 0 if the route has no limit
// of its own.
func (r *routeBounds) places() int {
	if r.adaptive != nil {
		return r.adaptive.Limit()
	}
	return r.limit.MaxSearches
}

// queueTime returns how long a search waits for a route that is full.
func queueTime(ctx context.Context, overloaded bool) time.Duration {
	most := maxWait
	if overloaded {
		most = shortWait
	}
	if deadline, has := ctx.Deadline(); has {
		return min(most, time.Until(deadline)/2)
	}
	return most
}

// Busy reports whether as many searches are in flight as there are cores, so that work in
// the background would slow them down.
func (g *Gate) Busy() bool { return g.searches.flying.Load() >= int64(g.cores) }

// Load says how full a route is.
type Load struct {
	Limit    int `json:"limit"`
	InFlight int `json:"in_flight"`
	Queued   int `json:"queued"`
}

// Load returns how full a route is. ok is false if the route's limit does not adapt.
func (g *Gate) Load(route string) (l Load, ok bool) {
	r, ok := g.searches.bounds.Load().routes[route]
	if !ok || r.adaptive == nil {
		return l, false
	}
	return Load{Limit: r.adaptive.Limit(), InFlight: r.adaptive.Inflight(), Queued: r.adaptive.Queued()}, true
}
