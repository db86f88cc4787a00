package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/calibrate"
)

// TestRouteWithALearnedCompanion: every command serves the strategy companion as it serves others. A route
// that names no strategy takes it, because the fit found that it finds most; writes reach its rows.
func TestRouteWithALearnedCompanion(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	root := repository(t)
	t.Chdir(t.TempDir())
	train, err := npy.Open(filepath.Join(root, "examples/data/banking77/train_vectors.npy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = train.Close() })
	// Questions from all over the file: the first 400 of them are items, the next 600 are queries.
	rows := rerank.NewMatrix(1002, train.Cols)
	for i := range rows.Rows {
		copy(rows.Row(i), train.Row(i*7%train.Rows))
	}
	const items = 400
	schema := adapters.Schema{Collection: "things", Fields: []adapters.VectorField{{Dim: train.Cols, Metric: adapters.Cosine}}}
	if err := store.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	write := func(from, to int) {
		t.Helper()
		r := adapters.Rows{Vectors: []rerank.Matrix{rows.Slice(from, to)}}
		for i := from; i < to; i++ {
			r.IDs = append(r.IDs, rerank.UintID(uint64(i)))
		}
		if err := store.Write(t.Context(), "things", schema, r); err != nil {
			t.Fatal(err)
		}
	}
	write(0, items)
	for file, part := range map[string]rerank.Matrix{"items.npy": rows.Slice(0, items), "queries.npy": rows.Slice(items, rows.Rows)} {
		if err := npy.Write(file, part); err != nil {
			t.Fatal(err)
		}
	}
	likeness := func(code int, line string, more ...string) string {
		t.Helper()
		r := execute(t, "", append(strings.Fields(line), more...)...)
		if r.code != code {
			t.Fatalf("likeness %s %v: code %d, want %d\n%s%s", line, more, r.code, code, r.out, r.err)
		}
		return r.out + r.err
	}
	fit := func(out, seed string) {
		t.Helper()
		likeness(0, "fit companion --items items.npy --queries queries.npy --dim 48 --anchors 500 --hidden 64 --depths 20,40 --seed "+seed+" --out "+out,
			"--model", filepath.Join(root, "examples/models/banking77-questions-mol"))
	}
	configure := func(model, companion string) {
		t.Helper()
		text := fmt.Appendf(nil, `
state_dir: state
stores: {main: {kind: qdrant, address: %q}}
models: {m: {path: %q}}
routes:
  things: {store: main, collection: things, model: m, placement: stored, depth: 60, exact_search: true, %s}
`, server.Address, model, companion)
		if err := os.WriteFile("likeness.yaml", text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const of = " --config likeness.yaml --route things "
	fit("first.safetensors", "1")
	configure("first.safetensors", "companion: things_learned")
	likeness(0, "index"+of)
	likeness(0, "index --verify"+of)

	// Calibrated, the promise names the strategy that the route chose.
	var found calibrate.Report
	out := execute(t, "", strings.Fields("calibrate --queries queries.npy --sample 100 --depths 60 --k 5 --recall 0.6 --share 0.8 --output json"+of)...)
	if err := json.Unmarshal([]byte(out.out), &found); err != nil || found.Calibration == nil || found.Calibration.Rule.Strategy != rerank.Companion {
		t.Errorf("calibrated: code %d, %s%s", out.code, out.out, out.err)
	}

	ask := func(address string, item int) (first uint64, r *likenessv1.SearchResponse) {
		t.Helper()
		vector, err := json.Marshal(rows.Row(item))
		if err != nil {
			t.Fatal(err)
		}
		r = new(likenessv1.SearchResponse)
		if err := protojson.Unmarshal([]byte(likeness(0, "query --route things --k 5 --output json --address "+address, "--vector", string(vector))), r); err != nil {
			t.Fatal(err)
		}
		return r.GetHits()[0].GetId().GetNumber(), r
	}
	served(t, "likeness.yaml", func(address string) {
		likeness(0, "reconcile --route things --address "+address)
		_, r := ask(address, 900)
		if got := r.GetCertificate(); r.GetStrategy() != likenessv1.Strategy_STRATEGY_COMPANION || got.GetCalibration() == nil || got.GetCandidates() < 60 {
			t.Errorf("answered by %v with %v", r.GetStrategy(), got)
		}
		// A write that is followed gets its companion row, without a fit; one that is deleted loses it.
		if first, _ := ask(address, 1001); first == 1001 {
			t.Error("the item is there before it is written")
		}
		write(1001, 1002)
		likeness(0, "reconcile --route things --address "+address)
		if first, _ := ask(address, 1001); first != 1001 {
			t.Errorf("a written item is not found: %d is first", first)
		}
		if err := store.Delete(t.Context(), "things", []rerank.ID{rerank.UintID(1001)}); err != nil {
			t.Fatal(err)
		}
		likeness(0, "reconcile --route things --address "+address)
		if first, _ := ask(address, 1001); first == 1001 {
			t.Error("a deleted item is found")
		}
	})
	likeness(0, "index --verify"+of)

	// Another fit is another version: the companion is built anew, and only when asked to.
	fit("second.safetensors", "2")
	configure("second.safetensors", "companion: things_learned")
	if said := likeness(1, "index"+of); !strings.Contains(said, "--force") {
		t.Errorf("another version over the companion: %s", said)
	}
	likeness(0, "index --force"+of)
	likeness(0, "index --verify"+of)

	// Without a companion the same model is served by the learned probe that it has beside it.
	configure("second.safetensors", "head: residual")
	served(t, "likeness.yaml", func(address string) {
		if _, r := ask(address, 900); r.GetStrategy() != likenessv1.Strategy_STRATEGY_DISTILLED {
			t.Errorf("without a companion: answered by %v", r.GetStrategy())
		}
	})
	if said := likeness(0, "drop-companion --companion things_learned --yes"+of); !strings.Contains(said, "learned") {
		t.Errorf("dropped: %s", said)
	}
	// A companion without the learned vectors serves the best of the other strategies.
	configure("second.safetensors", "companion: things_average")
	likeness(0, "index --strategies average"+of)
	served(t, "likeness.yaml", func(address string) {
		if _, r := ask(address, 900); r.GetStrategy() != likenessv1.Strategy_STRATEGY_AVERAGE {
			t.Errorf("with another companion: answered by %v", r.GetStrategy())
		}
	})
}
