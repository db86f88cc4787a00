package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/smalldisk"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

// The collections. Searches use fixed during all faults; writes go to written.
const (
	fixed   = "fixed"
	written = "written"
)

// timeout is the timeout of the routes, within which the API answers, whatever the store does.
const timeout = 500 * time.Millisecond

// world is two stores, the sidecars in front of them, and the links between.
type world struct {
	ledger *ledger
	oracle *oracle
	rng    *rand.Rand
	folder string
	disk   string // a small file system; "" if none can be mounted
	clocks bool   // the sidecars' clocks can be set

	qdrant, milvus *servers.Server
	toQdrant       *grpc.ClientConn // bypasses sidecars and links
	toMilvus       *grpc.ClientConn

	one, two, three *sidecar // two is never killed; three uses Milvus
	links           map[string]*relay
	liars           map[string]*liar
	lying           map[string]string // addresses of the liars
}

// newWorld starts all processes. With clocks the program is built so that its clock can be set,
// which takes minutes the first time.
func newWorld(t *testing.T, seed uint64, clocks bool) *world {
	t.Helper()
	w := &world{ledger: newLedger(), rng: rand.New(rand.NewPCG(seed, 1)), folder: t.TempDir(),
		links: map[string]*relay{}, liars: map[string]*liar{}, lying: map[string]string{}}
	w.qdrant = servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	w.milvus = servers.MilvusLiteForTest(t, servers.Options{})
	w.oracle = newOracle(t, w.rng, w.folder)
	w.toQdrant, w.toMilvus = dial(t, w.qdrant.Address), dial(t, w.milvus.Address)
	w.fillQdrant(t)
	w.fillMilvus(t)
	w.disk = smallDisk(t)
	overlay := ""
	if clocks {
		overlay = clockOverlay(t, w.folder)
		w.clocks = overlay != ""
	}
	binary := build(t, w.folder, overlay)
	plugin, err := faulty.Build(t.Context(), w.folder)
	must(t, err)
	for name, to := range map[string]string{"qdrant": w.qdrant.Address, "milvus": w.milvus.Address} {
		w.liars[name], w.lying[name] = startLiar(t, to, w.ledger)
	}
	w.one, w.two, w.three = newSidecar(t, "one", binary, w.folder), newSidecar(t, "two", binary, w.folder), newSidecar(t, "three", binary, w.folder)
	for _, s := range []*sidecar{w.one, w.two} {
		w.links[s.name+" grpc"], w.links[s.name+" rest"] = startRelay(t, w.qdrant.Address, w.ledger), startRelay(t, w.qdrant.REST[len("http://"):], w.ledger)
		w.configureQdrant(t, s, plugin)
		s.run(t, "index", "--config", s.file, "--route", "scan")
		s.run(t, "index", "--config", s.file, "--route", "live")
	}
	w.links["three grpc"] = startRelay(t, w.milvus.Address, w.ledger)
	w.configureMilvus(t, w.three)
	w.three.run(t, "index", "--config", w.three.file, "--route", "live")
	for _, s := range w.sidecars() {
		if w.clocks {
			s.clock = filepath.Join(w.folder, s.name+".clock")
			must(t, s.set(0))
		}
		must(t, s.start())
	}
	for _, s := range w.sidecars() {
		must(t, s.ready(within(t, time.Minute)))
	}
	return w
}

func (w *world) sidecars() []*sidecar { return []*sidecar{w.one, w.two, w.three} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, to string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()), patient)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// build builds the program as it is deployed.
func build(t *testing.T, folder, overlay string) string {
	t.Helper()
	binary := filepath.Join(folder, "likeness")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, "github.com/likenessdb/likeness/cmd/likeness").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// smallDisk mounts a file system of 4 MiB, if that is permitted.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk, err := smalldisk.New(t, 4<<20)
	if err != nil {
		t.Logf("a full disk is not tried: this machine makes no small file system: %v", err)
	}
	return disk
}

func (w *world) configureQdrant(t *testing.T, s *sidecar, plugin string) {
	t.Helper()
	state := filepath.Join(w.folder, s.name)
	if s.name == "one" && w.disk != "" {
		state = filepath.Join(w.disk, "state")
	}
	must(t, os.WriteFile(s.file, fmt.Appendf(nil, `
listen: {grpc: %q, admin: %q}
state_dir: %q
stores: {main: {kind: qdrant, address: %q}}
models: {w: {path: w.safetensors}}
plugins: {even: {path: %q}}
rankers: {even: {plugin: even, timeout: 250ms}}
routes:
  stored: {store: main, collection: fixed, model: w, placement: stored, exact_search: true, depth: %[6]d, timeout: %[7]s, latency_budget: %[7]s}
  ranked: {store: main, collection: fixed, model: w, placement: stored, exact_search: true, depth: %[6]d, timeout: %[7]s, ranker: even, calls: %[6]d}
  scan: {store: main, collection: fixed, model: w, placement: table, table: %[8]s-fixed.table, strategy: scan, timeout: %[7]s}
  live: {store: main, collection: written, model: w, placement: table, table: %[8]s-written.table, table_live: true, exact_search: true, depth: %[6]d, timeout: 5s,
    reconcile: {rows_per_second: 0}}
proxy: {store: main, listen_grpc: %[9]q, listen_rest: %[10]q, rest_url: "http://%[11]s", routes: [stored, live]}
`, s.api, s.admin, state, w.links[s.name+" grpc"].address(), plugin, depth, timeout, s.name, s.grpc, s.rest, w.links[s.name+" rest"].address()), 0o600))
}

func (w *world) configureMilvus(t *testing.T, s *sidecar) {
	t.Helper()
	must(t, os.WriteFile(s.file, fmt.Appendf(nil, `
listen: {grpc: %q, admin: %q}
state_dir: %q
stores: {main: {kind: milvus, address: %q}}
models: {w: {path: w.safetensors}}
routes:
  stored: {store: main, collection: fixed, model: w, placement: stored, depth: %[5]d, timeout: %[6]s, latency_budget: %[6]s}
  live: {store: main, collection: written, model: w, placement: table, table: three-written.table, table_live: true, depth: %[5]d, timeout: 5s,
    reconcile: {rows_per_second: 0}}
proxy: {store: main, listen_grpc: %[7]q}
`, s.api, s.admin, filepath.Join(w.folder, s.name), w.links[s.name+" grpc"].address(), depth, timeout, s.grpc), 0o600))
}

func (w *world) fillQdrant(t *testing.T) {
	t.Helper()
	for _, name := range []string{fixed, written} {
		_, err := qdrant.NewCollectionsClient(w.toQdrant).Create(t.Context(), &qdrant.CreateCollection{CollectionName: name,
			VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: dim, Distance: qdrant.Distance_Dot})})
		must(t, err)
	}
	var points []*qdrant.PointStruct
	for id, v := range w.oracle.rows {
		points = append(points, &qdrant.PointStruct{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectors(v...)})
	}
	_, err := qdrant.NewPointsClient(w.toQdrant).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: fixed, Wait: qdrant.PtrOf(true), Points: points})
	must(t, err)
	first := &qdrant.PointStruct{Id: qdrant.NewIDNum(firstID), Vectors: qdrant.NewVectors(content(firstID, 1)...)}
	_, err = qdrant.NewPointsClient(w.toQdrant).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: written, Wait: qdrant.PtrOf(true), Points: []*qdrant.PointStruct{first}})
	must(t, err)
}

func (w *world) fillMilvus(t *testing.T) {
	t.Helper()
	c, err := client.NewClient(t.Context(), client.Config{Address: w.milvus.Address})
	must(t, err)
	defer c.Close()
	flat, err := entity.NewIndexFlat(entity.IP)
	must(t, err)
	for _, name := range []string{fixed, written} {
		schema := entity.NewSchema().WithName(name).
			WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
			WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(dim))
		must(t, c.CreateCollection(t.Context(), schema, 1))
		must(t, c.CreateIndex(t.Context(), name, "vec", flat, false))
		must(t, c.LoadCollection(t.Context(), name, false))
	}
	direct := milvuspb.NewMilvusServiceClient(w.toMilvus)
	rows := map[uint64][]float32{firstID: content(firstID, 1)}
	must(t, milvusUpsert(t.Context(), direct, written, rows))
	must(t, milvusUpsert(t.Context(), direct, fixed, w.oracle.rows))
}
