package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// times holds the deadlines of one call. A zero time is no deadline.
type times struct {
	// end is when the caller's deadline or the route's latency budget is over.
	end time.Time
	// leave is when the original request must go, so that the database's own answer
	// is there by end.
	leave time.Time
}

// times of a call that began then: the caller's deadline, its own timeout or the
// collection's latency budget, whichever ends first, less what the database
// takes for nearly all searches.
func (r *Router) times(ctx context.Context, collection string, began time.Time, timeout time.Duration) (t times) {
	t.end, _ = ctx.Deadline()
	for _, d := range []time.Duration{timeout, r.latencyBudget(collection)} {
		if at := began.Add(d); d > 0 && (t.end.IsZero() || at.Before(t.end)) {
			t.end = at
		}
	}
	if !t.end.IsZero() {
		t.leave = t.end.Add(-r.database.keep(t.end.Sub(began)))
	}
	return t
}

// latencyBudget returns the shortest latency budget of a collection's routes, or 0 if no
// route has one.
func (r *Router) latencyBudget(collection string) (least time.Duration) {
	for _, name := range r.known[collection] {
		if route, err := r.searcher.Route(name); err == nil && route.LatencyBudget > 0 && (least == 0 || route.LatencyBudget < least) {
			least = route.LatencyBudget
		}
	}
	return least
}

// Passed notes how long the database took for a search that passed.
func (r *Router) Passed(took time.Duration) { r.database.add(took) }

// Passes counts a search of a routed collection that is never answered, and says
// why in the answer's words. The search of a caller whom the database has not accepted
// lately does not count, and nothing is said.
func (r *Router) Passes(ctx context.Context, target Target, why Pass) string {
	if !r.accepted.has(r.accepted.of(ctx, toSearch, target.Name)) {
		return ""
	}
	return r.notRescored(r.known[target.Routed], why)
}

// notRescored counts the Pass or Degraded of a search of the routes, and says so in the
// answer's words.
func (r *Router) notRescored(routes []string, err error) string {
	var p Pass
	var d Degraded
	switch {
	case errors.As(err, &p):
		r.record.Proxied("passed", string(p))
	case errors.As(err, &d):
		r.record.Proxied("degraded", d.Reason)
	}
	r.noteUnanswered(context.Background(), routes, err.Error())
	return err.Error()
}

// latency are the last times of searches that the database answered itself.
type latency struct {
	mu    sync.Mutex
	times [256]time.Duration
	count int
	p99   time.Duration // of times; 0: to be computed
}

func (l *latency) add(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[l.count%len(l.times)] = took
	l.count++
	l.p99 = 0
}

// enough is the number of measured times from which a p99 is computed.
const enough = 20

// keep returns how much of the remaining time to reserve for the database: the p99 of its
// answers, or a quarter while few were measured, and at most half.
func (l *latency) keep(left time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count < enough {
		return left / 4
	}
	if l.p99 == 0 {
		sorted := slices.Sorted(slices.Values(l.times[:min(l.count, len(l.times))]))
		l.p99 = sorted[len(sorted)*99/100]
	}
	return min(l.p99, left/2)
}

// extraShare is the share of searches for which the database may be asked in vain;
// extraBurst is how many such searches may come at a time.
const (
	extraShare = 0.05
	extraBurst = 10
)

// extra allows requests beside rescoring: each search earns a share of one.
type extra struct {
	mu     sync.Mutex
	credit float64
}

func (e *extra) earn(n float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credit = min(e.credit+n, extraBurst)
}

func (e *extra) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.credit < 1 {
		return false
	}
	e.credit--
	return true
}
