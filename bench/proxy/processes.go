package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/bench/internal/host"
	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/internal/uncompressed"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// The collections have the same rows. Each route has its own.
const (
	plain     = "questions" // has no route
	rewritten = "rewritten"
	tabled    = "tabled"
	scanned   = "scanned"
)

// configured is the configuration of `likeness serve`.
const configured = `
listen: {grpc: "127.0.0.1:0", admin: ""}
log: {level: warn}
stores: {db: {kind: %[1]q, address: %[2]q}}
models: {bilinear: {path: %[3]q}, mol: {path: %[4]q}}
routes:
  rewritten: {store: db, collection: ` + rewritten + `, model: bilinear, placement: rewrite}
  tabled: {store: db, collection: ` + tabled + `, model: bilinear, table: tabled.table}
  scanned: {store: db, collection: ` + scanned + `, model: mol, strategy: scan, table: scanned.table}
proxy: {store: db, listen_grpc: "127.0.0.1:0", %[5]s}
`

var collections = []string{plain, rewritten, tabled, scanned}

// The processes whose processor time is measured.
const (
	processClient   = "client"
	processCopier   = "copier"
	processProxy    = "likeness proxy"
	processServe    = "likeness serve"
	processDatabase = "database"
)

// benchmark holds everything that runs.
type benchmark struct {
	settings
	stderr io.Writer
	dir    string
	task   *banking77.Task
	// asked holds the query vectors of the task, and pulledBack the vectors to which a rewritten route
	// changes them.
	asked, pulledBack [][]float32
	versions          []string
	systems           []system
	closers           []func() error
}

// open starts the processes and fills the collections.
func (b *benchmark) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "likeness-bench-"); err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(b.dir) })
	if b.task, err = banking77.Questions(b.Data); err != nil {
		return err
	}
	b.closers = append(b.closers, b.task.Close)
	if err := b.readQueries(); err != nil {
		return err
	}
	if err := b.openQdrant(ctx); err != nil {
		return err
	}
	return b.openMilvus(ctx)
}

func (b *benchmark) openQdrant(ctx context.Context) error {
	db, err := servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{})
	if err != nil {
		return err
	}
	b.closers = append(b.closers, db.Close)
	conn, err := b.connect(db.Address)
	if err != nil {
		return err
	}
	for _, name := range collections {
		if err := fillQdrant(ctx, conn, name, b.task.ItemFile); err != nil {
			return fmt.Errorf("collection %s: %w", name, err)
		}
	}
	d, err := b.deploy(ctx, db, "qdrant", []string{"--qdrant-grpc", db.Address, "--qdrant-rest", db.REST, "--listen-rest", "127.0.0.1:0"},
		fmt.Sprintf("listen_rest: \"127.0.0.1:0\", rest_url: %q", db.REST))
	if err != nil {
		return err
	}
	if err := b.addGRPC(d, "Qdrant, gRPC",
		func(conn *grpc.ClientConn) client { return qdrantGRPC(conn, b.asked) },
		func(conn *grpc.ClientConn) client { return qdrantGRPC(conn, b.pulledBack) }); err != nil {
		return err
	}
	bodies, err := restBodies(b.asked)
	if err != nil {
		return err
	}
	rewrittenBodies, err := restBodies(b.pulledBack)
	if err != nil {
		return err
	}
	transport := newTransport(3 * b.callers)
	b.closers = append(b.closers, func() error {
		transport.CloseIdleConnections()
		return nil
	})
	copied, err := b.startCopier(ctx, d, strings.TrimPrefix(db.REST, "http://"), filepath.Join(b.dir, "qdrant", "rest-copier.json"))
	if err != nil {
		return err
	}
	over := func(url string) client { return qdrantREST(transport, url, bodies) }
	b.systems = append(b.systems, d.system("Qdrant, REST", over(db.REST), qdrantREST(transport, db.REST, rewrittenBodies), over("http://"+copied), over("http://"+d.proxied.REST), over("http://"+d.serving.REST)))
	return nil
}

func (b *benchmark) openMilvus(ctx context.Context) error {
	db, err := servers.MilvusLite(ctx, servers.Dir(), servers.Options{})
	if err != nil {
		return err
	}
	b.closers = append(b.closers, db.Close)
	if err := fillMilvus(ctx, db.Address, b.task.ItemFile); err != nil {
		return err
	}
	d, err := b.deploy(ctx, db, "milvus", []string{"--milvus", db.Address}, "")
	if err != nil {
		return err
	}
	groups, err := milvusGroups(b.asked)
	if err != nil {
		return err
	}
	rewrittenGroups, err := milvusGroups(b.pulledBack)
	if err != nil {
		return err
	}
	return b.addGRPC(d, "milvus-lite, gRPC",
		func(conn *grpc.ClientConn) client { return milvusGRPC(conn, groups) },
		func(conn *grpc.ClientConn) client { return milvusGRPC(conn, rewrittenGroups) })
}

// readQueries sets asked and pulledBack.
func (b *benchmark) readQueries() error {
	m, err := model.Open(b.bilinear())
	if err != nil {
		return err
	}
	for i := range b.task.Queries {
		v := b.task.Vector(i)
		encoded, err := m.Encode(rerank.Query{Vector: v})
		if err != nil {
			return err
		}
		able := rerank.EncodedAbilitiesOf(encoded).PullBack
		if able == nil {
			return fmt.Errorf("model %s: no query is one inner product with the stored vectors", b.bilinear())
		}
		product, ok := able.PullBack()
		if !ok {
			return fmt.Errorf("model %s: query %d is not one inner product with the stored vectors", b.bilinear(), i)
		}
		b.asked, b.pulledBack = append(b.asked, v), append(b.pulledBack, product.Vector)
	}
	return nil
}

// bilinear returns the path of the model of the routes `rewritten` and `tabled`.
func (b *benchmark) bilinear() string {
	return filepath.Join(b.Models, "banking77-questions-bilinear")
}

// deployment is a database with likeness before it.
type deployment struct {
	db               *servers.Server
	proxied, serving proxy.Addresses
	copied           string // address of the copier of the database's gRPC
	processes        []process
}

// deploy starts `likeness proxy` with additional flags, and `likeness serve` with tables and
// with additional keys of its proxy.
func (b *benchmark) deploy(ctx context.Context, db *servers.Server, kind string, flags []string, keys string) (*deployment, error) {
	b.versions = append(b.versions, db.Name+" "+db.Version)
	d := &deployment{db: db, processes: []process{{processClient, os.Getpid()}, {processDatabase, db.PID()}}}
	dir := filepath.Join(b.dir, kind)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	command := append([]string{b.Binary, "proxy", "--log-level", "warn", "--listen-grpc", "127.0.0.1:0"}, flags...)
	if err := b.start(ctx, d, processProxy, &d.proxied, filepath.Join(dir, "proxy.json"), command); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "likeness.yaml")
	text := fmt.Sprintf(configured, kind, db.Address, b.bilinear(), filepath.Join(b.Models, "banking77-questions-mol"), keys)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, name := range []string{tabled, scanned} {
		index := exec.CommandContext(ctx, b.Binary, "index", "--config", file, "--route", name, "--only", "table")
		if out, err := index.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("table of route %s: %w\n%s", name, err, out)
		}
	}
	var at serve.Addresses
	if err := b.start(ctx, d, processServe, &at, filepath.Join(dir, "serve.json"), []string{b.Binary, "serve", "--config", file}); err != nil {
		return nil, err
	}
	d.serving = *at.Proxy
	var err error
	d.copied, err = b.startCopier(ctx, d, db.Address, filepath.Join(dir, "copier.json"))
	return d, err
}

// startCopier starts a process that copies bytes to an address, and returns its own.
func (b *benchmark) startCopier(ctx context.Context, d *deployment, to, ready string) (at string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	return at, b.start(ctx, d, processCopier, &at, ready, []string{program, copyCommand, "--to", to})
}

// start runs a likeness command until close, and reads its addresses.
func (b *benchmark) start(ctx context.Context, d *deployment, name string, at any, ready string, command []string) error {
	pid, stop, err := host.Start(ctx, b.stderr, at, ready, command...)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, stop)
	d.processes = append(d.processes, process{name, pid})
	return nil
}

// addGRPC adds a system whose clients use gRPC. asking makes the clients that send the vectors asked, and
// rewriting the one that sends the vectors pulledBack.
func (b *benchmark) addGRPC(d *deployment, name string, asking, rewriting func(*grpc.ClientConn) client) error {
	var conns [4]*grpc.ClientConn
	for i, address := range []string{d.db.Address, d.copied, d.proxied.GRPC, d.serving.GRPC} {
		var err error
		if conns[i], err = b.connect(address); err != nil {
			return err
		}
	}
	b.systems = append(b.systems, d.system(name, asking(conns[0]), rewriting(conns[0]), asking(conns[1]), asking(conns[2]), asking(conns[3])))
	return nil
}

// The names of the ways.
const (
	wayDirect = "direct"
	// wayByClient sends the request of a rewritten call to the database directly, on the same
	// collection. The difference to it is the cost of rewriting.
	wayByClient  = "rewritten by the client"
	wayCopied    = "bytes copied"
	wayProxy     = "likeness proxy"
	wayPassed    = "passed"
	wayRewritten = "rewritten"
	wayTable     = "table"
	wayScan      = "scan"
)

// system returns the ways to search by five clients. The client of rewriting sends the database
// what a rewritten route would send it.
func (d *deployment) system(name string, direct, rewriting, copied, proxied, served client) system {
	return system{name: name, processes: d.processes, ways: []way{
		{wayDirect, direct(plain, "")},
		{wayCopied, copied(plain, "")},
		{wayProxy, proxied(plain, "")},
		{wayPassed, served(plain, "")},
		{wayByClient, rewriting(rewritten, "")},
		{wayRewritten, served(rewritten, "rewritten; ")},
		{wayTable, served(tabled, "rescored; ")},
		{wayScan, served(scanned, "rescored; ")},
	}}
}

// connect opens a connection, which close closes.
func (b *benchmark) connect(address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(uncompressed.Answers())) // as in a program that registers no compressor
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, conn.Close)
	return conn, nil
}

// close stops everything in reverse order.
func (b *benchmark) close() (err error) {
	for i := len(b.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, b.closers[i]())
	}
	b.closers = nil
	return err
}

// process is a process whose processor time is measured.
type process struct {
	name string
	pid  int
}

// cpu returns the processor time, user and system, that the process has used.
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
