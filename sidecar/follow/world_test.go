package follow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writable is the part of a store that the tests need.
type writable interface {
	adapters.Store
	adapters.Fetcher
	adapters.Scanner
	adapters.Describer
	adapters.Writer
	adapters.Deleter
	adapters.Matcher
}

// database is a store that counts the reads of the collection, and can
// be down.
type database struct {
	writable
	fetches atomic.Int64
	level   atomic.Pointer[string] // the consistency of the companion's last read
	down    atomic.Bool
	hold    sync.RWMutex // while it is held, fetches wait
}

func (d *database) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if d.down.Load() {
		return adapters.Rows{}, fmt.Errorf("%w: it is down", adapters.ErrUnavailable)
	}
	if r.Collection == items {
		d.fetches.Add(1)
	} else {
		d.level.Store(&r.Consistency)
	}
	d.hold.RLock()
	defer d.hold.RUnlock()
	return d.writable.Fetch(ctx, r)
}

func (d *database) Scan(ctx context.Context, r adapters.ScanRequest, yield func(adapters.Rows, string) error) error {
	if d.down.Load() {
		return fmt.Errorf("%w: it is down", adapters.ErrUnavailable)
	}
	return d.writable.Scan(ctx, r, yield)
}

const items, companion = "items", "items_mol"

// world is a collection with the companion and the table of a Mixture-of-Logits.
type world struct {
	db     *database
	model  route.Model
	schema adapters.Schema
}

// theModel is read once, from the repository.
var theModel = sync.OnceValues(func() (*model.Model, error) { return model.Open("../../examples/models/banking77-mol") })

func newWorld(t testing.TB, rows int) *world {
	t.Helper()
	return newWorldOn(t, embedded.New(), rows)
}

func newWorldOn(t testing.TB, store writable, rows int) *world {
	t.Helper()
	m, err := theModel()
	must(t, err)
	w := &world{
		db:    &database{writable: store},
		model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity},
	}
	w.schema = adapters.Schema{Collection: items, Fields: []adapters.VectorField{{Name: "vec", Dim: m.Spec().ItemDim, Metric: adapters.InnerProduct}}}
	must(t, w.db.Create(t.Context(), w.schema))
	for i := range rows {
		w.put(t, uint64(i), uint64(i), i)
	}
	job := index.CompanionJob{
		Source: w.source(), Model: w.model, Writer: w.db, Name: companion,
		Strategies: []rerank.Strategy{rerank.Average}, Features: true,
	}
	_, err = index.BuildCompanion(t.Context(), job)
	must(t, err)
	return w
}

func (w *world) source() index.Source {
	return index.Source{Store: w.db, Collection: items, Vector: "vec"}
}

// put writes a row with the vector of the given seed.
func (w *world) put(t testing.TB, id, seed uint64, payload int) {
	t.Helper()
	w.putPayload(t, id, seed, fmt.Appendf(nil, `{"n":%d}`, payload))
}

func (w *world) putPayload(t testing.TB, id, seed uint64, payload json.RawMessage) {
	t.Helper()
	v := rerank.Matrix{Rows: 1, Cols: w.schema.Fields[0].Dim, Data: w.vector(seed)}
	must(t, w.db.Write(t.Context(), items, w.schema, adapters.Rows{
		IDs: ids(id), Vectors: []rerank.Matrix{v}, Payloads: []json.RawMessage{payload},
	}))
}

// vector returns the vector of a seed, of norm 1.
func (w *world) vector(seed uint64) []float32 {
	v := make([]float32, w.schema.Fields[0].Dim)
	rng := rand.New(rand.NewPCG(seed, 3))
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	norm := float32(rerank.Norm(v))
	for i := range v {
		v[i] /= norm
	}
	return v
}

func (w *world) remove(t testing.TB, id ...uint64) {
	t.Helper()
	must(t, w.db.Delete(t.Context(), items, ids(id...)))
}

func ids(all ...uint64) []rerank.ID {
	out := make([]rerank.ID, len(all))
	for i, n := range all {
		out[i] = rerank.UintID(n)
	}
	return out
}

// route returns a route with a live table of its own and the companion.
func (w *world) route(t testing.TB, format rerank.Format) *route.Route {
	t.Helper()
	path := filepath.Join(t.TempDir(), "items.table")
	_, err := index.BuildTable(t.Context(), index.TableJob{Source: w.source(), Model: w.model, Path: path, Format: format})
	must(t, err)
	l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return &route.Route{
		Policy: route.Policy{Name: "r", Collection: items, Vector: "vec", StoreName: "main", Companion: companion, Placement: route.PlacementTable},
		Parts:  route.Parts{Store: w.db, Model: w.model, Live: l},
	}
}

// follow follows a route until the test ends.
func (w *world) follow(t testing.TB, r *route.Route, change ...func(*follow.Route)) *follow.Follower {
	t.Helper()
	settings := follow.Route{Route: r}
	for _, c := range change {
		c(&settings)
	}
	f, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir(), Applied: true}, []follow.Route{settings})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close(closing(t))) })
	return f
}

// closing returns a context that gives a follower time to end.
func closing(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// begin begins a write that the database carries out. done ends it.
func begin(ctx context.Context, f *follow.Follower, w journal.Write) (done func()) {
	end := f.Begin(ctx, w)
	return func() { end(true, nil) }
}

// agree fails the test if derived data differ from the collection.
func agree(t testing.TB, r *route.Route, rows int64) {
	t.Helper()
	d, err := follow.Compare(t.Context(), r, nil)
	must(t, err)
	if d.Differing() != 0 || d.Rows != rows {
		t.Fatalf("%+v, want %d rows that agree", d, rows)
	}
}

// fresh waits until every write that was seen is shown.
func fresh(t testing.TB, r *route.Route) {
	t.Helper()
	until(t, r.Freshness.Fresh)
}

// until waits for a condition that another goroutine brings about.
func until(t testing.TB, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it never came to hold")
		}
	}
}
