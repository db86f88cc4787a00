package routing_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/admission"
	"github.com/likenessdb/likeness/sidecar/pipeline"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// described is a store of which only the description is asked.
type described struct{ adapters.Store }

func (described) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{Fields: []adapters.VectorField{{Name: "v", Dim: 1, Metric: adapters.InnerProduct}}}, nil
}

// searcher answers every search of its routes alike.
type searcher struct {
	pipeline.Searcher
	routes []*pipeline.Route
	search func(ctx context.Context) error
}

func (s searcher) Routes() []*pipeline.Route { return s.routes }

func (s searcher) Route(string) (*pipeline.Route, error) { return s.routes[0], nil }

func (s searcher) Search(ctx context.Context, _ pipeline.Request) (pipeline.Answer, error) {
	return pipeline.Answer{Hits: []pipeline.Hit{{ID: rerank.UintID(1), Score: 1}}}, s.search(ctx)
}

func route(budget time.Duration) *pipeline.Route {
	return &pipeline.Route{Name: "r", StoreName: "s", Collection: "c", Vector: "v", MaxK: 10, Depth: 10, Store: described{}, LatencyBudget: budget}
}

func router(t *testing.T, r *pipeline.Route, search func(ctx context.Context) error, observe func(outcome, reason string)) *routing.Router {
	t.Helper()
	out, err := routing.New(searcher{routes: []*pipeline.Route{r}, search: search},
		routing.Options{Store: "s", Logger: slog.New(slog.DiscardHandler), Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheOriginalLeavesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name             string
			budget, deadline time.Duration // 0: none
			passed           []time.Duration
			want             time.Duration // for rescoring; 0: no end
		}{
			{"neither budget nor deadline", 0, 0, nil, 0},
			{"a budget, nothing known of the database", 100 * time.Millisecond, 0, nil, 75 * time.Millisecond},
			{"a deadline", 0, time.Second, nil, 750 * time.Millisecond},
			{"the shorter counts", 100 * time.Millisecond, time.Second, nil, 75 * time.Millisecond},
			{"the database takes 10 ms", 100 * time.Millisecond, 0, times(30, 10*time.Millisecond), 90 * time.Millisecond},
			{"a slow database", 100 * time.Millisecond, 0, times(30, time.Second), 50 * time.Millisecond},
			{"few times tell nothing", 100 * time.Millisecond, 0, times(5, time.Millisecond), 75 * time.Millisecond},
		} {
			r := router(t, route(c.budget), nil, nil)
			for _, took := range c.passed {
				r.Passed(took)
			}
			ctx, cancel := t.Context(), func() {}
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
			}
			bounded, release := r.Bound(ctx, "c")
			end, has := bounded.Deadline()
			if left := time.Until(end); has != (c.want > 0) || has && left != c.want {
				t.Errorf("%s: %v, %v left", c.name, has, left)
			}
			release()
			cancel()
		}
	})
}

func times(n int, d time.Duration) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = d
	}
	return out
}

func TestALateAnswerIsTheDatabases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router(t, route(80*time.Millisecond), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		ctx, release := r.Bound(t.Context(), "c")
		defer release()
		began := time.Now()
		_, err := r.RankAll(ctx, "c", []routing.Search{{Vector: "v", Query: []float32{1}, Limit: 1}})
		if d := (routing.Degraded{}); !errors.As(err, &d) || d.Reason != "deadline" || time.Since(began) != 60*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestEveryOutcomeIsCounted(t *testing.T) {
	counted := map[string]int{}
	fail := error(nil)
	r := router(t, route(0), func(context.Context) error { return fail }, func(outcome, reason string) { counted[outcome+" "+reason]++ })
	ask := func(s routing.Search) {
		if all, err := r.RankAll(t.Context(), "c", []routing.Search{s}); err != nil {
			r.NotRescored(err)
		} else if text := r.Rescored(all); !strings.HasPrefix(text, "rescored; route=r; certificate=") {
			t.Errorf("words %q", text)
		}
	}
	plain := routing.Search{Vector: "v", Query: []float32{1}, Limit: 1}
	ask(plain)
	ask(routing.Search{Vector: "other", Query: []float32{1}, Limit: 1})
	ask(routing.Search{Vector: "v", Query: []float32{1}, Limit: 11})
	fail = admission.ErrOverload
	ask(plain)
	fail = adapters.ErrUnavailable
	ask(plain)
	r.NotRescored(r.Panicked(t.Context(), "c", "boom"))
	for _, want := range []string{"rescored ", "passed vector", "passed depth", "degraded overload", "degraded unavailable", "degraded panic"} {
		if counted[want] != 1 {
			t.Errorf("%s: counted %d times; all: %v", want, counted[want], counted)
		}
	}
}
