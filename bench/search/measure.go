package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/bench/internal/host"
	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// all is the configuration of every route.
const all = "collection: questions, depth: 1000, unit_vectors: true, exact_search: true, timeout: 30s"

// configured returns the configuration, with every route twice: in Qdrant, and in the
// sidecar's own store.
const configured = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
log: {level: warn}
stores:
  qdrant: {kind: qdrant, address: %[1]q}
  files: {kind: embedded, collections: {questions: {vectors: %[2]q, metric: cosine}}}
models:
  dot: {path: %[3]q}
  bilinear: {path: %[4]q}
  mol: {path: %[5]q}
routes:
  qdrant-dot: {store: qdrant, table: qdrant-dot.table, model: dot, ALL}
  qdrant-bilinear: {store: qdrant, table: qdrant-bilinear.table, model: bilinear, ALL}
  qdrant-mol: {store: qdrant, table: qdrant-mol.table, model: mol, companion: questions_mol, ALL}
  qdrant-stored: {store: qdrant, placement: stored, model: dot, ALL}
  files-dot: {store: files, table: files-dot.table, model: dot, ALL}
  files-bilinear: {store: files, table: files-bilinear.table, model: bilinear, ALL}
  files-mol: {store: files, table: files-mol.table, model: mol, strategy: distilled, ALL}
`

// subject is a route with the strategy to measure.
type subject struct {
	name, route, strategy string
	depth                 string // empty selects the route's depth
}

// alone returns the cases over Qdrant with one search at a time.
func alone() []subject {
	return []subject{
		{"dot, table", "qdrant-dot", "", ""},
		{"bilinear, table", "qdrant-bilinear", "", ""},
		{"MoL 4x4x64 full gate, average, table", "qdrant-mol", "average", ""},
		{"MoL 4x4x64 full gate, distilled, table", "qdrant-mol", "distilled", ""},
		{"MoL 4x4x64 full gate, per_embedding 80, table", "qdrant-mol", "per_embedding", "80"},
		{"dot, stored", "qdrant-stored", "", ""},
	}
}

// traced is the name of the loaded case whose slowest searches are traced.
const traced = "Qdrant: MoL 4x4x64 full gate, distilled"

// loaded returns the cases under load.
func loaded() []subject {
	return []subject{
		{"Qdrant: dot", "qdrant-dot", "", ""},
		{"Qdrant: bilinear", "qdrant-bilinear", "", ""},
		{traced, "qdrant-mol", "distilled", ""},
		{"in the sidecar: dot", "files-dot", "", ""},
		{"in the sidecar: bilinear", "files-bilinear", "", ""},
		{"in the sidecar: MoL 4x4x64 full gate, distilled", "files-mol", "distilled", ""},
	}
}

// place contains the paths and addresses of a run.
type place struct {
	settings
	dir, config, queries string
	stderr               io.Writer
}

// measure starts Qdrant, builds tables, measures, and stops everything.
func (s settings) measure(ctx context.Context, stderr io.Writer) (_ *report, err error) {
	dir, err := os.MkdirTemp("", "likeness-bench-search-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := place{s, dir, filepath.Join(dir, "likeness.yaml"), filepath.Join(s.Data, "test_vectors.npy"), stderr}
	db, err := servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r := &report{Processor: host.Processor(), Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Qdrant: db.Version, Load: [2]float64{host.Load()}}
	if err := p.pin(ctx, db.PID()); err != nil {
		return nil, err
	}
	if err := p.prepare(ctx, db.Address); err != nil {
		return nil, err
	}
	if err := errors.Join(p.madeUp(ctx, r), p.alone(ctx, r), p.loaded(ctx, r)); err != nil {
		return nil, err
	}
	r.Load[1] = host.Load()
	return r, nil
}

// pin moves a process to the other processor.
func (p place) pin(ctx context.Context, pid int) error {
	out, err := exec.CommandContext(ctx, "taskset", "-a", "-c", "-p", p.otherCPU, strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, out)
	}
	return nil
}

// prepare fills the database and builds the tables and the companion.
func (p place) prepare(ctx context.Context, address string) error {
	p.say("filling Qdrant and building tables")
	dot, vectors := filepath.Join(p.dir, "dot.safetensors"), filepath.Join(p.Data, "train_vectors.npy")
	text := fmt.Sprintf(configured, address, vectors, dot, filepath.Join(p.Models, "banking77-questions-bilinear"), filepath.Join(p.Models, "banking77-questions-mol"))
	if err := os.WriteFile(p.config, []byte(strings.ReplaceAll(text, "ALL", all)), 0o600); err != nil {
		return err
	}
	if err := fill(ctx, p.config, vectors); err != nil {
		return err
	}
	steps := [][]string{{"model", "dot", dot, "--dim", "384", "--normalise"}, {"index", "-c", p.config, "--route", "qdrant-mol"}}
	for _, route := range []string{"qdrant-dot", "qdrant-bilinear", "files-dot", "files-bilinear", "files-mol"} {
		steps = append(steps, []string{"index", "-c", p.config, "--route", route, "--only", "table"})
	}
	for _, args := range steps {
		if err := p.likeness(ctx, p.sidecarCPU, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// madeUp measures the synthetic cases of bench search, in plain Go and with the fastest
// kernels.
func (p place) madeUp(ctx context.Context, r *report) error {
	for _, to := range []struct {
		kernel string
		into   *[]bench.Result
	}{{"go", &r.PlainGo}, {"", &r.MadeUp}} {
		p.say("one process, kernel %q", to.kernel)
		var out benchSearch
		if err := p.likeness(ctx, p.sidecarCPU, &out, "bench", "search", "--kernel", to.kernel, "--searches", strconv.Itoa(p.searches)); err != nil {
			return err
		}
		*to.into = out.Results
		if to.kernel == "" {
			r.Kernel = out.Kernel
		}
	}
	return nil
}

// benchSearch is the JSON output of `likeness bench search`.
type benchSearch struct {
	Kernel  string         `json:"kernel"`
	Results []bench.Result `json:"results"`
}

// alone measures searches over Qdrant, one at a time.
func (p place) alone(ctx context.Context, r *report) error {
	for _, c := range alone() {
		p.say("over Qdrant, one after the other: %s", c.name)
		args := []string{"bench", "search", "-c", p.config, "--route", c.route, "--queries", p.queries, "--searches", strconv.Itoa(p.searches)}
		if c.strategy != "" {
			args = append(args, "--strategy", c.strategy)
		}
		if c.depth != "" {
			args = append(args, "--depth", c.depth)
		}
		var out benchSearch
		if err := p.likeness(ctx, p.sidecarCPU, &out, args...); err != nil {
			return err
		}
		for i := range out.Results {
			out.Results[i].Case = c.name
		}
		r.Alone = append(r.Alone, out.Results...)
	}
	return nil
}

// loaded measures a sidecar on one processor at 80 % of its capacity. It runs the case traced once
// more, to see what its slowest searches wait for.
func (p place) loaded(ctx context.Context, r *report) (err error) {
	var at serve.Addresses
	_, stop, err := host.Start(ctx, p.stderr, &at, filepath.Join(p.dir, "ready.json"),
		"env", "GOMAXPROCS=1", "taskset", "-c", p.sidecarCPU, p.Binary, "serve", "--config", p.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, c := range loaded() {
		p.say("80 %% of the load: %s", c.name)
		args := []string{"bench", "serve", "-a", at.GRPC, "--route", c.route, "--queries", p.queries, "--load", "0.8", "--duration", p.load.String()}
		if c.strategy != "" {
			args = append(args, "--strategy", c.strategy)
		}
		var out struct {
			Loops []bench.LoadResult `json:"loops"`
		}
		if err := p.likeness(ctx, p.otherCPU, &out, args...); err != nil {
			return err
		}
		if len(out.Loops) != 2 || out.Loops[1].Own == nil {
			return fmt.Errorf("bench serve of %s answered no search", c.name)
		}
		r.Loaded = append(r.Loaded, loadedResult{Case: c.name, Capacity: out.Loops[0].Goodput, At: out.Loops[1]})
		if c.name == traced {
			if r.Tail, err = p.trace(ctx, at, c, 0.8*out.Loops[0].Goodput); err != nil {
				return err
			}
		}
	}
	return nil
}

// trace sends searches at a rate, and reads an execution trace of the sidecar meanwhile.
func (p place) trace(ctx context.Context, at serve.Addresses, c subject, rate float64) (*tail, error) {
	p.say("the same, traced")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return p.likeness(ctx, p.otherCPU, nil, "bench", "serve", "-a", at.GRPC, "--route", c.route, "--strategy", c.strategy,
			"--queries", p.queries, "--rate", fmt.Sprint(rate), "--warm-up", "1s", "--duration", (p.load + 2*time.Second).String())
	})
	var t *tail
	group.Go(func() error {
		url := fmt.Sprintf("http://%s/debug/pprof/trace?seconds=%.0f", at.Admin, p.load.Seconds())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := new(http.Client).Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		t, err = readTail(answer.Body)
		return err
	})
	err := group.Wait()
	return t, err
}

// likeness runs a command on a processor and decodes its output into out, unless out is
// nil.
func (p place) likeness(ctx context.Context, cpu string, out any, args ...string) error {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cpu, p.Binary}, append(args, "--output", "json")...)...)
	cmd.Dir, cmd.Stderr = p.dir, p.stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("likeness %s: %w", args[0], err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

func (p place) say(format string, a ...any) { _, _ = fmt.Fprintf(p.stderr, format+"\n", a...) }
