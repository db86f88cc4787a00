package search_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	collection = "items"
	companion  = "items_derived"
	owner      = "item"
	version    = "0123456789abcdef"
)

// world is a collection in the embedded store, with its companion, its table, and their similarity.
type world struct {
	sim     rerank.Similarity
	store   *embedded.Store
	table   *table.Table
	vectors rerank.Matrix
	owners  []rerank.ID // of the rows; the rows' own ids where items are rows
	metric  adapters.Metric
}

// newWorld loads vectors; with a similarity of grouped rows, rows 3i to 3i + 2
// belong to item 1000 + i. The payload of row r is {"n": r, "even": …,
// "third": r % 3, "item": …}.
func newWorld(t testing.TB, sim rerank.Similarity, vectors rerank.Matrix) *world {
	t.Helper()
	w := &world{sim: sim, store: embedded.New(), vectors: vectors, metric: adapters.InnerProduct}
	if sim.Spec().Normalise {
		w.metric = adapters.Cosine
	}
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: w.metric}, Vectors: vectors}}}
	for r := range vectors.Rows {
		id := rerank.UintID(uint64(r))
		if sim.Spec().GroupedRows {
			id = rerank.UintID(uint64(1000 + r/3))
		}
		w.owners = append(w.owners, id)
		in.Payloads = append(in.Payloads, json.RawMessage(fmt.Sprintf(`{"n": %d, "even": %t, "third": %d, "item": %s}`, r, r/3%2 == 0, r%3, id)))
	}
	if sim.Spec().GroupedRows {
		in.OwnerField, in.Owners = owner, w.owners
	}
	must(t, w.store.Load(collection, in))
	features := rerank.NewMatrix(vectors.Rows, sim.Spec().Features)
	if vectors.Rows > 0 {
		must(t, sim.EncodeItems(features, vectors))
	}
	w.derive(t, in, features)
	w.table = w.tabulate(t, features, len(w.items()))
	return w
}

// derive loads the companion.
func (w *world) derive(t testing.TB, in embedded.Collection, features rerank.Matrix) {
	deriver, ok := w.sim.(rerank.Deriver)
	if !ok || len(deriver.Fields()) == 0 || w.vectors.Rows == 0 {
		return
	}
	in.Fields = nil
	for _, f := range deriver.Fields() {
		m := rerank.NewMatrix(features.Rows, f.Dim)
		must(t, deriver.Derive(m, f.Name, rerank.Items{Features: features}))
		in.Fields = append(in.Fields, embedded.Field{VectorField: adapters.VectorField{Name: f.Name}, Vectors: m})
	}
	must(t, w.store.Load(companion, in))
}

// tabulate makes a table of the first items.
func (w *world) tabulate(t testing.TB, features rerank.Matrix, items int) *table.Table {
	var starts []int32
	rows := items
	if w.sim.Spec().GroupedRows {
		starts = []int32{0}
		for i := range items {
			starts = append(starts, int32(min(3*i+3, features.Rows)))
		}
		rows = int(starts[items])
	}
	tab, err := table.FromMemory(table.Meta{Model: "toy", ModelVersion: version, Collection: collection}, w.items()[:items], features.Slice(0, rows), starts)
	must(t, err)
	return tab
}

// items are the distinct items, in order.
func (w *world) items() []rerank.ID { return slices.Compact(slices.Clone(w.owners)) }

// route is a route of a placement, with a companion if it derives.
func (w *world) route(p route.Placement, change ...func(*route.Route)) *route.Route {
	r := &route.Route{
		Policy: route.Policy{Name: "r", Collection: collection, StoreName: "embedded", Placement: p, Depth: 20, Writes: route.WritesProxy},
		Parts:  route.Parts{Store: w.store, Model: route.Model{Name: "toy", Version: version, Similarity: w.sim}},
	}
	if w.sim.Spec().GroupedRows {
		r.Owner = owner
	}
	if p == route.PlacementTable {
		r.Table = w.table
	}
	if p == route.PlacementDerived {
		r.Companion = companion
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// exact is the answer by scoring every item that has a row that keep lets through.
func (w *world) exact(t testing.TB, q []float32, keep func(row int) bool) []rerank.Scored {
	t.Helper()
	enc, err := w.sim.Encode(rerank.Query{Vector: q})
	must(t, err)
	features := rerank.NewMatrix(w.vectors.Rows, w.sim.Spec().Features)
	must(t, w.sim.EncodeItems(features, w.vectors))
	scores := make([]float32, features.Rows)
	if err := enc.Score(scores, rerank.Items{Features: features}); err != nil {
		t.Fatal(err)
	}
	top := rerank.NewTopK(w.vectors.Rows)
	for from := 0; from < len(scores); {
		to, kept, best := from, false, rerank.Scored{}
		for ; to < len(scores) && w.owners[to] == w.owners[from]; to++ {
			kept = kept || keep == nil || keep(to)
			if row := (rerank.Scored{ID: w.owners[to], Score: scores[to]}); to == from || rerank.Better(row, best) {
				best = row
			}
		}
		if kept {
			top.Push(best)
		}
		from = to
	}
	return top.Sorted()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// random are vectors of normal numbers, from a seed.
func random(seed uint64, rows, cols int) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 7))
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// pipe is a pipeline of one route.
func pipe(t testing.TB, r *route.Route) *search.Engine {
	t.Helper()
	p, err := search.New([]*route.Route{r}, search.Options{})
	must(t, err)
	return p
}

func searchRoute(t testing.TB, r *route.Route, req search.Request) search.Answer {
	t.Helper()
	req.Route = r.Name
	a, err := pipe(t, r).Search(context.Background(), req)
	must(t, err)
	return a
}

// sameHits wants the hits to be the first of want, with their scores.
func sameHits(t testing.TB, got []search.Hit, want []rerank.Scored) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d hits, want %d", len(got), len(want))
	}
	for i, h := range got {
		if h.ID != want[i].ID || h.Score-want[i].Score > 1e-5 || want[i].Score-h.Score > 1e-5 {
			t.Fatalf("hit %d is %s with %v, want %s with %v", i, h.ID, h.Score, want[i].ID, want[i].Score)
		}
	}
}

// decorated is a store whose calls can be watched, made to fail and changed. It
// is a real store behind that.
type decorated struct {
	*embedded.Store
	before func(ctx context.Context, call string) error
	lists  func([]rerank.List) []rerank.List
	rows   func(adapters.Rows) adapters.Rows
}

func (d *decorated) call(ctx context.Context, name string) error {
	if d.before == nil {
		return nil
	}
	return d.before(ctx, name)
}

func (d *decorated) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	name := "search"
	if len(r.Probes) == 1 && r.Collection == collection {
		name = "plain"
	}
	if err := d.call(ctx, name); err != nil {
		return nil, err
	}
	lists, err := d.Store.Search(ctx, r)
	if err == nil && d.lists != nil {
		lists = d.lists(lists)
	}
	return lists, err
}

func (d *decorated) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	name := "fetch"
	if r.Payload {
		name = "payload"
	}
	if err := d.call(ctx, name); err != nil {
		return adapters.Rows{}, err
	}
	rows, err := d.Store.Fetch(ctx, r)
	if err == nil && d.rows != nil {
		rows = d.rows(rows)
	}
	return rows, err
}

func (d *decorated) Describe(ctx context.Context, name string) (adapters.Description, error) {
	if err := d.call(ctx, "describe"); err != nil {
		return adapters.Description{}, err
	}
	return d.Store.Describe(ctx, name)
}

func (d *decorated) Match(ctx context.Context, name, filter string) ([]rerank.ID, error) {
	if err := d.call(ctx, "match"); err != nil {
		return nil, err
	}
	return d.Store.Match(ctx, name, filter)
}
