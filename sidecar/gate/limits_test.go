package gate_test

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
)

// refusals records refused calls.
type refusals struct {
	mu  sync.Mutex
	all map[string]int
}

func (r *refusals) note(route string, reason gate.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]int{}
	}
	r.all[route+" "+string(reason)]++
}

func fine(context.Context) error { return nil }

// A route's rate lets a burst in, and then a number of calls per second, including scorings. A
// refusal says when to try again, and that succeeds.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told refusals
		a := admit(searcher(fine), options{
			MaxSearches: 100, Adaptive: true, Limits: map[string]gate.Limit{"products": {Rate: 10, Burst: 5}}, Refused: told.note,
		})
		let := 0
		var refusal *gate.RefusedError
		for range 20 {
			if _, err := a.Search(t.Context(), request); err == nil {
				let++
			} else if !errors.As(err, &refusal) || !errors.Is(err, gate.ErrOverload) {
				t.Fatal(err)
			}
		}
		if let != 5 || told.all["products rate"] != 15 {
			t.Errorf("%d of 20 at once were let in, %v refused", let, told.all)
		}
		if refusal.Setting != "routes.products.rate" || !strings.Contains(refusal.Error(), refusal.Setting) || refusal.After <= 0 || refusal.After > time.Second/10 {
			t.Errorf("refusal %+v: %v", refusal, refusal)
		}
		<-time.After(refusal.After)
		if _, err := a.Score(t.Context(), search.ScoreRequest{Route: "products"}); err != nil {
			t.Errorf("a scoring when it was told to come: %v", err)
		}
		let = 0
		for range 1000 {
			<-time.After(10 * time.Millisecond)
			if _, err := a.Search(t.Context(), request); err == nil {
				let++
			}
		}
		if let < 99 || let > 101 {
			t.Errorf("%d in ten seconds, want 100", let)
		}
		if _, err := a.Search(t.Context(), search.Request{Route: "other"}); err != nil {
			t.Errorf("another route: %v", err)
		}
	})
}

// A reload that does not change a route's limits gives it no second burst.
func TestRateOutlivesAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{MaxSearches: 100, Adaptive: true, Limits: map[string]gate.Limit{"products": {Rate: 1, Burst: 5}}}
		a := admit(searcher(fine), o)
		for range 5 {
			if _, err := a.Search(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		a.Adjust(o)
		if _, err := a.Search(t.Context(), request); !errors.Is(err, gate.ErrOverload) {
			t.Errorf("a sixth search after a reload: %v, want ErrOverload", err)
		}
		o.Limits = map[string]gate.Limit{"products": {Rate: 2, Burst: 1}}
		a.Adjust(o)
		if _, err := a.Search(t.Context(), request); err != nil {
			t.Errorf("a search by a new limit: %v", err)
		}
	})
}

// A route that is full leaves the others alone.
func TestSearchesOfARoute(t *testing.T) {
	for _, adaptive := range []bool{false, true} {
		entered, release := make(chan struct{}, 2), make(chan struct{})
		var told refusals
		a := admit(searcher(func(context.Context) error {
			entered <- struct{}{}
			<-release
			return nil
		}), options{MaxSearches: 100, Adaptive: adaptive, Limits: map[string]gate.Limit{"products": {MaxSearches: 2}}, Refused: told.note})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = a.Search(t.Context(), request) })
		}
		<-entered
		<-entered
		var refusal *gate.RefusedError
		if _, err := a.Search(t.Context(), request); !errors.As(err, &refusal) || refusal.Setting != "routes.products.max_searches" {
			t.Errorf("a third one: %v", err)
		}
		close(release)
		if _, err := a.Search(t.Context(), search.Request{Route: "other"}); err != nil {
			t.Errorf("another route: %v", err)
		}
		wg.Wait()
		if _, err := a.Search(t.Context(), request); err != nil {
			t.Errorf("when they have ended: %v", err)
		}
		if told.all["products max_searches"] != 1 {
			t.Errorf("told %v", told.all)
		}
	}
}

// Without free memory nothing is begun. Once there is some, searches begin again.
func TestMemory(t *testing.T) {
	var told refusals
	a := admit(searcher(fine), options{MaxSearches: 100, Adaptive: true, Refused: told.note})
	if err := full(a); err != nil {
		t.Fatalf("with the limit %d: %v", debug.SetMemoryLimit(-1), err)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1))
	var refusal *gate.RefusedError
	for !errors.As(full(a), &refusal) { // memory is checked occasionally
	}
	if refusal.Reason != gate.ReasonMemory || refusal.Setting != "limits.memory" {
		t.Errorf("refusal %+v: %v", refusal, refusal)
	}
	if _, err := a.Search(t.Context(), request); !errors.As(err, &refusal) {
		t.Errorf("search: %v", err)
	}
	if _, err := a.Score(t.Context(), search.ScoreRequest{Route: "products"}); !errors.As(err, &refusal) {
		t.Errorf("score: %v", err)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	for full(a) != nil {
	}
	if _, err := a.Search(t.Context(), request); err != nil || told.all["products memory"] != 2 || told.all["unknown memory"] < 1 {
		t.Errorf("search: %v; told %v", err, told.all)
	}
}

// full returns why a call is refused now.
func full(a *admitting) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := a.Arrive(ctx)
	return err
}
