package search_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

func TestNewNamesEveryWrongRoute(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 50, 6))
	bad := func(name string) *route.Route {
		return w.route(route.PlacementStored, func(r *route.Route) { r.Name, r.Strategy = name, rerank.Scan })
	}
	_, err := search.New([]*route.Route{bad("one"), w.route(route.PlacementStored), bad("two"), w.route(route.PlacementStored)}, search.Options{})
	if err == nil || !errors.Is(err, route.ErrSetup) {
		t.Fatalf("error %v, want ErrSetup", err)
	}
	for _, says := range []string{`"one"`, `"two"`, `two routes are named "r"`} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}

// TestDefaults: the defaults of a route without settings.
func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		sim   *toy
		place route.Placement
		want  rerank.Strategy
	}{
		{&toy{dim: 6, blocks: 1}, route.PlacementStored, rerank.Average},
		{&toy{dim: 6, blocks: 3}, route.PlacementTable, rerank.Companion},
		{&toy{dim: 6, blocks: 1, grouped: true}, route.PlacementStored, rerank.Average},
	} {
		w := newWorld(t, c.sim, random(1, 50, 6))
		r := w.route(c.place, func(r *route.Route) { r.Depth = 0 })
		opened, err := route.Open(context.Background(), r)
		must(t, err)
		if opened.Strategy != c.want || opened.Depth != 200 || opened.MaxK != 1000 || opened.Failure != route.FailOpen {
			t.Errorf("%s, depth %d, max_k %d, %s", opened.Strategy, opened.Depth, opened.MaxK, opened.Failure)
		}
		if r.Strategy != "" || r.Depth != 0 || r.MaxK != 0 || r.Failure != "" {
			t.Errorf("the operator's policy was changed: %+v", r.Policy)
		}
	}
}

// TestStoreThatIsDownAtStart: the sidecar starts before its database, serves the routes that do not
// need it, and the others once it is there.
func TestStoreThatIsDownAtStart(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 50, 6))
	var down atomic.Bool
	var described atomic.Int64
	down.Store(true)
	d := &decorated{Store: w.store, before: func(_ context.Context, call string) error {
		if call == "describe" {
			described.Add(1)
		}
		if down.Load() {
			return adapters.ErrUnavailable
		}
		return nil
	}}
	p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.Store, r.Strategy = d, rerank.PerEmbedding }))
	ctx, q := context.Background(), rerank.Query{Vector: random(2, 1, 6).Row(0)}
	if err := p.Open(ctx); !errors.Is(err, adapters.ErrUnavailable) || errors.Is(err, route.ErrSetup) {
		t.Fatalf("Open: %v, want ErrUnavailable", err)
	}
	if _, err := p.Search(ctx, search.Request{Route: "r", Query: q, K: 3}); !errors.Is(err, adapters.ErrUnavailable) {
		t.Fatalf("Search: %v, want ErrUnavailable", err)
	}
	a, err := p.Search(ctx, search.Request{Route: "r", Query: q, K: 3, Strategy: rerank.Scan})
	must(t, err)
	sameHits(t, a.Hits, w.exact(t, q.Vector, nil)[:3])
	down.Store(false)
	described.Store(0)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			if _, err := p.Search(ctx, search.Request{Route: "r", Query: q, K: 3}); err != nil {
				t.Error(err)
			}
			p.Routes()
		})
	}
	g.Wait()
	must(t, p.Open(ctx))
	if described.Load() != 1 {
		t.Errorf("the collection was described %d times, want once", described.Load())
	}
}

// TestCollectionReplaced: a collection that changed under the route is checked again.
func TestCollectionReplaced(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 1}, random(1, 50, 6))
	p := pipe(t, w.route(route.PlacementStored))
	r := search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 3}
	_, err := p.Search(context.Background(), r)
	must(t, err)
	must(t, w.store.Load(collection, embedded.Collection{Fields: []embedded.Field{{Vectors: random(1, 50, 5)}}}))
	if _, err := p.Search(context.Background(), r); !errors.Is(err, adapters.ErrDimension) {
		t.Fatalf("error %v, want ErrDimension", err)
	}
	if _, err := p.Search(context.Background(), r); !errors.Is(err, route.ErrSetup) {
		t.Errorf("error %v, want ErrSetup", err)
	}
}

// observer records the errors of searches.
type observer struct{ errs []error }

func (o *observer) Searched(_ context.Context, _ string, _ search.Request, _ search.Answer, err error) {
	o.errs = append(o.errs, err)
}

// TestTelemetry: a search makes one observation, a step one span, and neither contains vectors or
// payloads.
func TestTelemetry(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 50, 6))
	var seen observer
	var log bytes.Buffer
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	p, err := search.New([]*route.Route{w.route(route.PlacementStored, func(r *route.Route) { r.Strategy = rerank.PerEmbedding })},
		search.Options{Observer: &seen, Tracer: provider.Tracer("test"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	q := rerank.Query{Vector: []float32{.123456, 1, 1, 1, 1, 1}}
	a, err := p.Search(context.Background(), search.Request{Route: "r", Query: q, K: 3, Payload: true})
	must(t, err)
	_, bad := p.Search(context.Background(), search.Request{Route: "r", Query: q, K: 0})
	if len(seen.errs) != 2 || seen.errs[0] != nil || !errors.Is(seen.errs[1], bad) {
		t.Errorf("observed %v", seen.errs)
	}
	if a.Timings.Retrieve <= 0 || a.Timings.Score <= 0 || a.Timings.Total < a.Timings.Retrieve+a.Timings.Score {
		t.Errorf("timings %+v", a.Timings)
	}
	names := map[string]bool{}
	for _, s := range spans.Ended() {
		names[s.Name()] = true
		for _, kv := range s.Attributes() {
			if text := kv.Value.String(); strings.Contains(text, "123456") || strings.Contains(text, "even") {
				t.Errorf("span %s carries %s=%s", s.Name(), kv.Key, text)
			}
		}
	}
	for _, want := range []string{"likeness.search", "likeness.probes", "likeness.retrieve", "likeness.fetch", "likeness.score", "likeness.certify", "likeness.payload"} {
		if !names[want] {
			t.Errorf("no span %s among %v", want, names)
		}
	}
	must(t, provider.Shutdown(context.Background()))
}
