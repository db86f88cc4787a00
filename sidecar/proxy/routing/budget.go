package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Bound gives a search of the collection the time after which the original
// request must leave, so that the database's own answer is there in time: the
// caller's deadline or the route's latency budget, whichever ends first, less
// what the database takes for nearly all searches. Without either it is ctx.
func (r *Router) Bound(ctx context.Context, collection string) (context.Context, context.CancelFunc) {
	now := time.Now()
	end, bounded := ctx.Deadline()
	if budget := r.budgets[collection]; budget > 0 && (!bounded || now.Add(budget).Before(end)) {
		end, bounded = now.Add(budget), true
	}
	if !bounded {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-r.database.keep(end.Sub(now))))
}

// Passed notes how long the database took for a search that passed.
func (r *Router) Passed(took time.Duration) { r.database.add(took) }

// Rescored counts a call that was answered and says so in the answer's words.
func (r *Router) Rescored(all []Ranked) string {
	r.observe("rescored", "")
	return Status(all)
}

// NotRescored counts a Pass or Degraded and says so in the answer's words.
func (r *Router) NotRescored(err error) string {
	var p Pass
	var d Degraded
	switch {
	case errors.As(err, &p):
		r.observe("passed", string(p))
	case errors.As(err, &d):
		r.observe("degraded", d.Reason)
	}
	return err.Error()
}

// latency are the last times of searches that the database answered itself.
type latency struct {
	mu    sync.Mutex
	times [256]time.Duration
	count int
}

func (l *latency) add(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[l.count%len(l.times)] = took
	l.count++
}

// enough times to speak of a p99.
const enough = 20

// keep is the time to keep back of what is left: their p99, or a quarter while
// there are few, and never more than half.
func (l *latency) keep(left time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count < enough {
		return left / 4
	}
	sorted := slices.Sorted(slices.Values(l.times[:min(l.count, len(l.times))]))
	return min(sorted[len(sorted)*99/100], left/2)
}
