package gate

import (
	"context"
	"sync/atomic"
)

// arrival is a call that has arrived and whose first search is not admitted yet.
type arrival struct {
	gate  *Gate
	ended atomic.Bool
	// stop cancels the function that ends the arrival when the call's context ends.
	stop func() bool
}

type arrivalKey struct{}

// Arrive is called when a call of searches comes, before its message is read, which makes
// a refusal cheap. It returns the context to admit the searches with. It returns a
// *RefusedError if memory is nearly used up, or if more calls wait for the processors than
// can be answered soon, whatever their route. Searches that wait for a store do not count.
func (g *Gate) Arrive(ctx context.Context) (context.Context, error) {
	if r := g.memory.refusal(); r != nil {
		return ctx, g.refuse("", r)
	}
	if g.Overloaded() && g.waiting() >= g.searches.mostWaiting {
		g.searches.overUntil.Store(g.now() + int64(overloadTime))
		return ctx, g.refuse("", g.busy)
	}
	a := &arrival{gate: g}
	g.searches.arriving.Add(1)
	a.stop = context.AfterFunc(ctx, a.end)
	return context.WithValue(ctx, arrivalKey{}, a), nil
}

// Overloaded reports whether a search was refused a moment ago because more came than can
// be answered.
func (g *Gate) Overloaded() bool { return g.now() < g.searches.overUntil.Load() }

// waiting counts the searches that wait for a processor, or will shortly.
func (g *Gate) waiting() int { return int(g.searches.arriving.Load()) + g.processors.Waiting() }

// end stops counting the arrival. Later calls do nothing.
func (a *arrival) end() {
	if a.ended.CompareAndSwap(false, true) {
		a.gate.searches.arriving.Add(-1)
	}
}

// endArrival ends the arrival of the call that ctx belongs to, if it has one.
func endArrival(ctx context.Context) {
	if a, ok := ctx.Value(arrivalKey{}).(*arrival); ok && !a.ended.Load() {
		a.stop()
		a.end()
	}
}
