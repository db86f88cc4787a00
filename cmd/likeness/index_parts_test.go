package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/serve"
)

const (
	partRows = 3000
	partDim  = 16
)

// partWorld is a folder with the configuration of a collection in a real Qdrant.
type partWorld struct {
	dir   string
	store *qdrant.Store
}

func newPartWorld(t *testing.T, address string, ids func(i int) rerank.ID) *partWorld {
	t.Helper()
	store, err := qdrant.Open(qdrant.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w := &partWorld{dir: t.TempDir(), store: store}
	rng := rand.New(rand.NewPCG(1, 1))
	numbers := func(rows, cols int) rerank.Matrix {
		m := rerank.NewMatrix(rows, cols)
		for i := range m.Data {
			m.Data[i] = float32(rng.NormFloat64())
		}
		return m
	}
	m, err := model.New(model.Parameters{
		Kind: rerank.KindBilinear, Name: "form",
		Config: json.RawMessage(fmt.Sprintf(`{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":false,"form":"low_rank"}`, partDim, partDim)),
		Tensors: tensor.Set{
			"P": {Shape: []int{partDim, 4}, Data: numbers(partDim, 4).Data}, "Q": {Shape: []int{partDim, 4}, Data: numbers(partDim, 4).Data},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Write(filepath.Join(w.dir, "form.safetensors"), m); err != nil {
		t.Fatal(err)
	}
	schema := adapters.Schema{Collection: "items", Fields: []adapters.VectorField{{Dim: partDim, Metric: adapters.InnerProduct}}}
	if err := store.Create(t.Context(), schema); err != nil && !strings.Contains(err.Error(), "exists") {
		t.Fatal(err)
	}
	rows := adapters.Rows{Vectors: []rerank.Matrix{numbers(partRows, partDim)}}
	for i := range partRows {
		rows.IDs = append(rows.IDs, ids(i))
		rows.Payloads = append(rows.Payloads, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
	}
	if err := store.Write(t.Context(), "items", schema, rows); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
stores: {db: {kind: qdrant, address: %q}}
models: {form: {path: form.safetensors}}
routes:
  items:
    store: db
    collection: items
    unit_vectors: true
    active: whole
    versions:
      whole: {model: form, table: whole.table, companion: items__whole}
      other: {model: form, table: other.table, companion: items__other}
`, address)
	if err := os.WriteFile(filepath.Join(w.dir, "likeness.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// command returns a likeness command in a process of its own, in the world's folder.
func (w *partWorld) command(ctx context.Context, t *testing.T, out *bytes.Buffer, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, self, append([]string{"index", "--config", "likeness.yaml", "--route", "items", "--strategies", "average"}, args...)...)
	c.Dir, c.Stdout, c.Stderr = w.dir, out, out
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

func (w *partWorld) index(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := w.command(t.Context(), t, &out, args...).Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &out)
	}
	return out.String()
}

func (w *partWorld) verify(t *testing.T, version string) {
	t.Helper()
	var drift follow.Drift
	text := w.index(t, "--version", version, "--verify", "--output", "json")
	if err := json.Unmarshal([]byte(text[strings.IndexByte(text, '{'):]), &drift); err != nil {
		t.Fatal(err)
	}
	if drift.Rows != partRows || drift.Differing() != 0 {
		t.Errorf("version %s: %+v", version, drift)
	}
}

// same checks that two tables have the same rows in the same order.
func (w *partWorld) same(t *testing.T, a, b string) {
	t.Helper()
	first, err := table.Open(filepath.Join(w.dir, a), table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := table.Open(filepath.Join(w.dir, b), table.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	ids := func(t *table.Table) (all []rerank.ID) {
		for i := range t.Len() {
			all = append(all, t.ID(i))
		}
		return all
	}
	if !slices.Equal(ids(first), ids(second)) || !slices.Equal(first.Packed().Words, second.Packed().Words) {
		t.Errorf("%s has %d items, %s %d, and they differ", a, first.Len(), b, second.Len())
	}
}

// TestIndexIsKilled ends a build by SIGKILL again and again. The build goes on each time, and its
// result equals that of an undisturbed build.
func TestIndexIsKilled(t *testing.T) {
	kills := 5
	if os.Getenv("LIKENESS_SOAK") != "" {
		kills = 20
	}
	w := newPartWorld(t, servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address, func(i int) rerank.ID { return rerank.UintID(uint64(3 * i)) })
	w.index(t, "--version", "whole")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	killed := 0
	for range kills {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+rng.IntN(900))*time.Millisecond)
		err := w.command(ctx, t, &out, "--version", "other", "--rows-per-second", "4000", "--batch", "100", "--checkpoint", "1ms").Run()
		cancel()
		switch {
		case ctx.Err() != nil && err != nil:
			killed++
		case err != nil:
			t.Fatalf("after %d kills: %v\n%s", killed, err, &out)
		}
	}
	t.Logf("%d of %d builds were killed", killed, kills)
	w.index(t, "--version", "other")
	w.same(t, "whole.table", "other.table")
	w.verify(t, "whole")
	w.verify(t, "other")
}

// TestPartsOnACluster: four workers build the parts of a table and a companion side by side, on a
// cluster of two nodes and for ids of every kind.
func TestPartsOnACluster(t *testing.T) {
	for name, ids := range map[string]func(i int) rerank.ID{
		"numbers": func(i int) rerank.ID { return rerank.UintID(uint64(i) * 1_000_003) },
		"uuids": func(i int) rerank.ID {
			return rerank.TextID(fmt.Sprintf("%08x-0000-4000-8000-%012d", uint32(i)*2654435761, i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := cluster(t)
			w := newPartWorld(t, nodes[0], ids)
			w.index(t, "--version", "whole")
			var workers sync.WaitGroup
			for part := 1; part <= 4; part++ {
				workers.Go(func() {
					var out bytes.Buffer
					if err := w.command(t.Context(), t, &out, "--version", "other", "--partition", fmt.Sprintf("%d/4", part)).Run(); err != nil {
						t.Errorf("part %d: %v\n%s", part, err, &out)
					}
				})
			}
			workers.Wait()
			t.Log(w.index(t, "--version", "other", "--merge", "4"))
			w.same(t, "whole.table", "other.table")
			w.verify(t, "other")
			w.index(t, "--version", "other", "--partition", "2/4") // a queue may repeat the job
			first, second := w.ask(t, nodes[0]), w.ask(t, nodes[1])
			if len(first) != 10 || !slices.Equal(first, second) {
				t.Errorf("two sidecars, one before each node, answer %v and %v", first, second)
			}
		})
	}
}

// cluster starts a Qdrant cluster of two nodes with a collection of four shards.
func cluster(t *testing.T) [2]string {
	t.Helper()
	uri := func() string { return fmt.Sprintf("http://127.0.0.1:%d", freePort(t)) }
	first, second := uri(), uri()
	env := func(own string, more ...string) servers.Options {
		port := own[strings.LastIndexByte(own, ':')+1:]
		return servers.Options{Env: append([]string{
			"QDRANT__CLUSTER__ENABLED=true", "QDRANT__CLUSTER__P2P__PORT=" + port, "QDRANT_URI=" + own,
			"QDRANT__STORAGE__COLLECTION__SHARD_NUMBER_PER_NODE=2",
		}, more...)}
	}
	a := servers.QdrantForTest(t, servers.QdrantNewest, env(first))
	b := servers.QdrantForTest(t, servers.QdrantNewest, env(second, "QDRANT_BOOTSTRAP="+first))
	return [2]string{a.Address, b.Address}
}

// ask runs a sidecar in front of a node and returns its answer to one query.
func (w *partWorld) ask(t *testing.T, node string) []string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c, err := config.Load(config.Source{File: filepath.Join(w.dir, "likeness.yaml"), Environ: []string{}, Set: []string{
		"stores.db.address=" + node, "listen.grpc=127.0.0.1:0", "listen.admin=", "routes.items.active=other",
	}})
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	defer func() {
		stop()
		<-ended
	}()
	var at serve.Addresses
	select {
	case at = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	r := execute(t, "", "query", "--address", at.GRPC, "--route", "items", "--vector", "[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7]", "--output", "json")
	var answer struct {
		Hits []struct {
			ID    json.RawMessage `json:"id"`
			Score float64         `json:"score"`
		} `json:"hits"`
	}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	var out []string
	for _, h := range answer.Hits {
		out = append(out, fmt.Sprintf("%s %v", h.ID, h.Score))
	}
	return out
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
