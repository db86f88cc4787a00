package gate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// flood sends searches of a caller, a thousand a second, until ctx ends.
func flood(ctx context.Context, search func(ctx context.Context) error, caller string) {
	for ctx.Err() == nil {
		go func() { _ = search(gate.WithCaller(context.WithoutCancel(ctx), caller)) }()
		time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
	}
}

// A caller that floods leaves others their share of every limit.
func TestAFloodLeavesOthersTheirShare(t *testing.T) {
	for name, o := range map[string]options{
		"searches of all routes": {MaxSearches: 8},
		"searches of a route":    {MaxSearches: 100, Limits: map[string]gate.Limit{"products": {MaxSearches: 8}}},
		"rate of a route":        {MaxSearches: 100, Limits: map[string]gate.Limit{"products": {Rate: 40, Burst: 4}}},
		"adaptive":               {MaxSearches: 100, Adaptive: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told refusals
				o.Refused = told.note
				a := admit(searcher(func(context.Context) error {
					time.Sleep(20 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
					return nil
				}), o)
				search := func(ctx context.Context) error {
					_, err := a.Search(ctx, request)
					return err
				}
				ctx, stop := context.WithCancel(t.Context())
				go flood(ctx, search, "flood")
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
				refused := 0
				for range 100 { // ten a second
					if err := search(gate.WithCaller(t.Context(), "honest")); errors.Is(err, gate.ErrOverload) {
						refused++
					}
					time.Sleep(80 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
				}
				stop()
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
				synctest.Wait()
				if refused > 1 || told.all["products share"] == 0 {
					t.Errorf("%d of 100 searches beside a flood were refused; %v", refused, told.all)
				}
			})
		})
	}
}

// Callers that stay below the limit together are not held to their shares, and a caller
// alone has the whole limit again a second after others have left.
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
