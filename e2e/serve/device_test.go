package serve_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
)

// childDevice, the first argument, makes the test's binary a device.
const childDevice = "serve-device"

func serveDevice() error {
	return device.Serve(context.Background(), cpu.New(cpu.Options{}), device.Limits{})
}

// TestDevice: a route whose table a plugin process scores, from the configuration to
// the metrics.
func TestDevice(t *testing.T) {
	dir := t.TempDir()
	plainTable(t, dir, 1000)
	s := start(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {files: {kind: embedded, collections: {many: {vectors: %q}}}}
models: {plain: {path: plain.safetensors}}
plugins: {gpu: {path: %q, args: [%s]}}
routes: {many: {store: files, collection: many, model: plain, table: %q, strategy: scan, device: gpu}}
`, filepath.Join(dir, "many.npy"), os.Args[0], childDevice, filepath.Join(dir, "many.table")), true)
	deadline := time.Now().Add(time.Minute)
	for {
		if _, body := s.get(t, "/metrics"); strings.Contains(body, `likeness_device_ready{plugin="gpu",route="many",version=""} 1`) {
			break
		}
		if _, err := s.search(t, "many"); err != nil || time.Now().After(deadline) {
			_, body := s.get(t, "/readyz")
			t.Fatalf("error %v; %s", err, body)
		}
	}
	r, err := s.search(t, "many")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GetHits(); len(got) != 2 || got[0].GetId().GetNumber() != 0 || got[1].GetId().GetNumber() != 1 || got[1].GetScore() != -1 {
		t.Errorf("hits %v, want 0 with 0 and 1 with 1·1-2·1", got)
	}
	if _, body := s.get(t, "/metrics"); strings.Contains(body, `likeness_device_answers_total{outcome="used",plugin="gpu",route="many",version=""} 0`) {
		t.Errorf("the device was not used:\n%s", body)
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}
