package offload_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// serves makes the test's binary the device too.
const serves = "LIKENESS_TEST_DEVICE"

func TestMain(m *testing.M) {
	if os.Getenv(serves) != "" {
		if err := device.Serve(context.Background(), cpu.New(cpu.Options{}), device.Limits{}, plugin.Listen("", plugin.TLS{})); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	dim   = 16
	items = 3000
)

// world is a collection, its table, and a model of inner products.
type world struct {
	model   *model.Model
	store   *embedded.Store
	vectors rerank.Matrix
	table   *table.Table
	live    *table.Live
}

func random(seed uint64, rows, cols int) rerank.Matrix {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

func newWorld(t testing.TB, rows int) *world {
	t.Helper()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "dot", Config: json.RawMessage(fmt.Sprintf(`{"dim": %d}`, dim))})
	must(t, err)
	w := &world{model: m, store: embedded.New(), vectors: random(1, rows, dim)}
	for _, i := range []int{7, 70, 700} { // ties
		copy(w.vectors.Row(i+1), w.vectors.Row(i))
	}
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: w.vectors}}}
	for i := range rows {
		in.Payloads = append(in.Payloads, json.RawMessage(fmt.Sprintf(`{"third": %d}`, i%3)))
	}
	must(t, w.store.Load("items", in))
	w.table, err = table.FromMemory(w.meta(), w.ids(), w.vectors, nil)
	must(t, err)
	return w
}

func (w *world) meta() table.Meta {
	return table.Meta{Model: "dot", ModelVersion: w.model.Version, Collection: "items", Kind: "dot"}
}

func (w *world) ids() []rerank.ID {
	ids := make([]rerank.ID, w.vectors.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	return ids
}

// alive makes the table writable.
func (w *world) alive(t testing.TB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "items.table")
	meta := w.meta()
	meta.Features = dim
	out, err := table.NewWriter(path, meta)
	must(t, err)
	must(t, out.Append(w.ids(), w.vectors))
	must(t, out.Close())
	w.live, err = table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true, CompactShare: -1})
	must(t, err)
	t.Cleanup(func() { must(t, w.live.Close()) })
}

// scorer begins to load the world's table on the device of a connection.
func (w *world) scorer(t testing.TB, conn grpc.ClientConnInterface) *offload.Scorer {
	t.Helper()
	s := offload.New(offload.Options{
		Plugin: "gpu", Route: "r", Conn: conn, Model: w.model,
		Table: func() *table.Table {
			if w.live != nil {
				return w.live.Snapshot()
			}
			return w.table
		},
	})
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// pipe returns a pipeline of the world, with or without a device.
func (w *world) pipe(t testing.TB, d score.Device) *search.Engine {
	t.Helper()
	r := &route.Route{
		Policy: route.Policy{Name: "r", Collection: "items", Placement: route.PlacementTable, Strategy: rerank.Average, Depth: 2000, ExactSearch: true},
		Parts:  route.Parts{Store: w.store, Table: w.table, Live: w.live, Device: d, Model: route.Model{Name: "dot", Version: w.model.Version, Similarity: w.model.Similarity}},
	}
	if w.live != nil {
		r.Table = nil
	}
	p, err := search.New([]*route.Route{r}, search.Options{})
	must(t, err)
	return p
}

// local serves a device on a socket of this process.
func local(t testing.TB, d device.Device) grpc.ClientConnInterface {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	device.Register(server, d, device.Limits{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() {
		must(t, conn.Close())
		server.Stop()
		<-ended
	})
	return conn
}

// eventually waits for background work.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func ready(t testing.TB, s *offload.Scorer) {
	t.Helper()
	eventually(t, "the device is ready", func() bool { return s.Status().State == offload.Ready })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
