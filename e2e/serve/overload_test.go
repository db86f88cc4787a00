package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// overloaded is the configuration of a sidecar whose searches, of 500 of 10,003
// questions by a Mixture-of-Logits, take milliseconds of its one processor.
const overloaded = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
shutdown: {grace: 10s}
stores:
  files: {kind: embedded, collections: {questions: {vectors: EXAMPLES/data/banking77/train_vectors.npy, metric: cosine}}}
models: {mol: {path: EXAMPLES/models/banking77-questions-mol}}
routes:
  questions: {store: files, collection: questions, model: mol, placement: stored, strategy: distilled, depth: 500,
    unit_vectors: true, exact_search: true, timeout: 30s}
`

// TestOverload sends a sidecar in a process of its own, with one processor, five times its
// capacity, over real connections. It answers the calls that it admits, its refusals say when to
// try again, and it works normally afterwards. LIKENESS_SOAK=1 logs the times, also for twice and
// ten times the capacity.
func TestOverload(t *testing.T) {
	load := bench.Load{Workers: 16, MaxOpen: 2000, Duration: time.Second, Seed: 1}
	multiples := []float64{5}
	if os.Getenv(soak) != "" {
		load.Duration, load.WarmUp, multiples = 15*time.Second, 2*time.Second, []float64{1, 2, 5, 10}
	}
	conn := connect(t, oneProcessor(t))
	search := likenessv1.NewSearchServiceClient(conn)
	queries, err := npy.Open(filepath.Join(examples(t), "data/banking77/test_vectors.npy"))
	must2(t, err)
	t.Cleanup(func() { _ = queries.Close() })
	var wrong atomic.Pointer[string]
	call := func(ctx context.Context, n int) bench.Outcome {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		answer, err := search.Search(ctx, &likenessv1.SearchRequest{Route: "questions", K: 10,
			Query: &likenessv1.Query{Vector: queries.Row(n % queries.Rows)}}, grpc.WaitForReady(true))
		switch {
		case err == nil && answer.GetDegraded() == nil:
			return bench.Good
		case status.Code(err) == codes.ResourceExhausted && saysWhen(err):
			return bench.Refused
		}
		text := status.Convert(err).String() + answer.GetDegraded().GetDetail()
		wrong.Store(&text)
		return bench.Failed
	}
	for call(t.Context(), 0) != bench.Good { // until the route is open
		if text := wrong.Load(); text != nil && !strings.Contains(*text, codes.Unavailable.String()) {
			t.Fatal(*text)
		}
	}
	wrong.Store(nil)
	capacity := load.Run(t.Context(), call)
	peak := capacity.Goodput
	for _, m := range multiples {
		load.Rate = min(m*capacity.Goodput, 20000)
		r := load.Run(t.Context(), call)
		peak = max(peak, r.Goodput)
		refused := r.Latency[bench.Refused]
		t.Logf("%g times %.0f answers a second: %.0f answered (%.0f %% of the most so far), refused after %.1f ms in the median, %.1f ms of 99 in 100",
			m, capacity.Goodput, r.Goodput, 100*r.Goodput/peak, refused.P50, refused.P99)
		if m == 5 {
			t.Logf("reliability row=5 figure=5 times %.0f searches a second over one connection, a processor each for the sidecar and its clients: %.0f answered a second (%.0f %% of the most), refusals seen by the client after %.1f ms in the median, %.1f ms of 99 in 100",
				capacity.Goodput, r.Goodput, 100*r.Goodput/peak, refused.P50, refused.P99)
		}
		if r.Outcomes[bench.Good] == 0 || m == 5 && r.Outcomes[bench.Refused]+r.Outcomes[bench.Unsent] == 0 {
			t.Errorf("%g times what it can answer: %v", m, r.Outcomes)
		}
	}
	if text := wrong.Load(); text != nil {
		t.Errorf("neither answered nor refused: %s", *text)
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health afterwards: %v", err)
	}
	if call(t.Context(), 1) != bench.Good {
		t.Errorf("a search afterwards: %s", *wrong.Load())
	}
}

// saysWhen reports whether an error says when to ask again.
func saysWhen(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		retry, ok := d.(*errdetails.RetryInfo)
		return ok && retry.GetRetryDelay().AsDuration() > 0
	})
}

func examples(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../examples")
	must2(t, err)
	return dir
}

// oneProcessor starts a sidecar on one processor, of its own where taskset can do so, and returns
// where it listens.
func oneProcessor(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "likeness.yaml")
	must2(t, os.WriteFile(file, []byte(strings.ReplaceAll(overloaded, "EXAMPLES", examples(t))), 0o600))
	cmd := exec.Command(os.Args[0])
	if tool, err := exec.LookPath("taskset"); err == nil && os.Getenv(soak) != "" {
		cmd = exec.Command(tool, "-c", "0", os.Args[0])
	}
	cmd.Env = append(os.Environ(), childConfig+"="+file, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must2(t, err)
	must2(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the sidecar: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must2(t, err)
	var at serve.Addresses
	must2(t, json.Unmarshal(line, &at))
	return at.GRPC
}
