package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/learn/index"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
)

const followedConfiguration = `
listen: {grpc: "127.0.0.1:0", admin: ""}
limits: {adaptive: false}
state_dir: state
stores: {db: {kind: %s, address: %q}}
models:
  m1: {path: m1.safetensors}
  m2: {path: m2.safetensors}
  m3: {path: m3.safetensors}
proxy: {store: db, listen_grpc: "127.0.0.1:0"}
routes:
  things:
    store: db
    collection: things
    vector: vec
    exact_search: true
    strategy: scan
    table_live: true
    companion_alias: things_live
    keep_versions: 2
    active: v1
    versions:
      v1: {model: m1, table: v1.table, companion: things__v1}
      v2: {model: m2, table: v2.table, companion: things__v2}
      v3: {model: m3, table: v3.table, companion: things__v3}
`

// database is the part of a store that the test needs.
type database interface {
	adapters.Store
	adapters.Writer
	adapters.Deleter
	adapters.Describer
	adapters.Fetcher
	adapters.Identifier
}

var thingsSchema = adapters.Schema{Collection: "things", Fields: []adapters.VectorField{{Name: "vec", Dim: dim, Metric: adapters.InnerProduct}}}

// followedWorld is a folder with three versions of a route of a real database, each
// with a table that is written and a companion.
type followedWorld struct {
	*world
	db   database
	best map[string][]float32 // the best row of each version for the query
}

func newFollowedWorld(t *testing.T, kind, address string, db database) *followedWorld {
	t.Helper()
	w := &followedWorld{world: &world{dir: t.TempDir(), queries: random(2, 1, dim), names: map[string]string{}}, db: db, best: map[string][]float32{}}
	w.configure(t, fmt.Sprintf(followedConfiguration, kind, address))
	must(t, db.Create(t.Context(), thingsSchema))
	rows := adapters.Rows{Vectors: []rerank.Matrix{random(1, 100, dim)}}
	for i := range 100 {
		rows.IDs = append(rows.IDs, rerank.UintID(uint64(i)))
		rows.Payloads = append(rows.Payloads, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
	}
	must(t, db.Write(t.Context(), "things", thingsSchema, rows))
	source := index.Source{Store: db, Collection: "things", Vector: "vec"}
	for v := 1; v <= 3; v++ {
		name := fmt.Sprintf("v%d", v)
		p, q := random(uint64(10+v), dim, rank), random(uint64(20+v), dim, rank)
		w.best[name] = best(p, q, w.queries.Row(0))
		m, err := model.New(model.Parameters{
			Kind: rerank.KindBilinear, Name: fmt.Sprintf("m%d", v),
			Config:  json.RawMessage(fmt.Sprintf(`{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":false,"form":"low_rank"}`, dim, dim)),
			Tensors: tensor.Set{"P": {Shape: []int{dim, rank}, Data: p.Data}, "Q": {Shape: []int{dim, rank}, Data: q.Data}},
		})
		must(t, err)
		must(t, model.Write(w.path(fmt.Sprintf("m%d.safetensors", v)), m))
		w.names[m.Version] = name
		served := route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}
		_, err = index.BuildTable(t.Context(), index.TableJob{Source: source, Model: served, Path: w.path(name + ".table")})
		must(t, err)
		_, err = index.BuildCompanion(t.Context(), index.CompanionJob{
			Source: source, Model: served, Writer: db, Name: "things__" + name, Strategies: []rerank.Strategy{rerank.Average},
		})
		must(t, err)
	}
	return w
}

// rank is the rank of the models' forms.
const rank = 4

// best returns a row x with a high score (Pᵀq)·(Qᵀx).
func best(p, q rerank.Matrix, query []float32) []float32 {
	var inner [rank]float32
	out := make([]float32, dim)
	for i, x := range query {
		for r := range inner {
			inner[r] += x * p.Row(i)[r]
		}
	}
	for i := range out {
		for r, x := range inner {
			out[i] += 50 * x * q.Row(i)[r]
		}
	}
	return out
}

// put writes, through a proxy, the row that a version ranks first.
func (w *followedWorld) put(t *testing.T, through adapters.Writer, id uint64, version string) {
	t.Helper()
	rows := adapters.Rows{IDs: []rerank.ID{rerank.UintID(id)}, Vectors: []rerank.Matrix{{Rows: 1, Cols: dim, Data: w.best[version]}}, Payloads: []json.RawMessage{json.RawMessage(`{}`)}}
	must(t, through.Write(t.Context(), "things", thingsSchema, rows))
}

var errNotYet = errors.New("not yet")

// eventually calls ask until it returns no error.
func eventually(t *testing.T, what string, ask func(ctx context.Context) error) {
	t.Helper()
	_, err := backoff.Retry(t.Context(), func() (struct{}, error) { return struct{}{}, ask(t.Context()) },
		backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// finds waits until a version's own table answers with the row first.
func (w *followedWorld) finds(t *testing.T, s *sidecar, version string, id uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("row %d in %s", id, version), func(ctx context.Context) error {
		a, err := s.search.Search(ctx, w.request(0))
		if err != nil {
			return err
		}
		if v := w.names[a.GetModel().GetVersion()]; v != version {
			return fmt.Errorf("%s is served", v)
		}
		if a.GetDegraded() != nil || a.GetHits()[0].GetId().GetNumber() != id {
			return fmt.Errorf("%w: %v, %v is first", errNotYet, a.GetDegraded(), a.GetHits()[0])
		}
		return nil
	})
}

// named wants the alias to point at the version's companion, and the row to be in it.
func (w *followedWorld) named(t *testing.T, version string, id uint64) {
	t.Helper()
	is, err := w.db.Identify(t.Context(), "things_live")
	if must(t, err); is.Collection != "things__"+version {
		t.Errorf("the alias is of %s, want that of %s", is.Collection, version)
	}
	eventually(t, fmt.Sprintf("row %d in the companion of %s", id, version), func(ctx context.Context) error {
		r, err := w.db.Fetch(ctx, adapters.FetchRequest{Collection: "things_live", IDs: []rerank.ID{rerank.UintID(id)}})
		if err == nil && len(r.IDs) == 0 {
			err = errNotYet
		}
		return err
	})
}

// TestVersionsOfServers: on a real database, every version's table and companion follow the writes
// while the version is served, and catch up with earlier ones. The alias points at the companion of
// the version in service, and the data of old versions is removed.
func TestVersionsOfServers(t *testing.T) {
	for kind, open := range map[string]func(t *testing.T) (string, func(address string) (database, error)){
		"qdrant": func(t *testing.T) (string, func(string) (database, error)) {
			return servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address, func(address string) (database, error) {
				return qdrant.Open(qdrant.Options{Address: address})
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			address, connect := open(t)
			db, err := connect(address)
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			w := newFollowedWorld(t, kind, address, db)
			s := w.start(t)
			through, err := connect(s.proxy)
			must(t, err)
			defer through.Close()
			w.put(t, through, 1001, "v1")
			w.finds(t, s, "v1", 1001)
			for i, step := range []struct {
				version string
				back    bool
			}{{"v2", false}, {"v1", true}, {"v2", true}, {"v3", false}} {
				if step.back {
					s.rollBack(t)
				} else {
					s.activate(t, step.version)
				}
				id := uint64(1002 + i)
				w.put(t, through, id, step.version)
				must(t, db.Delete(t.Context(), "things", []rerank.ID{rerank.UintID(id - 1)})) // past every proxy: the row is in no answer
				w.finds(t, s, step.version, id)
				w.named(t, step.version, id)
			}
			w.staysInService(t, s, "v3", 1005)
			w.collects(t, s)
			s.stop()
			s = w.start(t)
			w.finds(t, s, "v3", 1005)
		})
	}
}

// staysInService wants an activation to fail because it cannot be remembered, and the version in
// service to keep its alias.
func (w *followedWorld) staysInService(t *testing.T, s *sidecar, version string, id uint64) {
	t.Helper()
	file := filepath.Join(statedir.Route(w.path("state"), "things"), "version.json")
	remembered, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Remove(file))
	must(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700))
	_, err = s.admin.ActivateVersion(t.Context(), &likenessv1.ActivateVersionRequest{Route: "things", Version: "v2"})
	if err == nil {
		t.Error("a version whose choice cannot be written is in service")
	}
	w.finds(t, s, version, id)
	w.named(t, version, id)
	must(t, os.RemoveAll(file))
	must(t, os.WriteFile(file, remembered, 0o600))
}

// collects wants the table and the companion of v1 to be dropped, and no others.
func (w *followedWorld) collects(t *testing.T, s *sidecar) {
	t.Helper()
	r, err := s.admin.CollectVersions(t.Context(), &likenessv1.CollectVersionsRequest{Route: "things", Remove: true})
	must(t, err)
	kinds := map[string]string{}
	for _, g := range r.GetGarbage() {
		if g.GetVersion() != "v1" || !g.GetRemoved() {
			t.Errorf("%v", g)
		}
		kinds[g.GetKind()] = g.GetName()
	}
	if len(r.GetGarbage()) != 2 || kinds[rollout.KindCompanion] != "things__v1" || kinds[rollout.KindTable] == "" {
		t.Errorf("dropped %v", r.GetGarbage())
	}
	if _, err := w.db.Describe(t.Context(), "things__v1"); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("the companion of v1: %v", err)
	}
	for _, name := range []string{"things", "things__v2", "things__v3"} {
		if _, err := w.db.Describe(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, gone := range map[string]bool{"v1.table": true, "v2.table": false, "v3.table": false} {
		if _, err := os.Stat(w.path(name)); errors.Is(err, os.ErrNotExist) != gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}
