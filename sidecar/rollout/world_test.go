package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	items = 2000
	dim   = 16
	k     = 10
)

const configuration = `
listen: {grpc: "127.0.0.1:0", admin: ""}
limits: {adaptive: false}
state_dir: state
stores:
  files: {kind: embedded, collections: {things: {vectors: things.npy}}}
models:
  m1: {path: m1.safetensors}
  m2: {path: m2.safetensors}
  m3: {path: m3.safetensors}
routes:
  things:
    store: files
    collection: things
    exact_search: true
    strategy: scan
    active: v1
    versions:
      v1: {model: m1, table: v1.table}
      v2: {model: m2, table: v2.table}
      v3: {model: m3, placement: stored, strategy: average}
`

// world is a folder with three versions of a route, and the answers of each.
type world struct {
	dir     string
	queries rerank.Matrix
	models  map[string]*model.Model // by digest
	names   map[string]string       // digest → version
	best    map[string][][]rerank.Scored
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), queries: random(2, 32, dim), models: map[string]*model.Model{}, names: map[string]string{}, best: map[string][][]rerank.Scored{}}
	vectors := random(1, items, dim)
	must(t, npy.Write(w.path("things.npy"), vectors))
	w.configure(t, configuration)
	for v := 1; v <= 3; v++ {
		m, err := model.New(model.Parameters{
			Kind: rerank.KindBilinear, Name: fmt.Sprintf("m%d", v),
			Config:  json.RawMessage(fmt.Sprintf(`{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":false,"form":"diagonal"}`, dim, dim)),
			Tensors: tensor.Set{"w": {Shape: []int{dim}, Data: random(uint64(10+v), 1, dim).Data}},
		})
		must(t, err)
		must(t, model.Write(w.path(fmt.Sprintf("m%d.safetensors", v)), m))
		w.models[m.Version], w.names[m.Version] = m, fmt.Sprintf("v%d", v)
		w.table(t, m, vectors, fmt.Sprintf("v%d.table", v))
		for q := range w.queries.Rows {
			w.best[m.Version] = append(w.best[m.Version], exact(t, m, vectors, w.queries.Row(q)))
		}
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) configure(t testing.TB, text string) {
	t.Helper()
	must(t, os.WriteFile(w.path("likeness.yaml"), []byte(text), 0o600))
}

func (w *world) table(t testing.TB, m *model.Model, vectors rerank.Matrix, name string) {
	t.Helper()
	store := embedded.New()
	must(t, store.Load("things", embedded.Collection{Fields: []embedded.Field{{Vectors: vectors}}}))
	_, err := index.BuildTable(t.Context(), index.TableJob{
		Source: index.Source{Store: store, Collection: "things"}, Path: w.path(name),
		Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity},
	})
	must(t, err)
}

func exact(t testing.TB, m *model.Model, vectors rerank.Matrix, q []float32) []rerank.Scored {
	t.Helper()
	enc, err := m.Encode(rerank.Query{Vector: q})
	must(t, err)
	features := rerank.NewMatrix(vectors.Rows, m.Spec().Features)
	must(t, m.EncodeItems(features, vectors))
	scores := make([]float32, vectors.Rows)
	must(t, enc.Score(scores, rerank.Items{Features: features}))
	top := rerank.NewTopK(k)
	for i, s := range scores {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: s})
	}
	return top.Sorted()
}

// agrees compares an answer with the version that it names.
func (w *world) agrees(query int, a *likenessv1.SearchResponse) error {
	want, ok := w.best[a.GetModel().GetVersion()]
	switch {
	case !ok:
		return fmt.Errorf("an answer of version %q, which nobody made", a.GetModel().GetVersion())
	case a.GetDegraded() != nil:
		return fmt.Errorf("degraded: %s", a.GetDegraded())
	case len(a.GetHits()) != k:
		return fmt.Errorf("%d hits", len(a.GetHits()))
	}
	for i, h := range a.GetHits() {
		x := want[query][i]
		if id, _ := x.ID.Uint64(); h.GetId().GetNumber() != id || !(math.Abs(float64(h.GetScore()-x.Score)) <= 1e-5) {
			return fmt.Errorf("hit %d of version %s is %v with %v, want %d with %v", i, w.names[a.GetModel().GetVersion()], h.GetId(), h.GetScore(), id, x.Score)
		}
	}
	return nil
}

func (w *world) request(query int) *likenessv1.SearchRequest {
	return &likenessv1.SearchRequest{Route: "things", K: k, Query: &likenessv1.Query{Vector: w.queries.Row(query)}}
}

// sidecar runs on the world's configuration until stop.
type sidecar struct {
	search likenessv1.SearchServiceClient
	admin  likenessv1.AdminServiceClient
	at     string
	proxy  string // gRPC address of the proxy, if it has one

	adminPort string
	stop      func()
}

func (w *world) start(t testing.TB) *sidecar {
	t.Helper()
	s, err := w.run(t)
	must(t, err)
	return s
}

func (w *world) run(t testing.TB, changes ...string) (*sidecar, error) {
	t.Helper()
	load := func() (*config.Config, error) {
		return config.Load(config.Source{File: w.path("likeness.yaml"), Environ: []string{}, Set: changes})
	}
	c, err := load()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{
			Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Reload: load,
			Ready: func(at serve.Addresses) { ready <- at },
		})
	}()
	var at serve.Addresses
	select {
	case at = <-ready:
	case err := <-ended:
		cancel()
		return nil, err
	}
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	stopped := false
	s := &sidecar{search: likenessv1.NewSearchServiceClient(conn), admin: likenessv1.NewAdminServiceClient(conn), at: at.GRPC, adminPort: at.Admin}
	if at.Proxy != nil {
		s.proxy = at.Proxy.GRPC
	}
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the sidecar ended with %v", err)
		}
	}
	t.Cleanup(s.stop)
	return s, nil
}

// serving makes a search and returns the version that answered.
func (w *world) serving(t testing.TB, s *sidecar) string {
	t.Helper()
	a, err := s.search.Search(t.Context(), w.request(0))
	must(t, err)
	must(t, w.agrees(0, a))
	return w.names[a.GetModel().GetVersion()]
}

func (s *sidecar) activate(t testing.TB, version string) *likenessv1.Activation {
	t.Helper()
	r, err := s.admin.ActivateVersion(t.Context(), &likenessv1.ActivateVersionRequest{Route: "things", Version: version})
	must(t, err)
	return r.GetActivation()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func random(seed uint64, rows, cols int) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 7))
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}
