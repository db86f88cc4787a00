package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/internal/signals"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
)

// withGPU names a likeness-gpu to test with. withDrivers names the folder with two drivers: one
// that runs kernels on the CPU (fake), and one without a device (stub).
const withGPU, withDrivers = "LIKENESS_GPU", "LIKENESS_GPU_DRIVERS"

// gpuWorld is a sidecar with two routes to one table: many is scored by a likeness-gpu, and here by
// the sidecar.
type gpuWorld struct {
	*sidecar
	logged *syncBuffer
	spans  *spans
	asked  int
	// search asks, and looks at the answer. It returns the trace.
	search func(t *testing.T) (trace string)
}

// startGPU starts it with arguments of the plugin and variables of its environment.
func startGPU(t *testing.T, args, environ []string) *gpuWorld {
	t.Helper()
	program := os.Getenv(withGPU)
	if program == "" {
		t.Skipf("%s names no likeness-gpu; `make test` runs this with one, on a driver whose kernels run on the CPU", withGPU)
	}
	dir := t.TempDir()
	molTable(t, dir)
	w := &gpuWorld{logged: &syncBuffer{}}
	w.search = w.compare
	var at string
	w.spans, at = collect(t)
	text := fmt.Sprintf(`
trace: {endpoint: %q, insecure: true}
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {files: {kind: embedded, collections: {many: {vectors: %q}}}}
models: {mol: {path: %q}}
plugins: {gpu: {path: %q, args: [%s], env: [LD_LIBRARY_PATH, FAKE_CUDA_MEMORY, FAKE_CUDA_FAULT, FAKE_CUDA_ONCE, FAKE_CUDA_REFUSE, FAKE_CUDA_ACCEPT, FAKE_CUDA_SKIP], start_timeout: 1m}}
routes:
  many: {store: files, collection: many, model: mol, table: %[6]q, strategy: scan, device: gpu}
  here: {store: files, collection: many, model: mol, table: %[6]q, strategy: scan}
`, at, filepath.Join(dir, "many.npy"), filepath.Join(dir, "mol.safetensors"), program, strings.Join(append([]string{"serve"}, args...), ", "),
		filepath.Join(dir, "many.table"))
	w.sidecar = startIn(t, text, environ, false, slog.New(slog.NewTextHandler(w.logged, nil)))
	return w
}

// drivers is the environment of a plugin that finds one of them.
func drivers(of string, more ...string) []string {
	return append([]string{"LD_LIBRARY_PATH=" + filepath.Join(os.Getenv(withDrivers), of)}, more...)
}

// molTable writes a MoL of a shape that tensor cores score, a collection and its table.
func molTable(t *testing.T, dir string) {
	t.Helper()
	const rows = 300 // more than are kept at first, and than are too few for a device
	m, err := parity.MoL(parity.Shape{PairsQuery: 4, PairsItem: 4, Dim: 64, Hidden: 128}, 5)
	must2(t, err)
	must2(t, model.Write(filepath.Join(dir, "mol.safetensors"), m))
	vectors, features, ids := rerank.NewMatrix(rows, m.Spec().ItemDim), rerank.NewMatrix(rows, m.Spec().Features), make([]rerank.ID, rows)
	for i := range vectors.Data {
		vectors.Data[i] = float32(i*7919%1009)/504 - 1
	}
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	must2(t, npy.Write(filepath.Join(dir, "many.npy"), vectors))
	must2(t, m.EncodeItems(features, vectors))
	w, err := table.NewWriter(filepath.Join(dir, "many.table"), table.Meta{
		Model: m.Name, ModelVersion: m.Version, Collection: "many", Kind: string(rerank.KindMoL), Features: features.Cols,
	})
	must2(t, err)
	must2(t, w.Append(ids, features))
	must2(t, w.Close())
}

// ask makes a random query, and the context of a trace.
func (w *gpuWorld) ask(t *testing.T) (ctx context.Context, trace string, vector []float32) {
	t.Helper()
	w.asked++
	vector = make([]float32, 16)
	for i := range vector {
		vector[i] = float32((w.asked*31+i*17)%23)/11 - 1
	}
	trace = fmt.Sprintf("%032x", 1000+w.asked)
	return metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01"), trace, vector
}

// compare sends the same query to both routes, and wants answers that are equal to the bit.
func (w *gpuWorld) compare(t *testing.T) (trace string) {
	t.Helper()
	ctx, trace, vector := w.ask(t)
	var hits [2][]byte
	for i, route := range []string{"many", "here"} {
		r, err := likenessv1.NewSearchServiceClient(w.conn).Search(ctx, &likenessv1.SearchRequest{Route: route, Query: &likenessv1.Query{Vector: vector}, K: 10})
		if err != nil {
			t.Fatalf("route %s: %v", route, err)
		}
		if len(r.GetHits()) != 10 || r.GetDegraded() != nil {
			t.Errorf("route %s: %d hits, degraded %v", route, len(r.GetHits()), r.GetDegraded())
		}
		hits[i], err = proto.MarshalOptions{Deterministic: true}.Marshal(&likenessv1.SearchResponse{Hits: r.GetHits()})
		must2(t, err)
		ctx = t.Context() // the first has a trace
	}
	if !bytes.Equal(hits[0], hits[1]) {
		t.Error("the route with the device has other hits or scores than the one without")
	}
	return trace
}

// until searches until a metric reaches a value, and returns the last trace.
func (w *gpuWorld) until(t *testing.T, metric string, least float64) (trace string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		trace = w.search(t)
		if w.metric(t, metric) >= least {
			return trace
		}
		if time.Now().After(deadline) {
			_, body := w.get(t, "/readyz")
			t.Fatalf("%s is not %v; %s\n%s", metric, least, body, w.logged.String())
		}
	}
}

func (w *gpuWorld) metric(t *testing.T, name string) float64 {
	t.Helper()
	_, body := w.get(t, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.*)$`).FindStringSubmatch(body)
	if found == nil {
		t.Fatalf("no metric %s in\n%s", name, body)
	}
	x, err := strconv.ParseFloat(found[1], 64)
	must2(t, err)
	return x
}

func answers(outcome string) string {
	return fmt.Sprintf(`likeness_device_answers_total{outcome=%q,plugin="gpu",route="many",version=""}`, outcome)
}

const (
	gpuReady    = `likeness_device_ready{plugin="gpu",route="many",version=""}`
	gpuLoads    = `likeness_device_loads_total{plugin="gpu",route="many",version=""}`
	gpuRestarts = `likeness_plugin_restarts_total{plugin="gpu"}`
)

// end ends the sidecar, and checks the device's attributes in the trace of a search.
func (w *gpuWorld) end(t *testing.T, says map[string]string) {
	t.Helper()
	if n := w.metric(t, answers("contradicted")); n > 0 {
		t.Errorf("%v suspect answers", n)
	}
	w.stop()
	must2(t, w.wait())
	for trace, want := range says {
		have := ""
		for _, span := range []string{"likeness.search", "likeness.score", "likeness.scan", "likeness.retrieve"} {
			have += w.spans.attributes(trace, span)["likeness.device"]
		}
		if !regexp.MustCompile(want).MatchString(have) {
			t.Errorf("the trace says %q of the device, want %q", have, want)
		}
	}
}

// TestGPULost: after a sticky CUDA error every call of the context fails. The sidecar answers the
// search that meets the error and those after it. The plugin's process ends, and a new one is
// loaded and used.
func TestGPULost(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	must2(t, os.WriteFile(once, nil, 0o600))
	const launches = 52 // 35 to load, with known answers, and five for an answer
	w := startGPU(t, nil, drivers("fake", "FAKE_CUDA_ONCE="+once, fmt.Sprintf("FAKE_CUDA_FAULT=%d", launches)))
	used := w.until(t, answers("used"), 1)
	lost := w.until(t, answers("failed"), 1)
	before := w.metric(t, answers("used"))
	again := w.until(t, answers("used"), before+1)
	if n := w.metric(t, gpuRestarts); n != 1 {
		t.Errorf("%v restarts, want 1", n)
	}
	if n := w.metric(t, gpuLoads); n != 2 {
		t.Errorf("%v loads of the table, want 2", n)
	}
	if log := w.logged.String(); !strings.Contains(log, "device lost") {
		t.Errorf("the log does not say that the device was lost:\n%s", log)
	}
	w.end(t, map[string]string{used: "^used$", lost: "device lost|cut off", again: "^used$"})
}

// TestGPUKilled: a plugin that is killed is started again, and loaded.
func TestGPUKilled(t *testing.T) {
	w := startGPU(t, nil, drivers("fake"))
	w.until(t, answers("used"), 1)
	pid := regexp.MustCompile(`plugin ready.* pid=(\d+)`).FindStringSubmatch(w.logged.String())
	if pid == nil {
		t.Fatalf("no pid in\n%s", w.logged.String())
	}
	process, err := strconv.Atoi(pid[1])
	must2(t, err)
	signals.Send(t, process, syscall.SIGKILL)
	w.until(t, gpuLoads, 2)
	before := w.metric(t, answers("used"))
	again := w.until(t, answers("used"), before+1)
	w.end(t, map[string]string{again: "^used$"})
}

// TestGPURefused: if the driver refuses a launch, or a kernel's scores of made-up rows are not the
// CPU's, the sidecar scores and says why. The plugin's process stays.
func TestGPURefused(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		used    bool // before that
		says    string
	}{
		"before it is ready": {[]string{"FAKE_CUDA_REFUSE=mol_scan"}, false, "launching mol_scan_4x4x64x128 in .*: LaunchOutOfResources"},
		"in a search":        {[]string{"FAKE_CUDA_REFUSE=mol_exact", "FAKE_CUDA_ACCEPT=6"}, true, "launching mol_exact in .*: LaunchOutOfResources"},
		"wrong scores":       {[]string{"FAKE_CUDA_SKIP=mol_rescore"}, false, "differently from the CPU: row"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startGPU(t, nil, drivers("fake", c.environ...))
			if c.used {
				w.until(t, answers("used"), 1)
				w.until(t, answers("failed"), 1)
			}
			says := regexp.MustCompile("the CPU scores this model until likeness-gpu is restarted: .*" + c.says)
			for deadline := time.Now().Add(time.Minute); ; w.search(t) {
				if _, body := w.get(t, "/readyz"); says.MatchString(body) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("/readyz does not say %q:\n%s", says, w.logged.String())
				}
			}
			last := w.until(t, answers("not_ready"), w.metric(t, answers("not_ready"))+1)
			if r, restarts := w.metric(t, gpuReady), w.metric(t, gpuRestarts); r+restarts > 0 || (w.metric(t, answers("used")) > 0) != c.used {
				t.Errorf("ready %v, %v restarts, used %v times", r, restarts, w.metric(t, answers("used")))
			}
			w.end(t, map[string]string{last: "device not ready"})
		})
	}
}

// TestGPUNoRoomToScore: a device that has no memory left for the launches of a model is not ready
// and says why. Its process is intact and stays.
func TestGPUNoRoomToScore(t *testing.T) {
	const memory = 300_000 // for the model, but not for a launch
	w := startGPU(t, []string{"--memory", "1GiB"}, drivers("fake", fmt.Sprintf("FAKE_CUDA_MEMORY=%d", memory)))
	last := w.until(t, answers("not_ready"), 1)
	const says = "not enough memory on the device: allocating .*OutOfMemory"
	for deadline := time.Now().Add(time.Minute); !regexp.MustCompile(says).MatchString(w.logged.String()); last = w.search(t) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", says, w.logged.String())
		}
	}
	if u, r := w.metric(t, answers("used")), w.metric(t, gpuRestarts); u+r > 0 {
		t.Errorf("used %v times, %v restarts:\n%s", u, r, w.logged.String())
	}
	w.end(t, map[string]string{last: "device not ready"})
}

// TestGPUUnusable: a plugin that cannot load the table says why, and the sidecar answers.
func TestGPUUnusable(t *testing.T) {
	for name, c := range map[string]struct {
		args, environ []string
		says          string // in the log
	}{
		"no driver":             {nil, drivers("none"), "libcuda.so.1: cannot open shared object file"},
		"no device":             {nil, drivers("stub"), "NoDevice"},
		"no such device":        {[]string{"--device", `"3"`}, drivers("fake"), "device 3: there are 1 devices, the first is number 0"},
		"no room by the budget": {[]string{"--memory", "1MiB"}, drivers("fake"), "of 1048576 are free"},
		"no room on the device": {[]string{"--memory", "1GiB"}, drivers("fake", "FAKE_CUDA_MEMORY=1000000"), "allocating a table: OutOfMemory"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startGPU(t, c.args, c.environ)
			for deadline := time.Now().Add(time.Minute); !strings.Contains(w.logged.String(), c.says); w.search(t) {
				if time.Now().After(deadline) {
					t.Fatalf("the log does not say %q:\n%s", c.says, w.logged.String())
				}
			}
			last := w.until(t, answers("not_ready"), 1)
			if r, u := w.metric(t, gpuReady), w.metric(t, answers("used")); r+u > 0 {
				t.Errorf("ready %v, used %v times", r, u)
			}
			w.end(t, map[string]string{last: "device not ready"})
		})
	}
}
