package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/client"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

// The two versions. tools/previous.sh builds the version before.
const (
	before = "before"
	now    = "now"
)

// other returns the other version.
func other(version string) string {
	return map[string]string{before: now, now: before}[version]
}

// skew is a world with two versions: the binary and the scorer of each.
type skew struct {
	*world
	likeness, scorer map[string]string
}

// previous returns the folder of the previous version.
func previous(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("LIKENESS_PREVIOUS")
	if folder == "" {
		folder = "../../.cache/previous"
	}
	out, err := exec.CommandContext(t.Context(), "../../tools/previous.sh", folder).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() == 3 {
		t.Skipf("%s", failed.Stderr)
	} else if errors.As(err, &failed) {
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	must(t, err)
	return strings.TrimSpace(string(out))
}

func newSkew(t *testing.T) *skew {
	t.Helper()
	old := previous(t)
	x := &skew{world: &world{ledger: newLedger(), rng: rand.New(rand.NewPCG(1, 1)), folder: t.TempDir()}}
	x.qdrant = servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	x.oracle = newOracle(t, x.rng, x.folder)
	x.toQdrant = dial(t, x.qdrant.Address)
	x.fillQdrant(t)
	x.fillThings(t)
	scorer, err := faulty.Build(t.Context(), x.folder)
	must(t, err)
	x.likeness = map[string]string{before: filepath.Join(old, "likeness"), now: build(t, x.folder, "")}
	x.scorer = map[string]string{before: filepath.Join(old, "faulty-plugin"), now: scorer}
	return x
}

// The collection of a Mixture-of-Logits: two sidecars share its companion.
const (
	things     = "things"
	thingDim   = 384
	thingsRows = 300
)

func thing(rng *rand.Rand, id uint64) *qdrant.PointStruct {
	v := make([]float32, thingDim)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return &qdrant.PointStruct{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectors(v...), Payload: qdrant.NewValueMap(map[string]any{"n": int64(rng.IntN(1000))})}
}

func (x *skew) fillThings(t *testing.T) {
	t.Helper()
	_, err := qdrant.NewCollectionsClient(x.toQdrant).Create(t.Context(), &qdrant.CreateCollection{CollectionName: things,
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: thingDim, Distance: qdrant.Distance_Cosine})})
	must(t, err)
	var points []*qdrant.PointStruct
	for id := range uint64(thingsRows) {
		points = append(points, thing(x.rng, id))
	}
	_, err = qdrant.NewPointsClient(x.toQdrant).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: things, Wait: qdrant.PtrOf(true), Points: points})
	must(t, err)
}

// sidecar starts a sidecar of a version in a folder of its own, with scorer and device of the
// version plugins. Its configuration has only keys that the previous version knows.
func (x *skew) sidecar(t *testing.T, name, version, plugins string) *sidecar {
	t.Helper()
	s := newSidecar(t, name, x.likeness[version], x.folder)
	model, err := filepath.Abs("../../examples/models/banking77-mol")
	must(t, err)
	must(t, os.WriteFile(s.file, fmt.Appendf(nil, `
listen: {grpc: %[1]q, admin: %[2]q}
state_dir: %[3]s-state
stores: {main: {kind: qdrant, address: %[4]q}}
models: {w: {path: w.safetensors}, mol: {path: %[5]q}}
plugins: {even: {path: %[6]q}, device: {path: %[7]q, args: [plugin, device]}}
rankers: {even: {plugin: even, timeout: 5s}}
routes:
  stored: {store: main, collection: fixed, model: w, placement: stored, exact_search: true, depth: %[8]d, timeout: 5s, latency_budget: 5s}
  ranked: {store: main, collection: fixed, model: w, placement: stored, exact_search: true, depth: %[8]d, timeout: 5s, ranker: even, calls: %[8]d}
  scan: {store: main, collection: fixed, model: w, strategy: scan, timeout: 5s, active: one,
    versions: {one: {table: %[3]s-one.table}, two: {table: %[3]s-two.table}}}
  device: {store: main, collection: fixed, model: w, placement: table, table: %[3]s-one.table, strategy: scan, device: device, timeout: 5s}
  live: {store: main, collection: written, model: w, placement: table, table: %[3]s-written.table, table_live: true, exact_search: true, depth: %[8]d, timeout: 5s,
    reconcile: {rows_per_second: 0}}
  things: {store: main, collection: things, model: mol, placement: table, table: %[3]s-things.table, table_live: true, companion: things_mol, strategy: average,
    reconcile: {rows_per_second: 0}}
proxy: {store: main, listen_grpc: %[9]q, listen_rest: %[10]q, rest_url: %[11]q, routes: [stored, live, things]}
`, s.api, s.admin, filepath.Join(x.folder, name), x.qdrant.Address, model, x.scorer[plugins], x.likeness[plugins], depth, s.grpc, s.rest, x.qdrant.REST), 0o600))
	return s
}

// index builds the tables with a version, and the companion if it does not exist.
func (x *skew) index(t *testing.T, s *sidecar, companion bool) {
	t.Helper()
	for _, of := range [][]string{{"scan", "--version", "one"}, {"scan", "--version", "two"}, {"live"}} {
		s.run(t, append([]string{"index", "--config", s.file, "--route"}, of...)...)
	}
	only := []string{"--only", "table"}
	if companion {
		only = nil
	}
	s.run(t, append([]string{"index", "--config", s.file, "--route", things, "--strategies", "average"}, only...)...)
}

// as switches a sidecar to a version, and starts it.
func (x *skew) as(t *testing.T, s *sidecar, version string) {
	t.Helper()
	s.binary = x.likeness[version]
	must(t, s.start())
	must(t, s.ready(within(t, time.Minute)))
}

// end stops a sidecar cleanly, and waits.
func (s *sidecar) end(t *testing.T) {
	t.Helper()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Errorf("sidecar %s does not end", s.name)
	}
	s.kill()
}

// right searches every route of a sidecar until the answer is right, because plugins take a moment
// to start.
func (x *skew) right(t *testing.T, s *sidecar) {
	t.Helper()
	x.allRight(t, []*lane{
		{s.name + " api stored", s, "qdrant", false, api(s, "stored"), x.oracle.check},
		{s.name + " api ranked", s, "qdrant", false, api(s, "ranked"), x.oracle.checkRanked},
		{s.name + " api scan", s, "", false, api(s, "scan"), x.oracle.check},
		{s.name + " api device", s, "", false, api(s, "device"), x.oracle.check},
		{s.name + " qdrant grpc", s, "qdrant", false, qdrantGRPC(s), x.oracle.check},
		{s.name + " qdrant rest", s, "qdrant", false, qdrantREST(s), x.oracle.check}})
	ctx := within(t, time.Minute)
	for {
		m, err := s.metrics(ctx)
		if used := m[`likeness_device_answers_total{outcome="used",plugin="device",route="device",version=""}`]; err == nil && used > 0 {
			return
		}
		_, _ = api(s, "device")(ctx, content(1, 1))
		if rest(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Errorf("sidecar %s never used its device", s.name)
			return
		}
	}
}

// output runs a command of a version until it ends, successfully or not.
func (x *skew) output(t *testing.T, version string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(within(t, 2*time.Minute), x.likeness[version], args...)
	cmd.Env, cmd.Dir = clean(), x.folder
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// TestVersionSkew runs the previous version and this one side by side on a real Qdrant: plugins,
// clients, files and configurations of one with the other, an upgrade and the way back under load,
// and writes that both follow.
func TestVersionSkew(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it builds the version before this one; set LIKENESS_SOAK=1")
	}
	x := newSkew(t)
	// Each version serves the other's index, with the other's scorer and device.
	one, two := x.sidecar(t, "one", before, now), x.sidecar(t, "two", now, before)
	x.index(t, one, true)
	x.index(t, two, false)
	x.as(t, one, before)
	x.as(t, two, now)
	checks := 0
	for s, version := range map[*sidecar]string{one: before, two: now} {
		x.right(t, s)
		checks += x.clients(t, s, other(version))
		checks += x.plugins(t, version)
	}
	writes := x.bothWrite(one, two)
	x.sideBySide(t, writes)
	l := x.rolling(t, one, two)
	// Each now reads the other's files: tables with their logs, journals, choices of versions.
	x.right(t, one)
	x.right(t, two)
	x.sideBySide(t, writes)
	checks += x.refusals(t, one)
	t.Logf("reliability row=20 figure=the version before beside this one: two sidecars upgraded, taken back and upgraded under %d searches, half of them by the proxy: 0 failed, %d refused by the admission; %d acknowledged writes through sidecars of both, none lost, tables and companion agree with Qdrant; %d calls and refusals of one by the other as they should be",
		l.calls.Load(), l.refused.Load(), writes.sent(), checks)
}

// clients calls a sidecar with the commands of the other version, and with this version's Go
// client.
func (x *skew) clients(t *testing.T, s *sidecar, by string) (made int) {
	t.Helper()
	vector := strings.ReplaceAll(fmt.Sprint(content(7, 7)), " ", ",")
	for _, args := range [][]string{
		{"health"}, {"health", "--route", "stored"},
		{"query", "--route", "stored", "--vector", vector, "--output", "json"},
		{"query", "--route", "scan", "--vector", vector, "--explain", "--payload"},
		{"model", "list", "--route", "scan"},
		{"model", "activate", "--route", "scan", "two"},
		{"model", "rollback", "--route", "scan"},
		{"model", "activate", "--route", "scan", "two"},
		{"reconcile", "--route", "live"},
		{"reconcile", "--route", things, "--output", "json"},
	} {
		at := slices.Concat(args, []string{"--address", s.api})
		out, err := x.output(t, by, at...)
		own, ownErr := x.output(t, other(by), at...)
		if err != nil || ownErr != nil {
			t.Errorf("sidecar %s: %v of the version %s: %v, %s; of its own: %v, %s", s.name, args, by, err, out, ownErr, own)
		}
		made++
	}
	c, err := client.Dial(s.api, client.Options{})
	must(t, err)
	defer c.Close()
	r, err := c.Search(within(t, 10*time.Second), client.Search{Route: "stored", Query: client.Query{Vector: content(7, 7)}, K: wanted})
	if err != nil || len(r.Hits) != wanted {
		t.Errorf("sidecar %s: the Go client: %v, %v", s.name, r, err)
	}
	return made + 1
}

// plugins runs a version's conformance kit against the other's scorer and device.
func (x *skew) plugins(t *testing.T, version string) (made int) {
	t.Helper()
	for _, args := range [][]string{{x.scorer[other(version)]}, {x.likeness[other(version)], "plugin", "device"}} {
		if out, err := x.output(t, version, append([]string{"plugin", "check"}, args...)...); err != nil {
			t.Errorf("plugin check of the version %s on %v: %v\n%s", version, args, err, out)
		}
		made++
	}
	return made + 1
}

// writes changes the rows of the live table and of the companion through two sidecars.
type writes struct {
	sides  []*sidecar
	all    []*writer
	things atomic.Int64 // acknowledged writes
}

func (x *skew) bothWrite(sides ...*sidecar) *writes {
	w := &writes{sides: sides}
	for _, s := range sides {
		for _, upsert := range []func(context.Context, uint64, []float32) error{upsertGRPC(s), upsertREST(s)} {
			n := uint64(len(w.all) + 1)
			w.all = append(w.all, &writer{upsert: upsert, rng: rand.New(rand.NewPCG(n, 3)), first: n << 20, acked: map[uint64]uint64{}, perhaps: map[uint64]uint64{}})
		}
	}
	return w
}

func (w *writes) sent() int {
	n := int(w.things.Load())
	for _, one := range w.all {
		n += one.sent - len(one.perhaps)
	}
	return n
}

// ofThings writes rows of the companion's collection through a sidecar.
func (w *writes) ofThings(ctx context.Context, t *testing.T, s *sidecar, seed uint64) {
	rng, c := rand.New(rand.NewPCG(seed, 5)), qdrant.NewPointsClient(s.proxy)
	for n := 0; n < 150 && ctx.Err() == nil; n++ {
		id := uint64(rng.IntN(thingsRows * 5 / 4))
		var err error
		if n%5 == 0 {
			_, err = c.Delete(ctx, &qdrant.DeletePoints{CollectionName: things, Wait: qdrant.PtrOf(true), Points: qdrant.NewPointsSelector(qdrant.NewIDNum(id))})
		} else {
			_, err = c.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: things, Wait: qdrant.PtrOf(true), Points: []*qdrant.PointStruct{thing(rng, id)}})
		}
		if err != nil {
			t.Errorf("sidecar %s: a write: %v", s.name, err)
			return
		}
		w.things.Add(1)
	}
}

// sideBySide writes through both sidecars concurrently, and compares their derived data with the
// collections.
func (x *skew) sideBySide(t *testing.T, w *writes) {
	t.Helper()
	ctx := within(t, time.Minute)
	stop := writing(ctx, w.all, 10*time.Millisecond)
	var done sync.WaitGroup
	for n, s := range w.sides {
		done.Go(func() { w.ofThings(ctx, t, s, uint64(w.sent()+n)) })
	}
	done.Wait()
	stop()
	rows := x.qdrantRows(t)
	if _, unsure := acknowledged(t, "Qdrant", rows, w.all, false); unsure > 0 {
		t.Errorf("%d writes failed", unsure)
	}
	for _, s := range w.sides {
		x.derived(t, s, rows)
	}
	for n := range 4 { // the second time neither finds a difference
		s := w.sides[n%2]
		r, err := likenessv1.NewAdminServiceClient(s.conn).Reconcile(within(t, time.Minute), &likenessv1.ReconcileRequest{Route: things})
		if d := r.GetDrift(); err != nil || n >= 2 && d.GetMissing()+d.GetChanged()+d.GetSurplus()+d.GetUnfit() > 0 {
			t.Errorf("sidecar %s: things differ after a reconcile of each: %v, %v", s.name, d, err)
		}
	}
}

// load contains the results of searches while sidecars changed their version.
type load struct {
	calls, failed, refused atomic.Int64
	first                  atomic.Value // the first failure
}

// rolling starts both sidecars with the previous version, then upgrades them one after the other,
// takes them back and upgrades them again, under searches of clients that balance their load.
func (x *skew) rolling(t *testing.T, sides ...*sidecar) *load {
	t.Helper()
	for _, s := range sides {
		if s.binary != x.likeness[before] {
			s.end(t)
			x.as(t, s, before)
		}
	}
	l := &load{}
	c, err := client.Dial(sides[0].api+","+sides[1].api, client.Options{})
	must(t, err)
	defer c.Close()
	proxies := qdrant.NewPointsClient(balanced(t, sides[0].grpc, sides[1].grpc))
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		bench.Load{Rate: 100, Duration: time.Hour, MaxOpen: 512, Seed: 1}.Run(ctx, func(_ context.Context, n int) bench.Outcome {
			q := content(uint64(n), 2)
			call, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			var err error
			if n%2 == 0 {
				_, err = c.Search(call, client.Search{Route: []string{"stored", "scan"}[n/2%2], Query: client.Query{Vector: q}, K: wanted})
			} else {
				_, err = proxies.Query(call, &qdrant.QueryPoints{CollectionName: fixed, Query: qdrant.NewQueryDense(q), Limit: qdrant.PtrOf(uint64(wanted))})
			}
			return l.count(err)
		})
	})
	for _, version := range []string{now, before, now} {
		for _, s := range sides {
			s.end(t)
			x.as(t, s, version)
			for until, ctx := l.calls.Load()+100, within(t, time.Minute); l.calls.Load() < until && ctx.Err() == nil; {
				rest(ctx, 10*time.Millisecond)
			}
		}
	}
	stop()
	done.Wait()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d searches failed while versions changed: %v", n, l.calls.Load(), l.first.Load())
	}
	return l
}

func (l *load) count(err error) bench.Outcome {
	l.calls.Add(1)
	switch {
	case errors.Is(err, client.ErrOverloaded) || status.Code(err) == codes.ResourceExhausted: // the machine is overloaded
		l.refused.Add(1)
		return bench.Refused
	case err != nil:
		l.failed.Add(1)
		l.first.CompareAndSwap(nil, err.Error())
		return bench.Failed
	}
	return bench.Good
}

// balanced returns a connection that uses all addresses in turn.
func balanced(t *testing.T, addresses ...string) *grpc.ClientConn {
	t.Helper()
	name, state := manual.NewBuilderWithScheme("skew"), resolver.State{}
	for _, at := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: at})
	}
	name.InitialState(state)
	conn, err := grpc.NewClient("skew:///", grpc.WithResolvers(name), grpc.WithTransportCredentials(insecure.NewCredentials()), patient,
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// refusals: a version refuses data that it cannot read, and the error names both versions, or the
// key. Each case is a file of the other version in a future format.
func (x *skew) refusals(t *testing.T, s *sidecar) (made int) {
	t.Helper()
	config, err := os.ReadFile(s.file)
	must(t, err)
	table, err := os.ReadFile(filepath.Join(x.folder, s.name+"-one.table"))
	must(t, err)
	table[8] = 3 // the format's version
	must(t, os.WriteFile(filepath.Join(x.folder, "next.table"), table, 0o600))
	model, err := os.ReadFile(filepath.Join(x.folder, "w.safetensors"))
	must(t, err)
	next := bytes.Replace(model, []byte(`\"format\":1`), []byte(`\"format\":2`), 1)
	if bytes.Equal(next, model) {
		t.Error("the model's header does not say its format")
	}
	must(t, os.WriteFile(filepath.Join(x.folder, "next.safetensors"), next, 0o600))
	for _, tc := range []struct{ from, to, by, want string }{
		{s.name + "-one.table", "next.table", before, "format version is 3, want 1 to 2"},
		{s.name + "-one.table", "next.table", now, "format version is 3, want 1 to 2"},
		{"w.safetensors", "next.safetensors", before, "format is 2, want 1"},
		{"w.safetensors", "next.safetensors", now, "format is 2, want 1"},
		{"listen: {", "listen: {rest: \"127.0.0.1:0\", ", before, "rest"}, // a key that the previous version does not have
	} {
		file := filepath.Join(x.folder, "next.yaml")
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(config), tc.from, tc.to)), 0o600))
		if out, err := x.output(t, tc.by, "config", "validate", "--config", file); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("the version %s reads %s: %v, %s; want %q", tc.by, tc.to, err, out, tc.want)
		}
		made++
	}
	if out, err := x.output(t, now, "config", "validate", "--connect", "--config", s.file); err != nil { // beside the running sidecar, as before an upgrade
		t.Errorf("config validate beside a sidecar: %v\n%s", err, out)
	}
	s.end(t)
	for version := range x.likeness { // both versions read the same configuration
		if out, err := x.output(t, version, "config", "validate", "--connect", "--config", s.file); err != nil {
			t.Errorf("config validate of the version %s: %v\n%s", version, err, out)
		}
		made++
	}
	return made + 1
}
