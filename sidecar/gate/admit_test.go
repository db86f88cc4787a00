package gate_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// searcher answers by a function, on one route.
type searcher func(ctx context.Context) error

func (s searcher) Search(ctx context.Context, r search.Request) (search.Answer, error) {
	return search.Answer{Model: r.Route}, s(ctx)
}

func (s searcher) Score(ctx context.Context, _ search.ScoreRequest) (search.ScoreAnswer, error) {
	return search.ScoreAnswer{}, s(ctx)
}

func (s searcher) Rewrite(ctx context.Context, r search.Request) (*search.Rewritten, error) {
	return &search.Rewritten{Route: r.Route}, s(ctx)
}

func (searcher) Routes() []*route.Route {
	return []*route.Route{{Policy: route.Policy{Name: "products"}}}
}

func (searcher) Route(name string) (*route.Route, error) {
	return &route.Route{Policy: route.Policy{Name: name}}, nil
}

var request = search.Request{Route: "products"}

func TestAHardLimitRefusesAtOnce(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	a := admit(searcher(func(context.Context) error {
		entered <- struct{}{}
		<-release
		return nil
	}), options{MaxSearches: 1})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Search(t.Context(), request); err != nil {
			t.Errorf("first search: %v", err)
		}
	})
	<-entered
	if _, err := a.Search(t.Context(), request); !errors.Is(err, gate.ErrOverload) {
		t.Errorf("second search: %v", err)
	}
	if _, err := a.Score(t.Context(), search.ScoreRequest{Route: "products"}); !errors.Is(err, gate.ErrOverload) {
		t.Errorf("score: %v", err)
	}
	close(release)
	wg.Wait()
	if _, ok := a.Load("products"); ok {
		t.Error("a fixed limit has a load")
	}
}

// A rewritten search is in flight until the database has answered it, or until rewriting failed.
func TestARewrittenSearchIsInFlightUntilItIsAnswered(t *testing.T) {
	failed := errors.New("not rewritten")
	var next error
	a := admit(searcher(func(context.Context) error { return next }), options{MaxSearches: 1})
	first, err := a.Rewrite(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Rewrite(t.Context(), request); !errors.Is(err, gate.ErrOverload) {
		t.Errorf("second search: %v, want ErrOverload", err)
	}
	first.Answered(t.Context(), search.DatabaseAnswer{})
	for range 2 { // a search that is not rewritten gives its slot back
		next = failed
		if _, err := a.Rewrite(t.Context(), request); !errors.Is(err, failed) {
			t.Errorf("error %v, want %v", err, failed)
		}
	}
}

// A limit that adapts to the time of scoring does not refuse rewritten searches, because the
// database would get the original requests instead.
func TestAnAdaptiveLimitLetsRewrittenSearchesIn(t *testing.T) {
	a := admit(searcher(func(context.Context) error { return nil }), options{MaxSearches: 200, Adaptive: true})
	for i := range 200 {
		if _, err := a.Rewrite(t.Context(), request); err != nil {
			t.Fatalf("search %d: %v", i, err)
		}
	}
	if _, err := a.Rewrite(t.Context(), request); !errors.Is(err, gate.ErrOverload) {
		t.Errorf("beyond max_searches: %v, want ErrOverload", err)
	}
}

// The searches of one call count as one: the database gets them together.
func TestASearchWithinACallIsLetInWithIt(t *testing.T) {
	a := admit(searcher(func(context.Context) error { return nil }), options{MaxSearches: 1})
	first, err := a.Rewrite(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		other, err := a.Rewrite(search.WithinCall(t.Context()), request)
		if err != nil {
			t.Fatal(err)
		}
		other.Answered(t.Context(), search.DatabaseAnswer{})
	}
	if _, err := a.Rewrite(t.Context(), request); !errors.Is(err, gate.ErrOverload) {
		t.Errorf("another call: %v, want ErrOverload", err)
	}
	first.Answered(t.Context(), search.DatabaseAnswer{})
}

func TestWhatItDoesNotKnowGoesThrough(t *testing.T) {
	a := admit(searcher(func(context.Context) error { return route.ErrUnknown }), options{MaxSearches: 8, Adaptive: true})
	if _, err := a.Search(t.Context(), search.Request{Route: "none"}); !errors.Is(err, route.ErrUnknown) {
		t.Errorf("error %v", err)
	}
}

// A store of a fixed capacity is sent five times its capacity, in simulated time. With a limit that
// adapts, most of the capacity is answered in time, and nine tenths of the other calls are refused
// within five milliseconds.
func TestOverloadKeepsGoodput(t *testing.T) {
	const (
		work    = 10 * time.Millisecond
		timeout = 500 * time.Millisecond
		seconds = 20
		rate    = 500 // 100 a second can be answered
	)
	synctest.Test(t, func(t *testing.T) {
		core := make(chan struct{}, 1)
		a := admit(searcher(func(ctx context.Context) error {
			core <- struct{}{} // in the order of arrival, whether the caller still waits or not
			<-time.After(work)
			<-core
			return ctx.Err()
		}), options{MaxSearches: 1024, Adaptive: true})
		var mu sync.Mutex
		good := 0
		var refused []time.Duration
		var wg sync.WaitGroup
		for range rate * seconds {
			<-time.After(time.Second / rate)
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				came := time.Now()
				_, err := a.Search(ctx, request)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					good++
				case errors.Is(err, gate.ErrOverload):
					refused = append(refused, time.Since(came))
				}
			})
		}
		wg.Wait()
		slices.Sort(refused)
		capacity := int(time.Second/work) * seconds
		if good < capacity*9/10 || len(refused) == 0 {
			t.Fatalf("%d answered in time and %d refused; %d could be answered", good, len(refused), capacity)
		}
		if late := refused[len(refused)*9/10]; late > 5*time.Millisecond {
			t.Errorf("a tenth of the refusals took more than %v", late)
		}
		if l, ok := a.Load("products"); !ok || l.InFlight != 0 || l.Queued != 0 || l.Limit < 1 {
			t.Errorf("in the end %+v", l)
		}
	})
}
