package gate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// processor returns a searcher whose searches take turns of 10 ms.
func processor(shared *turns.Turns) searcher {
	return func(ctx context.Context) error {
		if err := shared.Take(ctx); err != nil {
			return err
		}
		defer shared.Give()
		<-time.After(10 * time.Millisecond)
		return ctx.Err()
	}
}

// Once more calls have arrived than can be answered, calls of any kind are refused before they are
// read while enough wait for the processor. Afterwards all are let in.
func TestArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := turns.New(1)
		var told refusals
		a := admit(processor(shared), options{MaxSearches: 1024, Adaptive: true, Turns: shared, Refused: told.note})
		if _, err := a.Arrive(t.Context()); err != nil || a.Overloaded() {
			t.Fatalf("at rest: %v", err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		early, late, good := 0, 0, 0
		for range 2500 {
			<-time.After(2 * time.Millisecond) // five times the capacity
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				came := time.Now()
				inside, err := a.Arrive(ctx)
				at := &early
				if err == nil {
					_, err = a.Search(inside, request)
					at = &late
				}
				mu.Lock()
				defer mu.Unlock()
				var refusal *gate.RefusedError
				switch {
				case err == nil:
					good++
				case !errors.As(err, &refusal) || refusal.After <= 0:
					t.Error(err)
				default:
					*at++
					if at == &early && time.Since(came) > 0 {
						t.Error("it had to wait")
					}
				}
			})
		}
		wg.Wait()
		if good < 450 || early < 10*late {
			t.Errorf("%d answered of 500 that can be, %d refused at once and %d later", good, early, late)
		}
		if told.all["unknown slow"] != early {
			t.Errorf("%d refused at once, told %v", early, told.all)
		}
		<-time.After(time.Second)
		if a.Overloaded() {
			t.Error("it is overloaded for ever")
		}
		if _, err := a.Arrive(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// Calls that never search, such as those with an invalid message, count only while they last.
func TestArrivalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admit(searcher(func(context.Context) error {
			<-time.After(time.Second)
			return nil
		}), options{MaxSearches: 1024, Adaptive: true, Turns: turns.New(1)})
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() { _, _ = a.Search(t.Context(), request) })
		}
		for !a.Overloaded() {
			<-time.After(time.Millisecond)
		}
		let := func() (n int) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 20 {
				if _, err := a.Arrive(ctx); err == nil {
					n++
				}
			}
			return n
		}
		first := let()
		synctest.Wait()
		if second := let(); first == 0 || first == 20 || first != second {
			t.Errorf("%d of 20 were let in, and then %d", first, second)
		}
		wg.Wait()
	})
}

// The learned times of a route survive a change of its limits, as far as the new limits allow.
func TestLimitsThatWereLearnedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admit(searcher(func(context.Context) error {
			<-time.After(time.Millisecond) // without a limit on concurrency
			return nil
		}), options{MaxSearches: 1024, Adaptive: true})
		fresh, _ := a.Load("products")
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for range 300 {
					_, _ = a.Search(t.Context(), request)
				}
			})
		}
		wg.Wait()
		learned, _ := a.Load("products")
		if learned.Limit <= fresh.Limit {
			t.Fatalf("nothing was learned: %d, then %d", fresh.Limit, learned.Limit)
		}
		for _, c := range []struct {
			o    options
			want int
		}{
			{options{MaxSearches: 2048, Adaptive: true}, learned.Limit},
			{options{MaxSearches: 2048, Adaptive: true, Limits: map[string]gate.Limit{"products": {Rate: 1e6}}}, learned.Limit},
			{options{MaxSearches: 2048, Adaptive: true, Limits: map[string]gate.Limit{"products": {MaxSearches: fresh.Limit + 1}}}, min(learned.Limit, fresh.Limit+1)},
		} {
			a.Adjust(c.o)
			if now, _ := a.Load("products"); now.Limit != c.want {
				t.Errorf("%+v: the limit is %d, want %d", c.o, now.Limit, c.want)
			}
		}
	})
}
