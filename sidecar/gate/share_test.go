package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// flood sends a thousand searches a second as a caller, until ctx ends.
func flood(ctx context.Context, search func(ctx context.Context) error, caller string) {
	for ctx.Err() == nil {
		go func() { _ = search(gate.WithCaller(context.WithoutCancel(ctx), caller)) }()
		time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
	}
}

// Callers that flood a limit leave others their share of it, even if the shares do not add up to
// the limit, and whenever the others search.
func TestAFloodLeavesOthersTheirShare(t *testing.T) {
	route := func(l gate.Limit) options {
		return options{MaxSearches: 100, Limits: map[string]gate.Limit{"products": l}}
	}
	for name, c := range map[string]struct {
		options
		floods int
	}{
		"searches of all routes":           {options{MaxSearches: 8}, 1},
		"searches of all routes, 4 floods": {options{MaxSearches: 8}, 4},
		"searches of a route":              {route(gate.Limit{MaxSearches: 8}), 1},
		"searches of a route, 4 floods":    {route(gate.Limit{MaxSearches: 8}), 4},
		"rate of a route":                  {route(gate.Limit{Rate: 40, Burst: 4}), 1},
		"rate of a route, 4 floods":        {route(gate.Limit{Rate: 40, Burst: 8}), 4},
		"adaptive":                         {options{MaxSearches: 100, Adaptive: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told refusals
				c.Refused = told.note
				a := admit(searcher(func(context.Context) error {
					time.Sleep(20 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
					return nil
				}), c.options)
				search := func(ctx context.Context) error {
					_, err := a.Search(ctx, request)
					return err
				}
				ctx, stop := context.WithCancel(t.Context())
				for i := range c.floods {
					go flood(ctx, search, fmt.Sprint("flood ", i))
				}
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
				refused := 0
				for range 50 { // seven a second, at changing times within the second
					if err := search(gate.WithCaller(t.Context(), "honest")); errors.Is(err, gate.ErrOverload) {
						refused++
					}
					time.Sleep(123 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
				}
				stop()
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
				synctest.Wait()
				if refused > 1 || told.all["products share"] == 0 {
					t.Errorf("%d of 50 searches beside a flood were refused; %v", refused, told.all)
				}
			})
		})
	}
}

// Callers that stay below the limit together are not held to their shares. A caller alone has the
// whole limit again a second after the others have left.
func TestSharesOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admit(searcher(func(context.Context) error {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
			return nil
		}), options{MaxSearches: 8})
		admitted := func(callers ...string) int {
			results := make(chan error)
			for _, caller := range callers {
				go func() {
					_, err := a.Search(gate.WithCaller(t.Context(), caller), request)
					results <- err
				}()
				synctest.Wait()
			}
			n := 0
			for range callers {
				if <-results == nil {
					n++
				}
			}
			return n
		}
		if n := admitted("a", "a", "a", "a", "a", "a", "b", "c"); n != 8 {
			t.Errorf("below the limit: %d of 8", n)
		}
		if n := admitted("a", "a", "a", "a", "a", "a", "a", "a", "b"); n != 8 {
			t.Errorf("the limit is reached: %d of 9", n)
		}
		if n := admitted("a", "a", "a", "a", "b"); n != 4 { // of three callers
			t.Errorf("while it is divided: %d of 5", n)
		}
		time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
		if n := admitted("a", "a", "a", "a", "a", "a", "a", "a"); n != 8 {
			t.Errorf("alone: %d of 8", n)
		}
	})
}

// A caller may exceed its share of a rate while enough is left for others.
func TestABurstLeavesOthersOfARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admit(searcher(fine), options{MaxSearches: 100, Limits: map[string]gate.Limit{"products": {Rate: 10, Burst: 8}}})
		admitted := func(caller string, searches int) (n int) {
			for range searches {
				if _, err := a.Search(gate.WithCaller(t.Context(), caller), request); err == nil {
					n++
				}
			}
			return n
		}
		first, burst, second := admitted("a", 1), admitted("b", 8), admitted("a", 2)
		if first != 1 || burst != 5 || second != 2 { // the burst leaves one for each caller
			t.Errorf("admitted %d of 1, then %d of a burst of 8, then %d of 2; want 1, 5, 2", first, burst, second)
		}
	})
}
