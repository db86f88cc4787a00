package admission

import (
	"context"
	"sync/atomic"
)

// arrival is a call from when it came until a search of it is let in, or it ended.
type arrival struct {
	at   *Searcher
	over atomic.Bool
	stop func() bool
}

type arrivalKey struct{}

// Arrive is asked when a call of searches came, before its message is read, which
// makes a refusal cheap. It returns the context to search with, or a *RefusedError: the
// memory is nearly used up, or more wait for the processors than can be
// answered, whatever their route. What waits for a store does not count.
func (a *Searcher) Arrive(ctx context.Context) (context.Context, error) {
	if r := a.memory.refusal(); r != nil {
		return ctx, a.refuse("", r)
	}
	if a.Overloaded() && a.waiting() >= a.queue {
		a.overUntil.Store(a.since() + int64(interval))
		return ctx, a.refuse("", a.busy)
	}
	one := &arrival{at: a}
	a.arriving.Add(1)
	one.stop = context.AfterFunc(ctx, one.end)
	return context.WithValue(ctx, arrivalKey{}, one), nil
}

// Overloaded reports whether searches were refused a moment ago because more came than
// can be answered.
func (a *Searcher) Overloaded() bool { return a.since() < a.overUntil.Load() }

// waiting is how many wait for a processor, or will in a moment.
func (a *Searcher) waiting() int { return int(a.arriving.Load()) + a.turns.Waiting() }

func (o *arrival) end() {
	if o.over.CompareAndSwap(false, true) {
		o.at.arriving.Add(-1)
	}
}

// arrived ends the arrival of the call that a search is of.
func arrived(ctx context.Context) {
	if one, ok := ctx.Value(arrivalKey{}).(*arrival); ok && !one.over.Load() {
		one.stop()
		one.end()
	}
}
