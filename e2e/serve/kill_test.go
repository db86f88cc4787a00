package serve_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/serve"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// The child of TestKilled serves the configuration in childConfig until it is
// killed, and prints its addresses. With childOnRequest it compares all rows on request
// only. LIKENESS_SOAK=1 runs the test at length, and
// LIKENESS_FOLLOW_REPORT is the file that gets its figures.
const (
	childConfig    = "LIKENESS_SERVE_CHILD"
	childOnRequest = "LIKENESS_SERVE_CHILD_ON_REQUEST"
	soak           = "LIKENESS_SOAK"
	followReport   = "LIKENESS_FOLLOW_REPORT"
)

func child(file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := config.Load(config.Source{File: file})
	if err != nil {
		return err
	}
	return serve.Run(ctx, c, serve.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Build: buildinfo.Read(buildinfo.Stamp{}),
		SpareThread:        true, // as the command has
		ReconcileOnRequest: os.Getenv(childOnRequest) != "",
		Listening:          func(at serve.Addresses) { _ = json.NewEncoder(os.Stdout).Encode(at) },
	})
}

// killing is how long TestKilled takes.
type killing struct {
	rows, kills, perSecond int
	between                time.Duration // kills
	dbDown                 int           // the kill with the database down
}

// TestKilled writes to a collection through the proxies of two sidecars that share
// a companion and each have a table, and past them, while one is killed again and
// again, once with the database down. After one reconcile of each everything that
// is derived agrees with the database, row by row.
func TestKilled(t *testing.T) {
	k := killing{rows: 300, kills: 2, perSecond: 150, between: time.Second, dbDown: 1}
	if os.Getenv(soak) != "" {
		k = killing{rows: 5000, kills: 10, perSecond: 500, between: 6 * time.Second, dbDown: 5}
	}
	w := newKilled(t, k)
	writing, stop := context.WithCancel(t.Context())
	began := time.Now()
	var writers sync.WaitGroup
	for n := range writersAtOnce {
		writers.Go(func() { w.write(writing, n, k) })
	}
	for n := range k.kills {
		pause(t, k.between)
		if n == k.dbDown {
			must2(t, w.db.Kill())
		}
		must2(t, w.one.cmd.Process.Kill())
		_, _ = w.one.cmd.Process.Wait()
		w.one = w.start(t, "one")
		if n == k.dbDown {
			pause(t, k.between/2)
			must2(t, w.db.Restart(t.Context()))
		}
	}
	pause(t, k.between)
	stop()
	writers.Wait()
	took := time.Since(began)
	must2(t, w.one.cmd.Process.Kill()) // the last one, with nobody to start it again
	_, _ = w.one.cmd.Process.Wait()
	w.two.end(t)
	results := map[string]follow.Drift{}
	for _, name := range []string{"one", "two"} {
		results[name] = w.reconcile(t, name)
	}
	w.agree(t)
	w.report(t, k, took, results)
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func must2(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// killed is the database, the sidecars before it and how to reach them.
type killed struct {
	db       *servers.Server
	address  string // of the database for the sidecars; empty: its own
	kind     string // of the store
	route    string // more of the route
	dir      string
	one, two *sidecarProcess
	direct   *grpc.ClientConn
	// proxies holds connections to the proxies of the sidecars that run now.
	proxies [2]atomic.Pointer[grpc.ClientConn]
	sent    [3]atomic.Int64 // upserts to either proxy and past them that were answered
	failed  atomic.Int64
}

const (
	things        = "things"
	thingsMoL     = "things_mol"
	writersAtOnce = 48
)

type sidecarProcess struct {
	cmd *exec.Cmd
	at  serve.Addresses
}

func (p *sidecarProcess) end(t *testing.T) {
	t.Helper()
	must2(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("a sidecar that was asked to end: %v", err)
	}
}

func newKilled(t *testing.T, k killing) *killed {
	t.Helper()
	w := &killed{db: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}), kind: "qdrant", dir: t.TempDir()}
	w.direct = connect(t, w.db.Address)
	_, err := qdrant.NewCollectionsClient(w.direct).Create(t.Context(), &qdrant.CreateCollection{CollectionName: things,
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 384, Distance: qdrant.Distance_Cosine})})
	must2(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for from := 0; from < k.rows; from += 100 {
		var points []*qdrant.PointStruct
		for i := range 100 {
			points = append(points, thing(rng, uint64(from+i)))
		}
		_, err := qdrant.NewPointsClient(w.direct).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: things, Wait: qdrant.PtrOf(true), Points: points})
		must2(t, err)
	}
	for i, name := range []string{"one", "two"} {
		w.configure(t, name)
		w.build(t, name, i == 0)
	}
	w.one, w.two = w.start(t, "one"), w.start(t, "two")
	return w
}

func thing(rng *rand.Rand, id uint64) *qdrant.PointStruct {
	v := make([]float32, 384)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	payload := map[string]any{"n": int64(rng.IntN(1000)), "colour": []string{"red", "green", "blue"}[rng.IntN(3)], "w": rng.Float64()}
	return &qdrant.PointStruct{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectors(v...), Payload: qdrant.NewValueMap(payload)}
}

func (w *killed) file(name string) string { return filepath.Join(w.dir, name+".yaml") }

func (w *killed) configure(t *testing.T, name string) {
	t.Helper()
	model, err := filepath.Abs("../../examples/models/banking77-mol")
	must2(t, err)
	must2(t, os.WriteFile(w.file(name), fmt.Appendf(nil, `listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: %q
stores: {main: {kind: %s, address: %q}}
models: {m: {path: %q}}
routes:
  things: {store: main, collection: things, model: m, placement: table, table: %q, table_live: true, companion: things_mol, reconcile: {rows_per_second: 0}%s}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, filepath.Join(w.dir, name), w.kind, cmp.Or(w.address, w.db.Address), model, filepath.Join(w.dir, name+".table"), w.route), 0o600))
}

// build indexes as `likeness index` does.
func (w *killed) build(t *testing.T, name string, withCompanion bool) {
	t.Helper()
	c, err := config.Load(config.Source{File: w.file(name)})
	must2(t, err)
	parts, err := wiring.Open(t.Context(), c, wiring.Part{Tables: wiring.NoTables})
	must2(t, err)
	defer parts.Close()
	store, model := parts.Stores["main"], parts.Routes[0].Model
	source := index.Source{Store: store, Collection: things}
	_, err = index.BuildTable(t.Context(), index.TableJob{Source: source, Model: model, Path: c.Routes[things].Table})
	must2(t, err)
	if !withCompanion {
		return
	}
	_, err = index.BuildCompanion(t.Context(), index.CompanionJob{
		Source: source, Model: model, Writer: store.(adapters.Writer), Name: thingsMoL, Strategies: []rerank.Strategy{rerank.Average}, Features: true,
	})
	must2(t, err)
}

// start starts a sidecar in a process of its own.
func (w *killed) start(t *testing.T, name string, env ...string) *sidecarProcess {
	t.Helper()
	p := startProcess(t, w.file(name), env...)
	i := map[string]int{"one": 0, "two": 1}[name]
	w.proxies[i].Store(connect(t, p.at.Proxy.GRPC))
	return p
}

// startProcess starts a sidecar with a configuration file in a process of its own.
func startProcess(t *testing.T, file string, env ...string) *sidecarProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childConfig+"="+file), env...)
	cmd.Stderr = io.Discard
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	out, err := cmd.StdoutPipe()
	must2(t, err)
	must2(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the sidecar of %s did not start: %v", file, err)
	}
	var at serve.Addresses
	must2(t, json.Unmarshal(line, &at))
	return &sidecarProcess{cmd, at}
}

// write sends one writer's share of the writes until ctx is done; those that fail
// are as good as those that do not.
func (w *killed) write(ctx context.Context, n int, k killing) {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	tick := time.NewTicker(time.Second * writersAtOnce / time.Duration(k.perSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		way, conn := w.way(rng)
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := anyWrite(call, rng, conn, k.rows)
		cancel()
		if err != nil {
			w.failed.Add(1)
			continue
		}
		w.sent[way].Add(1)
	}
}

// way: 5 % of the writes go past the sidecars, and of the others one in five to
// the one that is never killed.
func (w *killed) way(rng *rand.Rand) (way int, conn *grpc.ClientConn) {
	switch n := rng.IntN(100); {
	case n < 5:
		return 2, w.direct
	case n < 24:
		return 1, w.proxies[1].Load()
	default:
		return 0, w.proxies[0].Load()
	}
}

// anyWrite is mostly an upsert, in one case of four not waited for, and otherwise
// one of the other writes.
func anyWrite(ctx context.Context, rng *rand.Rand, conn *grpc.ClientConn, rows int) error {
	c, wait := qdrant.NewPointsClient(conn), qdrant.PtrOf(rng.IntN(4) > 0)
	id := uint64(rng.IntN(rows * 5 / 4))
	one := qdrant.NewPointsSelector(qdrant.NewIDNum(id))
	var err error
	switch n := rng.IntN(200); {
	case n < 2:
		exactly := qdrant.NewRange("w", &qdrant.Range{Gte: qdrant.PtrOf(0.5), Lt: qdrant.PtrOf(0.502)})
		_, err = c.Delete(ctx, &qdrant.DeletePoints{CollectionName: things, Wait: wait, Points: qdrant.NewPointsSelectorFilter(&qdrant.Filter{Must: []*qdrant.Condition{exactly}})})
	case n < 3:
		red := &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatch("colour", "red"), qdrant.NewMatchInt("n", int64(rng.IntN(1000)))}}
		_, err = c.SetPayload(ctx, &qdrant.SetPayloadPoints{CollectionName: things, Wait: wait, Payload: qdrant.NewValueMap(map[string]any{"seen": true}), PointsSelector: qdrant.NewPointsSelectorFilter(red)})
	case n < 20:
		_, err = c.Delete(ctx, &qdrant.DeletePoints{CollectionName: things, Wait: wait, Points: one})
	case n < 40:
		_, err = c.SetPayload(ctx, &qdrant.SetPayloadPoints{CollectionName: things, Wait: wait, Payload: qdrant.NewValueMap(map[string]any{"n": int64(rng.IntN(1000))}), PointsSelector: one})
	case n < 50:
		v := thing(rng, id)
		_, err = c.UpdateVectors(ctx, &qdrant.UpdatePointVectors{CollectionName: things, Wait: wait,
			Points: []*qdrant.PointVectors{{Id: v.GetId(), Vectors: v.GetVectors()}}})
	default:
		_, err = c.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: things, Wait: wait, Points: []*qdrant.PointStruct{thing(rng, id)}})
	}
	return err
}

// open opens what a sidecar had, in this process.
func (w *killed) open(t *testing.T, name string) (*config.Config, *wiring.Assembly) {
	t.Helper()
	c, err := config.Load(config.Source{File: w.file(name)})
	must2(t, err)
	parts, err := wiring.Open(t.Context(), c, wiring.Part{})
	must2(t, err)
	return c, parts
}

// reconcile compares and repairs all rows once, after what the journal has.
func (w *killed) reconcile(t *testing.T, name string) follow.Drift {
	t.Helper()
	c, parts := w.open(t, name)
	defer parts.Close()
	f, err := wiring.Follow(c, parts, follow.Options{Logger: slog.New(slog.DiscardHandler)})
	must2(t, err)
	found, err := f["main"].Reconcile(t.Context(), things)
	must2(t, err)
	must2(t, f.Close(t.Context()))
	return found[things]
}

// agree compares every row of the database with the tables and the companion.
func (w *killed) agree(t *testing.T) {
	t.Helper()
	for _, name := range []string{"one", "two"} {
		_, parts := w.open(t, name)
		r := parts.Routes[0]
		w.agreeWith(t, name, r)
		d, err := follow.Compare(t.Context(), r, nil)
		must2(t, err)
		if d.Differing() > 0 || d.Rows == 0 {
			t.Errorf("sidecar %s: %+v", name, d)
		}
		must2(t, parts.Close())
	}
}

// agreeWith knows nothing of package follow.
func (w *killed) agreeWith(t *testing.T, name string, r *route.Route) {
	t.Helper()
	scanner, now := r.Store.(adapters.Scanner), r.Live.Snapshot()
	defer now.Release()
	payloads := map[rerank.ID]string{}
	err := scanner.Scan(t.Context(), adapters.ScanRequest{Collection: things, Vectors: []string{""}, Payload: true}, func(rows adapters.Rows, _ string) error {
		features := rerank.NewMatrix(len(rows.IDs), r.Model.Similarity.Spec().Features)
		if err := r.Model.Similarity.EncodeItems(features, rows.Vectors[0]); err != nil {
			return err
		}
		for i, id := range rows.IDs {
			payloads[id] = string(rows.Payloads[i])
			item, ok := now.Find(id)
			if !ok {
				t.Errorf("sidecar %s: the table has no row %s", name, id)
				continue
			}
			from, _ := now.Rows(item)
			for c, x := range now.Features().Row(from) {
				if x != features.Row(i)[c] {
					t.Errorf("sidecar %s: the table's row %s differs", name, id)
					break
				}
			}
		}
		return nil
	})
	must2(t, err)
	if now.Count() != len(payloads) {
		t.Errorf("sidecar %s: the table has %d rows, the database %d", name, now.Count(), len(payloads))
	}
	rows := 0
	err = scanner.Scan(t.Context(), adapters.ScanRequest{Collection: thingsMoL, Payload: true}, func(part adapters.Rows, _ string) error {
		for i, id := range part.IDs {
			if payloads[id] != string(part.Payloads[i]) {
				t.Errorf("the companion's payload of %s is %s, the database's %q", id, part.Payloads[i], payloads[id])
			}
		}
		rows += len(part.IDs)
		return nil
	})
	must2(t, err)
	if rows != len(payloads) {
		t.Errorf("the companion has %d rows, the database %d", rows, len(payloads))
	}
}

func (w *killed) report(t *testing.T, k killing, took time.Duration, found map[string]follow.Drift) {
	t.Helper()
	one, two, direct := w.sent[0].Load(), w.sent[1].Load(), w.sent[2].Load()
	rate := float64(one+two+direct) / took.Seconds()
	text := fmt.Sprintf("| %d | %d | %.0f | %d | %d | %d | %d | %d | %d | 0 |\n", k.kills, found["one"].Rows, rate, one, two, direct, w.failed.Load(),
		found["one"].Differing(), found["two"].Differing())
	t.Log("kills, rows, writes/s, by one, by two, past both, not answered, differing before the reconcile of one, of two, after\n" + text)
	file := os.Getenv(followReport)
	if file == "" {
		return
	}
	record, err := json.MarshalIndent(map[string]any{
		"command": "make soak", "machine": fmt.Sprintf("%s/%s, %d processors, Qdrant %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), servers.QdrantNewest),
		"load": "client, two sidecars and database share them", "date": time.Now().Format(time.DateOnly),
		"columns": []string{
			"kills", "rows", "writes/s", "by the killed one", "by the other", "past both", "not answered", "differing, one", "two", "differing after",
		},
		"rows": [][]any{{k.kills, found["one"].Rows, int64(rate), one, two, direct, w.failed.Load(), found["one"].Differing(), found["two"].Differing(), 0}},
	}, "", " ")
	must2(t, errors.Join(err, os.WriteFile(file, append(record, '\n'), 0o600)))
}
