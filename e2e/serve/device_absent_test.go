package serve_test

import (
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
)

// TestDeviceAbsent: a route uses likeness-gpu on a machine without a GPU, or a build without GPU
// support. The plugin ends at its start, and the sidecar answers by itself and reports the plugin's
// error.
func TestDeviceAbsent(t *testing.T) {
	dir := t.TempDir()
	gpu := filepath.Join(dir, "likeness-gpu")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", gpu, "../../cmd/likeness-gpu")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	plainTable(t, dir, 1000)
	logged := &syncBuffer{}
	s := startLogged(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {files: {kind: embedded, collections: {many: {vectors: %q}}}}
models: {plain: {path: plain.safetensors}}
plugins: {gpu: {path: %q, args: [serve]}}
routes: {many: {store: files, collection: many, model: plain, table: %q, strategy: scan, device: gpu}}
`, filepath.Join(dir, "many.npy"), gpu, filepath.Join(dir, "many.table")), false, slog.New(slog.NewTextHandler(logged, nil)))
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(logged.String(), "built without the tag cuda") {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say what the plugin said:\n%s", logged.String())
		}
		if _, err := s.search(t, "many"); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.search(t, "many")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GetHits(); len(got) != 2 || got[0].GetId().GetNumber() != 0 || got[1].GetScore() != -1 {
		t.Errorf("hits %v, want those of the sidecar itself", got)
	}
	_, body := s.get(t, "/metrics")
	for _, want := range []string{
		`likeness_device_ready{plugin="gpu",route="many",version=""} 0`,
		`likeness_device_answers_total{outcome="used",plugin="gpu",route="many",version=""} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(body, `likeness_device_answers_total{outcome="not_ready",plugin="gpu",route="many",version=""} 0`) {
		t.Error("no search is counted for which the device was not ready")
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}

// plainTable writes a collection of two-dimensional vectors and its table.
func plainTable(t *testing.T, dir string, rows int) {
	t.Helper()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err != nil {
		t.Fatal(err)
	}
	vectors := rerank.NewMatrix(rows, 2)
	ids := make([]rerank.ID, rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
		copy(vectors.Row(i), []float32{float32(i % 701), float32(-i)})
	}
	if err := npy.Write(filepath.Join(dir, "many.npy"), vectors); err != nil {
		t.Fatal(err)
	}
	w, err := table.NewWriter(filepath.Join(dir, "many.table"), table.Meta{Model: "plain", ModelVersion: m.Version, Collection: "many", Kind: "dot", Features: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ids, vectors); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
