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
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestOpen: a route that contradicts its model, table or collection is refused at the start. The
// error names the contradiction and the remedy.
func TestOpen(t *testing.T) {
	raw, unit, grouped := &toy{dim: 6, blocks: 3}, &toy{dim: 6, blocks: 3, normalise: true}, &toy{dim: 6, blocks: 1, grouped: true}
	alter := func(change func(*table.Meta)) func(*testing.T, *world, *route.Route) {
		return func(t *testing.T, w *world, r *route.Route) {
			meta := table.Meta{Model: "toy", ModelVersion: version, Collection: collection}
			change(&meta)
			tab, err := table.FromMemory(meta, w.items(), w.table.Features(), nil)
			must(t, err)
			r.Table = tab
		}
	}
	metric := func(m adapters.Metric, vouched bool) func(*testing.T, *world, *route.Route) {
		return func(t *testing.T, w *world, r *route.Route) {
			must(t, w.store.Load(collection, embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: m}, Vectors: w.vectors}}}))
			r.UnitVectors = vouched
		}
	}
	set := func(change func(*route.Route)) func(*testing.T, *world, *route.Route) {
		return func(_ *testing.T, _ *world, r *route.Route) { change(r) }
	}
	for _, c := range []struct {
		name   string
		sim    *toy
		place  route.Placement
		change func(*testing.T, *world, *route.Route)
		says   string // "" for a route that opens
	}{
		{"raw model, inner product", raw, route.PlacementStored, metric(adapters.InnerProduct, false), ""},
		{"raw model, cosine", raw, route.PlacementStored, metric(adapters.Cosine, true), "loses their norms"},
		{"raw model, L2", raw, route.PlacementStored, metric(adapters.L2, false), "unit_vectors: true"},
		{"unit model, cosine", unit, route.PlacementStored, metric(adapters.Cosine, false), ""},
		{"unit model, inner product", unit, route.PlacementStored, metric(adapters.InnerProduct, false), "unit_vectors: true"},
		{"unit model, inner product, vouched", unit, route.PlacementStored, metric(adapters.InnerProduct, true), ""},
		{"unit model, L2, vouched", unit, route.PlacementStored, metric(adapters.L2, true), ""},
		{"dimension", &toy{dim: 8, blocks: 2}, route.PlacementStored, metric(adapters.InnerProduct, false), "6 dimensions and its model takes 8"},
		{"field", raw, route.PlacementStored, set(func(r *route.Route) { r.Vector = "title" }), `no vector field "title"`},
		{"metric", raw, route.PlacementStored, set(func(r *route.Route) { r.Store = otherMetric{r.Store.(*embedded.Store), "Manhattan"} }), "compared by Manhattan"},
		{"no metric", raw, route.PlacementStored, set(func(r *route.Route) { r.Store = otherMetric{r.Store.(*embedded.Store), ""} }), "no index"},
		{"collection", raw, route.PlacementStored, set(func(r *route.Route) { r.Collection = "x" }), "collection not found"},
		{"table of another version", raw, route.PlacementTable, alter(func(m *table.Meta) { m.ModelVersion = "fedcba9876543210" }), `"fedcba9876543210" and its model is version "` + version},
		{"table of another collection", raw, route.PlacementTable, alter(func(m *table.Meta) { m.Collection = "others" }), `"others" and the route searches "items"`},
		{"table of another kind", &toy{dim: 6, blocks: 3}, route.PlacementTable, func(t *testing.T, w *world, r *route.Route) {
			tab, err := table.FromMemory(table.Meta{ModelVersion: version, Collection: collection}, w.items(), rerank.NewMatrix(50, 5), nil)
			must(t, err)
			r.Table = tab
		}, "5 numbers and its model has 6"},
		{"no table", raw, route.PlacementTable, set(func(r *route.Route) { r.Table = nil }), "likeness index"},
		{"no table to scan", raw, route.PlacementStored, set(func(r *route.Route) { r.Strategy = rerank.Scan }), "likeness index"},
		{"partitions to scan", raw, route.PlacementTable, set(func(r *route.Route) { r.Strategy, r.Partitions = rerank.Scan, []string{"p"} }), "partitions"},
		{"no companion", raw, route.PlacementDerived, set(func(r *route.Route) { r.Companion = "" }), "likeness index"},
		{"companion not there", raw, route.PlacementDerived, set(func(r *route.Route) { r.Companion = "x" }), "collection not found"},
		{"companion of something else", raw, route.PlacementDerived, set(func(r *route.Route) { r.Companion = collection }), `lacks the field "c0"`},
		{"companion of another model", &toy{dim: 6, blocks: 2}, route.PlacementDerived, func(t *testing.T, w *world, r *route.Route) {
			w.derive(t, embedded.Collection{}, w.table.Features())
			w.sim = raw
			w.derive(t, embedded.Collection{}, w.table.Features())
		}, "2 dimensions and the model derives 3"},
		{"companion by cosine", raw, route.PlacementDerived, func(t *testing.T, w *world, _ *route.Route) {
			must(t, w.store.Load(companion, embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.Cosine}, Vectors: w.vectors}}}))
		}, "compared by cosine"},
		{"no owner", grouped, route.PlacementStored, set(func(r *route.Route) { r.Owner = "" }), "as owner"},
		{"owner of rows", raw, route.PlacementStored, set(func(r *route.Route) { r.Owner = owner }), "remove it"},
		{"no model", raw, route.PlacementStored, set(func(r *route.Route) { r.Model.Similarity = nil }), "no model"},
		{"no store", raw, route.PlacementTable, set(func(r *route.Route) { r.Store, r.Strategy = nil, rerank.Average }), "searches a store"},
		{"no name", raw, route.PlacementStored, set(func(r *route.Route) { r.Name = "" }), "no name"},
		{"placement", raw, route.PlacementStored, set(func(r *route.Route) { r.Placement = "here" }), `"here"`},
		{"strategy", raw, route.PlacementStored, set(func(r *route.Route) { r.Strategy = "guess" }), `"guess"`},
		{"head", raw, route.PlacementStored, set(func(r *route.Route) { r.Strategy, r.Head = rerank.Distilled, "third" }), `"third"`},
		{"failure", raw, route.PlacementStored, set(func(r *route.Route) { r.Failure = "ajar" }), `"ajar"`},
		{"depth", raw, route.PlacementStored, set(func(r *route.Route) { r.Depth = -1 }), "depth is -1"},
		{"depth over max_depth", raw, route.PlacementStored, set(func(r *route.Route) { r.Depth, r.MaxDepth = 50, 40 }), "max_depth 40"},
		{"max_gap", raw, route.PlacementStored, set(func(r *route.Route) { r.MaxGap = ptr(-1) }), "max_gap"},
		{"timeout", raw, route.PlacementStored, set(func(r *route.Route) { r.Timeout = -1 }), "timeout"},
		{"store without fetch", raw, route.PlacementStored, set(func(r *route.Route) { r.Store = searchOnly{r.Store} }), "use a table"},
		{"store without fetch, table", raw, route.PlacementTable, set(func(r *route.Route) { r.Store = searchOnly{r.Store} }), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 50, 6))
			w.sim = c.sim
			if c.sim.grouped {
				w = newWorld(t, c.sim, random(1, 50, 6))
			}
			r := w.route(c.place)
			c.change(t, w, r)
			_, err := route.Open(context.Background(), r)
			if c.says == "" {
				must(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want it to say %q", err, c.says)
			}
			if !errors.Is(err, route.ErrSetup) && !errors.Is(err, adapters.ErrNotFound) {
				t.Errorf("error %v, want ErrSetup", err)
			}
		})
	}
}

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

// otherMetric compares vectors by a metric that adapters.Metric does not know.
type otherMetric struct {
	*embedded.Store
	metric adapters.Metric
}

func (s otherMetric) Describe(ctx context.Context, collection string) (adapters.Description, error) {
	d, err := s.Store.Describe(ctx, collection)
	for i := range d.Fields {
		d.Fields[i].Metric = s.metric
	}
	return d, err
}
