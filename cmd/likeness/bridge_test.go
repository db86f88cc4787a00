package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

const bridgeConfig = `
state_dir: state
listen: {grpc: 127.0.0.1:0, admin: ""}
stores: {db: {kind: qdrant, address: "QDRANT"}}
models: {bridge: {path: bridge.safetensors}}
embedders: {new: {url: "EMBEDDER/embed"}}
routes:
  things:
    {store: db, collection: things, model: bridge, placement: derived, companion: things_new, exact_search: true,
     embedder: new, reembed: {text: text, rate: 100}}
`

// TestBridge goes from the fit of a bridge to its end by the command alone: half of the new vectors come from
// a file, a sidecar that is killed and started again makes the others, and then the route can be switched.
func TestBridge(t *testing.T) {
	const items, oldDim, newDim = 400, 4, 8
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	t.Chdir(t.TempDir())
	rng := rand.New(rand.NewPCG(3, 4))
	now, old := rerank.NewMatrix(items, newDim), rerank.NewMatrix(items, oldDim)
	rows := adapters.Rows{Vectors: []rerank.Matrix{old}}
	var names strings.Builder
	for i := range items {
		for j := range newDim {
			now.Row(i)[j] = float32(rng.NormFloat64())
		}
		rerank.Normalise(now.Row(i))
		copy(old.Row(i), now.Row(i))
		rows.IDs, rows.Payloads = append(rows.IDs, rerank.UintID(uint64(i))), append(rows.Payloads, fmt.Appendf(nil, `{"text":"%d"}`, i))
		if i < items/2 {
			fmt.Fprintln(&names, i)
		}
	}
	schema := adapters.Schema{Collection: "things", Fields: []adapters.VectorField{{Dim: oldDim, Metric: adapters.Cosine}}}
	embedder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Inputs []string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		out := make([][]float32, len(in.Inputs))
		for i, text := range in.Inputs {
			var n int
			_, _ = fmt.Sscan(text, &n)
			out[i] = now.Row(n)
		}
		_ = json.NewEncoder(w).Encode(out)
	}))
	t.Cleanup(embedder.Close)
	for _, err := range []error{
		store.Create(t.Context(), schema), store.Write(t.Context(), "things", schema, rows),
		npy.Write("old.npy", old), npy.Write("new.npy", now), npy.Write("half.npy", now.Slice(0, items/2)), os.WriteFile("ids.txt", []byte(names.String()), 0o600),
		os.WriteFile("likeness.yaml", []byte(strings.NewReplacer("QDRANT", server.Address, "EMBEDDER", embedder.URL).Replace(bridgeConfig)), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	likeness := func(code int, line string) string {
		t.Helper()
		r := execute(t, "", strings.Fields(line)...)
		if r.code != code {
			t.Fatalf("likeness %s: code %d, want %d\n%s%s", line, r.code, code, r.out, r.err)
		}
		return r.out + r.err
	}
	finish := func(more string) (f finishedBridge) {
		t.Helper()
		r := execute(t, "", strings.Fields("bridge finish --config likeness.yaml --route things --output json "+more)...)
		if err := json.Unmarshal([]byte(r.out), &f); r.code != 0 || err != nil {
			t.Fatalf("code %d, %v\n%s%s", r.code, err, r.out, r.err)
		}
		return f
	}
	likeness(0, "fit bridge --old old.npy --new new.npy --out bridge.safetensors")
	likeness(0, "index --config likeness.yaml --route things")
	likeness(0, "config validate --config likeness.yaml --connect")
	if f := finish("--alias things_v2"); f.Finished || f.Bridged != items || f.Alias != "" || len(f.Steps) != 1 {
		t.Errorf("at first: %+v", f)
	}
	if out := likeness(0, "bridge fill --config likeness.yaml --route things --new half.npy --item-ids ids.txt"); !strings.Contains(out, "200 of 200 vectors written") {
		t.Error(out)
	}
	for line, want := range map[string]string{
		"bridge fill --config likeness.yaml --route things --new new.npy --item-ids ids.txt":  "200 ids and --new has 400 vectors",
		"bridge fill --config likeness.yaml --route things --new old.npy --item-ids many.txt": "vectors of 4 numbers",
		"bridge finish --config likeness.yaml --route none":                                   "none",
	} {
		if err := os.WriteFile("many.txt", []byte(names.String()+strings.ReplaceAll(names.String(), "\n", "0000\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := likeness(2, line); !strings.Contains(out, want) {
			t.Errorf("%s: %s", line, out)
		}
	}
	if f := finish(""); f.New != items/2 || f.Bridged != items/2 {
		t.Errorf("after the file: %+v", f)
	}

	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kills := 0; kills < 3 && finish("").New < items; kills++ {
		before := finish("").New
		ctx, kill := context.WithCancel(t.Context())
		sidecar := exec.CommandContext(ctx, binary, "serve", "--config", "likeness.yaml")
		sidecar.Env = append(os.Environ(), asCommand+"=1")
		if err := sidecar.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			if n := finish("").New; n == items || n > before && kills == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no item was embedded in a minute")
			}
		}
		kill()
		_ = sidecar.Wait()
	}
	f := finish("--alias things_v2")
	if !f.Finished || f.New != items || f.Alias != "things_v2" || f.Field != "concat" || f.Dim != newDim || !strings.Contains(strings.Join(f.Steps, "\n"), "/collections/things_v2/points/query") {
		t.Fatalf("at the end: %+v", f)
	}
	have, err := store.Fetch(t.Context(), adapters.FetchRequest{Collection: "things_v2", IDs: rows.IDs, Vectors: []string{f.Field}})
	if err != nil || len(have.IDs) != items {
		t.Fatal(len(have.IDs), err)
	}
	for i := range items {
		for j, x := range have.Vectors[0].Row(i) {
			if d := x - now.Row(i)[j]; d > 1e-5 || d < -1e-5 {
				t.Fatalf("item %d: %v, want %v", i, have.Vectors[0].Row(i), now.Row(i))
			}
		}
	}
	if out := likeness(0, "bridge finish --config likeness.yaml --route things"); !strings.Contains(out, "Finished. To switch:\n1. stop what writes to things") {
		t.Error(out)
	}
}
