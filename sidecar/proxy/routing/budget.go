package routing

import (
	"context"
	"slices"
	"sync"
	"time"
)

// times holds the deadlines of one call. Zero means no deadline.
type times struct {
	// end is the earlier of the caller's deadline and the end of the route's latency budget.
	end time.Time
	// leave is when the original request must be sent for the database's own answer to arrive by
	// end.
	leave time.Time
	// ranked is when the order must be known for the database to confirm it by leave.
	ranked time.Time
}

// deadlines returns the deadlines of a call that began at the given time. end is the earliest of the
// caller's deadline and the given limits, of which 0 sets none. leave precedes it by the time within
// which the database answers nearly all searches, and ranked precedes leave by as much.
func (l *latency) deadlines(ctx context.Context, began time.Time, limits ...time.Duration) (t times) {
	t.end, _ = ctx.Deadline()
	for _, d := range limits {
		if at := began.Add(d); d > 0 && (t.end.IsZero() || at.Before(t.end)) {
			t.end = at
		}
	}
	if !t.end.IsZero() {
		keep := l.keep(t.end.Sub(began))
		t.leave, t.ranked = t.end.Add(-keep), t.end.Add(-2*keep)
	}
	return t
}

// Passed records how long the database took for a search that passed.
func (r *Router) Passed(took time.Duration) { r.database.add(took) }

// Passes counts a search on a routed collection whose method is never answered, and returns the
// status text for the answer. If the database has not accepted the caller lately, it counts nothing
// and returns "".
func (r *Router) Passes(ctx context.Context, target Target, why Pass) string {
	if !r.accepted.has(r.accepted.of(ctx, toSearch, target.Name)) {
		return ""
	}
	return r.outcomes.notRescored(r.Names.routesOf(target.Routed), why)
}

// latency holds the times of the last searches that the database answered itself.
type latency struct {
	mu    sync.Mutex
	times [256]time.Duration
	count int
	p99   time.Duration // p99 of times; 0: must be computed
}

func (l *latency) add(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[l.count%len(l.times)] = took
	l.count++
	l.p99 = 0
}

// enough is the number of measurements that a p99 needs.
const enough = 20

// keep returns how much of the remaining time to reserve for the database's own answer: the p99 of
// its times, or a quarter of left while there are few measurements, and at most half of it.
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

// extraShare is the share of searches for which a request to the database may be in vain;
// extraBurst is the number of such requests in a burst.
const (
	extraShare = 0.05
	extraBurst = 10
)

// extra limits the requests that are sent in addition to rescoring: each search earns a share of
// one.
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
