package gate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
)

// insideKey is the context key of a function that a search calls once it was let in.
type insideKey struct{}

// patient is a searcher whose searches call the function in their context.
var patient = searcher(func(ctx context.Context) error {
	if inside, ok := ctx.Value(insideKey{}).(func(context.Context) error); ok {
		return inside(ctx)
	}
	return nil
})

// slots returns the slots for searches, or scorings, of a route.
func slots(a *admitting, route string, n int, score bool) balance.Resource {
	return balance.Slots(fmt.Sprintf("slots of %q, scoring %t", route, score), n, func(ctx context.Context, inside func()) error {
		return enter(ctx, a, route, score, func(context.Context) error {
			inside()
			return nil
		})
	})
}

// enter makes one call that calls inside once it was let in.
func enter(ctx context.Context, a *admitting, route string, score bool, inside func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx = context.WithValue(ctx, insideKey{}, inside)
	if score {
		_, err = a.Score(ctx, search.ScoreRequest{Route: route})
		return err
	}
	_, err = a.Search(ctx, search.Request{Route: route})
	return err
}

// TestEverySlotComesBack: after every kind of end, all slots of each route, and all slots together,
// can be taken again.
func TestEverySlotComesBack(t *testing.T) {
	const most = 12
	down := errors.New("the store is down")
	ends := map[string]func(ctx context.Context, a *admitting, route string, score bool) error{
		"answered": func(ctx context.Context, a *admitting, route string, score bool) error {
			return enter(ctx, a, route, score, fine)
		},
		"failed": func(ctx context.Context, a *admitting, route string, score bool) error {
			return enter(ctx, a, route, score, func(context.Context) error { return down })
		},
		"panicked": func(ctx context.Context, a *admitting, route string, score bool) error {
			return enter(ctx, a, route, score, func(context.Context) error { panic("a model") })
		},
		"cancelled before": func(ctx context.Context, a *admitting, route string, score bool) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return enter(ctx, a, route, score, func(ctx context.Context) error { return ctx.Err() })
		},
		"cancelled inside": func(ctx context.Context, a *admitting, route string, score bool) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return enter(ctx, a, route, score, func(ctx context.Context) error {
				cancel()
				return ctx.Err()
			})
		},
		"out of time": func(ctx context.Context, a *admitting, route string, score bool) error {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			return enter(ctx, a, route, score, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		},
	}
	for end, call := range ends {
		for name, o := range settings(most) {
			t.Run(end+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := admit(patient, o)
					for _, route := range []string{"products", "none of that name"} {
						for _, score := range []bool{false, true} {
							for range max(2*most, 2*runtime.GOMAXPROCS(0)) {
								_ = call(t.Context(), a, route, score)
							}
						}
					}
					wantSlots(t, a, o)
				})
			})
		}
	}
}

// settings lists the ways to limit a route.
func settings(most int) map[string]options {
	route := func(l gate.Limit) map[string]gate.Limit { return map[string]gate.Limit{"products": l} }
	return map[string]options{
		"a common limit": {MaxSearches: most},
		// The route's limit is below the common one, for which a refused call has waited.
		"an adaptive one, with room beside it": {MaxSearches: 10 * most, Adaptive: true},
		"an adaptive one":                      {MaxSearches: most, Adaptive: true},
		"the route's own":                      {MaxSearches: most, Limits: route(gate.Limit{MaxSearches: most / 2})},
		"both":                                 {MaxSearches: most, Adaptive: true, Limits: route(gate.Limit{MaxSearches: most / 2})},
		"a rate of its own":                    {MaxSearches: most, Limits: route(gate.Limit{Rate: 1000, Burst: 1000})},
	}
}

// wantSlots wants every slot to be free, each several times over.
func wantSlots(t *testing.T, a *admitting, o options) {
	t.Helper()
	routes := o.MaxSearches
	if own := o.Limits["products"].MaxSearches; own > 0 {
		routes = own
	}
	if o.Adaptive { // at first it lets fewer in
		l, ok := a.Load("products")
		if !ok || l.InFlight != 0 || l.Queued != 0 {
			t.Errorf("in the end %+v", l)
		}
		routes = min(routes, l.Limit)
	}
	for range 2 {
		balance.Now(t, slots(a, "products", routes, false), slots(a, "products", routes, true))
		balance.Now(t, slots(a, "none of that name", o.MaxSearches, false), slots(a, "none of that name", o.MaxSearches, true))
	}
	if a.Busy() {
		t.Error("nobody searches and it is busy")
	}
}

// TestRefusalsTakeNothing: a refused call, whatever the reason, leaves every slot to others, and
// the error states the reason.
func TestRefusalsTakeNothing(t *testing.T) {
	const most = 6
	for name, o := range settings(most) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told refusals
				o.Refused = told.note
				a := admit(patient, o)
				release, refused := make(chan struct{}), 0
				held, inside := make(chan struct{}, o.MaxSearches), make(chan error, o.MaxSearches)
				for range o.MaxSearches {
					go func() {
						inside <- enter(t.Context(), a, "products", false, func(context.Context) error {
							held <- struct{}{}
							<-release
							return nil
						})
					}()
				}
				<-time.After(time.Second) // calls that wait for an adaptive limit have timed out
				for _, score := range []bool{false, true} {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
						if err := enter(ctx, a, "products", score, fine); errors.Is(err, gate.ErrOverload) {
							refused++
						}
						cancel()
					}
				}
				if len(held) == 0 || refused == 0 {
					t.Errorf("%d held, %d refused", len(held), refused)
				}
				close(release)
				synctest.Wait()
				wantSlots(t, a, o)
				n := 0
				for _, of := range told.all {
					n += of
				}
				if refused += o.MaxSearches - len(held); n != refused {
					t.Errorf("%d refused, told of %v", refused, told.all)
				}
			})
		})
	}
}

// TestARateRefusesWithoutASlot: calls beyond the rate take no slots.
func TestARateRefusesWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		for _, adaptive := range []bool{false, true} {
			a := admit(patient, options{
				MaxSearches: most, Adaptive: adaptive, Limits: map[string]gate.Limit{"products": {Rate: 1, Burst: most, MaxSearches: most}},
			})
			refused := 0
			for _, score := range []bool{false, true} {
				for range 10 * most {
					if errors.Is(enter(t.Context(), a, "products", score, fine), gate.ErrOverload) {
						refused++
					}
				}
			}
			if refused != 20*most-most {
				t.Errorf("%d refused", refused)
			}
			balance.Now(t, slots(a, "none of that name", most, false))
			<-time.After(most * time.Second) // the rate lets a burst in again
			balance.Now(t, slots(a, "products", most, true))
		}
	})
}
