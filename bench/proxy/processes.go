package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/bench/internal/host"
	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/internal/uncompressed"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/serve"
)

const (
	collection = "questions" // has no route
	routed     = "routed"    // the same rows, with a route of `likeness serve` that rescores
	rewritten  = "rewritten" // the same rows, with one that rewrites
)

// config is the configuration of `likeness serve`.
const config = `
listen: {grpc: "127.0.0.1:0", admin: ""}
log: {level: warn}
stores: {db: {kind: qdrant, address: %q}}
models: {bilinear: {path: %q}}
routes:
  questions: {store: db, collection: ` + routed + `, model: bilinear, placement: stored, depth: 20, unit_vectors: true}
  rewritten: {store: db, collection: ` + rewritten + `, model: bilinear, placement: rewrite, unit_vectors: true}
proxy: {store: db, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`

// bench holds everything that runs.
type bench struct {
	version   string // version of Qdrant
	task      *banking77.Task
	bodies    [][]byte // REST request bodies, one per query
	direct    *client
	proxied   *client
	perCall   *client
	served    *client
	processes []process
	closers   []func() error
}

// open starts the processes and fills the collections. After an error, everything is
// stopped.
func open(ctx context.Context, s settings, stderr io.Writer) (_ *bench, err error) {
	b := &bench{processes: []process{{"client", os.Getpid()}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	dir, err := os.MkdirTemp("", "likeness-bench-")
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(dir) })
	if b.task, err = banking77.Questions(s.Data); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.task.Close)
	if b.bodies, err = restBodies(b.task); err != nil {
		return nil, err
	}
	db, err := servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{})
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, db.Close)
	b.version = db.Version
	b.processes = append(b.processes, process{"Qdrant", db.PID()})
	if b.direct, err = b.connect(db.Address, db.REST, s.callers); err != nil {
		return nil, err
	}
	for _, name := range []string{collection, routed, rewritten} {
		if err := fill(ctx, b.direct, name, b.task.ItemFile); err != nil {
			return nil, fmt.Errorf("collection %s: %w", name, err)
		}
	}
	return b, b.openLikeness(ctx, s, db, dir, stderr)
}

// openLikeness starts `likeness proxy` and `likeness serve`.
func (b *bench) openLikeness(ctx context.Context, s settings, db *servers.Server, dir string, stderr io.Writer) error {
	var err error
	if b.proxied, err = b.openProxy(ctx, s, db, filepath.Join(dir, "proxy.json"), stderr); err != nil {
		return err
	}
	if b.perCall, err = b.openProxy(ctx, s, db, filepath.Join(dir, "per-call.json"), stderr, "--per-call"); err != nil {
		return err
	}
	file := filepath.Join(dir, "likeness.yaml")
	text := fmt.Sprintf(config, db.Address, filepath.Join(s.Models, "banking77-questions-bilinear"), db.REST)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	var serving serve.Addresses
	pid, err := b.start(ctx, stderr, &serving, filepath.Join(dir, "serve.json"), s.Binary, "serve", "--config", file)
	if err != nil {
		return err
	}
	b.processes = append(b.processes, process{"proxy", pid})
	b.served, err = b.connect(serving.Proxy.GRPC, "http://"+serving.Proxy.REST, s.callers)
	return err
}

// openProxy starts a `likeness proxy`.
func (b *bench) openProxy(ctx context.Context, s settings, db *servers.Server, ready string, stderr io.Writer, flags ...string) (*client, error) {
	var at proxy.Addresses
	pid, err := b.start(ctx, stderr, &at, ready, append([]string{s.Binary, "proxy", "--log-level", "warn", "--qdrant-grpc", db.Address,
		"--qdrant-rest", db.REST, "--listen-grpc", "127.0.0.1:0", "--listen-rest", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		return nil, err
	}
	b.processes = append(b.processes, process{"proxy", pid})
	return b.connect(at.GRPC, "http://"+at.REST, s.callers)
}

// close stops everything in reverse order.
func (b *bench) close() (err error) {
	for i := len(b.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, b.closers[i]())
	}
	b.closers = nil
	return err
}

// start runs a likeness command until close, and reads its addresses.
func (b *bench) start(ctx context.Context, stderr io.Writer, at any, ready string, command ...string) (pid int, err error) {
	pid, stop, err := host.Start(ctx, stderr, at, ready, command...)
	if err != nil {
		return 0, err
	}
	b.closers = append(b.closers, stop)
	return pid, nil
}

// connect opens a client, which close closes.
func (b *bench) connect(address, url string, callers int) (*client, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(uncompressed.Answers())) // as in a program that registers no compressor
	if err != nil {
		return nil, err
	}
	c := newClient(conn, url, callers)
	b.closers = append(b.closers, c.close)
	return c, nil
}

// fill creates a collection with default settings, as a user would, and waits until it is
// optimised.
func fill(ctx context.Context, c *client, name, file string) (err error) {
	vectors, err := npy.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	if _, err := c.collections.Create(ctx, &qdrant.CreateCollection{
		CollectionName: name,
		VectorsConfig:  qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: uint64(vectors.Cols), Distance: qdrant.Distance_Cosine}),
	}); err != nil {
		return err
	}
	const batch = 1000
	for from := 0; from < vectors.Rows; from += batch {
		var points []*qdrant.PointStruct
		for row := from; row < min(from+batch, vectors.Rows); row++ {
			points = append(points, &qdrant.PointStruct{
				Id: qdrant.NewIDNum(uint64(row)), Vectors: qdrant.NewVectorsDense(vectors.Row(row)),
				Payload: qdrant.NewValueMap(map[string]any{"row": row}),
			})
		}
		if _, err := c.points.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: name, Points: points, Wait: qdrant.PtrOf(true)}); err != nil {
			return err
		}
	}
	return awaitGreen(ctx, c, name)
}

func awaitGreen(ctx context.Context, c *client, name string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := c.collections.Get(ctx, &qdrant.GetCollectionInfoRequest{CollectionName: name})
		if err != nil || info.GetResult().GetStatus() == qdrant.CollectionStatus_Green {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// process is a process whose CPU time is measured.
type process struct {
	name string
	pid  int
}

// cpu returns the CPU time, user and system, that the process has used.
func (p process) cpu() (time.Duration, error) {
	proc, err := procfs.NewProc(p.pid)
	if err != nil {
		return 0, fmt.Errorf("processor time of the %s: %w", p.name, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("processor time of the %s: %w", p.name, err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}
