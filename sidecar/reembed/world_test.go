package reembed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/fit/bridge"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/reembed"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	items, companion = "items", "items_new"
	oldDim, newDim   = 6, 12
	rows             = 300
)

// newVector is what the new embedding model makes of a text: a direction that its hash decides.
func newVector(text string) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	v := make([]float32, newDim)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	rerank.Normalise(v)
	return v
}

// oldVector is what the old model makes of a text. It knows half of the numbers of the new one.
func oldVector(text string) []float32 {
	v := newVector(text)[:oldDim]
	rerank.Normalise(v)
	return v
}

func textOf(id int) string { return fmt.Sprintf("text %d", id) }

// embedder is a server of the new embedding model. It refuses texts that begin with "bad", and all
// texts while it is down.
type embedder struct {
	url   string
	down  atomic.Bool
	mu    sync.Mutex
	texts []string // the texts that it embedded
	// refused counts the calls that were refused, and lenient: nothing is refused
	refused atomic.Int64
	lenient atomic.Bool
}

func startEmbedder(t testing.TB) *embedder {
	t.Helper()
	e := &embedder{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Inputs []string }
		if e.down.Load() || json.NewDecoder(r.Body).Decode(&in) != nil {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		out := make([][]float32, len(in.Inputs))
		for i, text := range in.Inputs {
			if len(text) > 3 && text[:3] == "bad" && !e.lenient.Load() {
				e.refused.Add(1)
				http.Error(w, "bad text", http.StatusUnprocessableEntity)
				return
			}
			out[i] = newVector(text)
		}
		e.mu.Lock()
		for _, text := range in.Inputs {
			if text != "How long is a vector?" { // a route that opens asks so
				e.texts = append(e.texts, text)
			}
		}
		e.mu.Unlock()
		_ = json.NewEncoder(w).Encode(out)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL + "/embed"
	return e
}

func (e *embedder) embedded() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.texts)
}

// store is the part of a store that the tests need.
type store interface {
	adapters.Store
	adapters.Fetcher
	adapters.Writer
	adapters.Deleter
}

func openQdrant(t *testing.T) store {
	t.Helper()
	return openDelayed(t)
}

// delayed is a Qdrant with something to do before it reads vectors of the companion the next time.
type delayed struct {
	*qdrant.Store
	before atomic.Pointer[func()]
}

func openDelayed(t *testing.T) *delayed {
	t.Helper()
	s, err := qdrant.Open(qdrant.Options{Address: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address})
	must(t, err)
	return &delayed{Store: s}
}

func (d *delayed) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if r.Collection == companion && len(r.Vectors) > 0 {
		if f := d.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return d.Store.Fetch(ctx, r)
}

func openMilvusLite(t *testing.T) store {
	t.Helper()
	s, err := milvus.New(t.Context(), milvus.Options{Address: servers.MilvusLiteForTest(t, servers.Options{}).Address})
	must(t, err)
	return s
}

// world is a collection of the old model in a store, with a bridge to the new one and its companion.
type world struct {
	store    store
	schema   adapters.Schema
	model    route.Model
	embedder *embedder
	state    string
}

func newWorld(t *testing.T, store store) *world {
	t.Helper()
	t.Cleanup(func() { must(t, store.Close()) })
	w := &world{
		store: store, embedder: startEmbedder(t), state: t.TempDir(),
		schema: adapters.Schema{Collection: items, Fields: []adapters.VectorField{{Name: "old", Dim: oldDim, Metric: adapters.InnerProduct}}},
	}
	must(t, store.Create(t.Context(), w.schema))
	old, now := rerank.NewMatrix(rows, oldDim), rerank.NewMatrix(rows, newDim)
	all := adapters.Rows{Vectors: []rerank.Matrix{old}}
	for i := range rows {
		copy(old.Row(i), oldVector(textOf(i)))
		copy(now.Row(i), newVector(textOf(i)))
		all.IDs, all.Payloads = append(all.IDs, rerank.UintID(uint64(i))), append(all.Payloads, payload(textOf(i), 1))
	}
	must(t, store.Write(t.Context(), items, w.schema, all))
	fitted, err := bridge.Fit(t.Context(), bridge.Data{Old: old, New: now}, bridge.DefaultOptions())
	must(t, err)
	settings, err := json.Marshal(fitted.Config)
	must(t, err)
	m, err := model.New(model.Parameters{Kind: rerank.KindMoL, Name: "bridge", Config: settings, Tensors: fitted.Tensors})
	must(t, err)
	w.model = route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}
	_, err = index.BuildCompanion(t.Context(), index.CompanionJob{
		Source: index.Source{Store: store, Collection: items, Vector: "old"}, Model: w.model, Writer: store, Name: companion,
		Strategies: []rerank.Strategy{rerank.Average}, Features: true,
	})
	must(t, err)
	return w
}

func payload(text string, price int) json.RawMessage {
	return fmt.Appendf(nil, `{"text":%q,"price":%d}`, text, price)
}

// sidecar is the part of a sidecar that serves the bridge.
type sidecar struct {
	*world
	route    *route.Route
	engine   *search.Engine
	follower *follow.Follower
	filler   *reembed.Filler
	stop     func()
}

// start serves the route at the given rate, until stop is called or the test ends. rest is the pause
// between two walks.
func (w *world) start(t *testing.T, rate float64, rest time.Duration) *sidecar {
	t.Helper()
	return w.startWith(t, rate, reembed.Options{Rest: rest})
}

// startWith is start with other options of the filler.
func (w *world) startWith(t *testing.T, rate float64, o reembed.Options) *sidecar {
	t.Helper()
	client, err := embed.New(embed.Options{Name: "new", URL: w.embedder.url, BreakFor: time.Millisecond})
	must(t, err)
	policy := config.DefaultPolicy()
	policy.Name, policy.StoreName, policy.Collection, policy.Vector, policy.Companion = "r", "main", items, "old", companion
	policy.Placement, policy.EmbedderName, policy.ExactSearch, policy.Timeout = route.PlacementDerived, "new", true, time.Minute
	policy.UnitVectors = true
	policy.Reembed, policy.Writes = config.Reembed{Text: "text", Rate: rate}, config.WritesProxy
	s := &sidecar{world: w, route: &route.Route{Policy: policy, Parts: route.Parts{Store: w.store, Model: w.model, Embedder: client}}}
	s.follower, err = follow.New(follow.Options{Store: w.store, Dir: w.state, Applied: true}, []follow.Route{{Route: s.route}})
	must(t, err)
	o.Routes, o.Route = []string{"r"}, func(name string) (*route.Route, error) { return s.engine.Route(name) }
	o.Embedder = func(string) embed.Embedder { return client }
	o.Write = func(ctx context.Context, r *route.Route, vectors []follow.NewVector) (int, error) {
		return s.follower.Reembed(ctx, r, vectors)
	}
	s.filler = reembed.New(o)
	s.engine, err = search.New([]*route.Route{s.route}, search.Options{Observer: s.filler})
	must(t, err)
	must(t, s.engine.Open(t.Context()))
	until(t, s.route.Freshness.Fresh)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { _ = s.filler.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(t, s.follower.Close(ctx))
		must(t, client.Close())
	})
	t.Cleanup(s.stop)
	return s
}

// search asks for the ten texts closest to one.
func (s *sidecar) search(t *testing.T, text string) search.Answer {
	t.Helper()
	a, err := s.engine.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: newVector(text)}, K: 10})
	must(t, err)
	if a.Reembedded == nil || a.Degraded != nil {
		t.Fatalf("%+v", a)
	}
	return a
}

// put writes an item through the proxy.
func (s *sidecar) put(t *testing.T, id int, text string, price int) {
	t.Helper()
	end := s.follower.Begin(t.Context(), journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(id)})
	must(t, s.store.Write(t.Context(), items, s.schema, adapters.Rows{
		IDs: ids(id), Payloads: []json.RawMessage{payload(text, price)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: oldDim, Data: oldVector(text)}},
	}))
	end(true, nil)
	until(t, s.route.Freshness.Fresh)
}

func ids(all ...int) (out []rerank.ID) {
	for _, n := range all {
		out = append(out, rerank.UintID(uint64(n)))
	}
	return out
}

// row returns the vector and the payload of an item in the companion; nil if it is not there.
func (s *sidecar) row(t *testing.T, id int) ([]float32, json.RawMessage) {
	t.Helper()
	have, err := s.store.Fetch(t.Context(), adapters.FetchRequest{Collection: companion, IDs: ids(id), Vectors: []string{"concat"}, Payload: true})
	must(t, err)
	if len(have.IDs) == 0 {
		return nil, nil
	}
	return have.Vectors[0].Row(0), have.Payloads[0]
}

func (s *sidecar) state() reembed.State { return s.filler.States()[0] }

// agrees fails the test if the companion is out of step with the collection.
func (s *sidecar) agrees(t *testing.T, rows int64) {
	t.Helper()
	d, err := follow.Compare(t.Context(), s.route, nil)
	must(t, err)
	if d.Differing() != 0 || d.Rows != rows {
		t.Errorf("%+v, want %d rows that agree", d, rows)
	}
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
