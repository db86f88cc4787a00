package serve_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/learn/index"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// TestSharedJournal writes and searches through sidecars that share a journal, each in a
// process of its own. What was answered to a write holds for the next search through any of
// them, if that is exact: the row is there, or gone. One is killed while writes pass it; one
// joins that was not there before. When it is quiet all are exact.
func TestSharedJournal(t *testing.T) {
	w := newSharing(t)
	one, two := w.start(t, "one"), w.start(t, "two")
	w.settle(t, one, two)
	exact := w.writeAndSearch(t, 150, one, two)

	stop := w.writeOn(t, one) // while it is killed
	must2(t, one.cmd.Process.Kill())
	_ = one.cmd.Wait()
	perhaps := stop()
	w.writeAndSearch(t, 30, two)
	w.quietly(t, "one of two was killed", likenessv1.CertificateStatus_CERTIFICATE_STATUS_SNAPSHOT, two)
	one = w.start(t, "one")
	w.settle(t, one, two)
	for id, v := range perhaps { // nobody was told what became of the last write
		found, err := qdrant.NewPointsClient(w.db).Get(t.Context(), &qdrant.GetPoints{CollectionName: things, Ids: []*qdrant.PointId{qdrant.NewIDNum(id)}})
		must2(t, err)
		for _, s := range []*sharingSidecar{one, two} {
			w.check(t, s, id, v, len(found.GetResult()) > 0)
		}
	}
	exact += w.writeAndSearch(t, 50, one, two)

	three := w.start(t, "three")
	w.settle(t, one, two, three)
	exact += w.writeAndSearch(t, 50, one, two, three)
	t.Logf("%d exact answers", exact)
	if exact == 0 {
		t.Error("no answer was exact between writes")
	}
	for _, s := range []*sharingSidecar{one, two, three} {
		s.end(t)
	}
}

// sharing is a database, and the files of sidecars before it.
type sharing struct {
	dir  string
	db   *grpc.ClientConn
	rng  *rand.Rand
	next uint64 // the id of the next row
}

type sharingSidecar struct {
	*sidecarProcess

	api, proxy *grpc.ClientConn
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	w := &sharing{dir: t.TempDir(), db: connect(t, db.Address), rng: rand.New(rand.NewPCG(1, 9))}
	same := tensor.Tensor{Shape: []int{4, 4}, Data: []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}}
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": same},
		Config: []byte(`{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":false,"form":"full"}`)})
	must2(t, err)
	must2(t, model.Write(filepath.Join(w.dir, "w.safetensors"), m))
	_, err = qdrant.NewCollectionsClient(w.db).Create(t.Context(), &qdrant.CreateCollection{CollectionName: things,
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 4, Distance: qdrant.Distance_Dot})})
	must2(t, err)
	for range 20 {
		must2(t, w.put(t.Context(), w.db, w.newID(), w.vector()))
	}
	for _, name := range []string{"one", "two", "three"} {
		w.configure(t, name, db.Address)
	}
	return w
}

// configure writes the configuration of a sidecar, and builds its table.
func (w *sharing) configure(t *testing.T, name, address string) {
	t.Helper()
	must2(t, os.WriteFile(filepath.Join(w.dir, name+".yaml"), []byte(`listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: `+name+`
replicas: 2
journal: {shared: journals, replica: `+name+`}
stores: {main: {kind: qdrant, address: "`+address+`"}}
models: {w: {path: w.safetensors}}
routes:
  things: {store: main, collection: things, model: w, placement: table, strategy: scan, table: `+name+`.table, table_live: true, writes: proxy, reconcile: {interval: 1m, rows_per_second: 0}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`), 0o600))
	c, err := config.Load(config.Source{File: filepath.Join(w.dir, name+".yaml")})
	must2(t, err)
	parts, err := wiring.Open(t.Context(), c, wiring.Part{Tables: wiring.NoTables})
	must2(t, err)
	defer parts.Close()
	_, err = index.BuildTable(t.Context(), index.TableJob{
		Source: index.Source{Store: parts.Stores["main"], Collection: things}, Model: parts.Routes[0].Model, Path: c.Routes[things].Table,
	})
	must2(t, err)
}

func (w *sharing) start(t *testing.T, name string) *sharingSidecar {
	t.Helper()
	p := startProcess(t, filepath.Join(w.dir, name+".yaml"))
	return &sharingSidecar{p, connect(t, p.at.GRPC), connect(t, p.at.Proxy.GRPC)}
}

func (w *sharing) newID() uint64 { w.next++; return w.next }

// vector returns a vector of norm 1, so that a row is the best answer to its own vector.
func (w *sharing) vector() []float32 {
	v, norm := make([]float32, 4), 0.0
	for i := range v {
		x := w.rng.NormFloat64()
		v[i], norm = float32(x), norm+x*x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(norm))
	}
	return v
}

func (w *sharing) put(ctx context.Context, by *grpc.ClientConn, id uint64, v []float32) error {
	_, err := qdrant.NewPointsClient(by).Upsert(ctx, &qdrant.UpsertPoints{CollectionName: things, Wait: qdrant.PtrOf(true),
		Points: []*qdrant.PointStruct{{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectors(v...)}}})
	return err
}

func (w *sharing) remove(t *testing.T, by *grpc.ClientConn, id uint64) {
	t.Helper()
	_, err := qdrant.NewPointsClient(by).Delete(t.Context(), &qdrant.DeletePoints{CollectionName: things, Wait: qdrant.PtrOf(true), Points: qdrant.NewPointsSelector(qdrant.NewIDNum(id))})
	must2(t, err)
}

// search asks for the best row of a vector.
func (w *sharing) search(t *testing.T, s *sharingSidecar, v []float32) (id uint64, status likenessv1.CertificateStatus) {
	t.Helper()
	a, err := likenessv1.NewSearchServiceClient(s.api).Search(t.Context(), &likenessv1.SearchRequest{Route: things, K: 1, Query: &likenessv1.Query{Vector: v}}, grpc.WaitForReady(true))
	must2(t, err)
	status = a.GetCertificate().GetStatus()
	if len(a.GetHits()) == 0 { // a row that was removed since the table last followed is left out
		if status == likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT {
			t.Error("exact, and the answer lacks all rows")
		}
		return 0, status
	}
	return a.GetHits()[0].GetId().GetNumber(), status
}

// check searches for a row by its vector. It reports whether the answer is exact, and fails the
// test if it is exact and wrong.
func (w *sharing) check(t *testing.T, s *sharingSidecar, id uint64, v []float32, isThere bool) bool {
	t.Helper()
	got, status := w.search(t, s, v)
	if status != likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT {
		return false
	}
	if (got == id) != isThere {
		t.Errorf("exact, and row %d is there: %t, want %t", id, got == id, isThere)
	}
	return true
}

// writeAndSearch adds and removes rows through the sidecars in turns, and searches for each
// through all of them at once after the write. It returns how many answers were exact.
func (w *sharing) writeAndSearch(t *testing.T, writes int, all ...*sharingSidecar) (exact int) {
	t.Helper()
	for n := range writes {
		id, v := w.newID(), w.vector()
		must2(t, w.put(t.Context(), all[n%len(all)].proxy, id, v))
		isThere := true
		if n%3 == 0 {
			w.remove(t, all[(n+1)%len(all)].proxy, id)
			isThere = false
		}
		for again := range 10 {
			for _, s := range all {
				if w.check(t, s, id, v, isThere) {
					exact++
				}
			}
			if n%10 > 0 && again > 0 { // the next write comes at once
				break
			}
		}
	}
	return exact
}

// writeOn writes through one sidecar until it fails. stop waits for that, and returns the row
// whose write was not answered.
func (w *sharing) writeOn(t *testing.T, s *sharingSidecar) (stop func() map[uint64][]float32) {
	t.Helper()
	began, failed := make(chan struct{}), make(chan map[uint64][]float32, 1)
	go func() {
		for n := 0; ; n++ {
			id, v := w.newID(), w.vector()
			if err := w.put(t.Context(), s.proxy, id, v); err != nil {
				failed <- map[uint64][]float32{id: v}
				return
			}
			if n == 20 {
				close(began)
			}
		}
	}()
	<-began
	return func() map[uint64][]float32 { return <-failed }
}

// settle waits until all sidecars are exact.
func (w *sharing) settle(t *testing.T, all ...*sharingSidecar) {
	t.Helper()
	w.quietly(t, "nobody writes", likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT, all...)
}

// quietly waits until the answers of all sidecars have a status, while nobody writes.
func (w *sharing) quietly(t *testing.T, when string, want likenessv1.CertificateStatus, all ...*sharingSidecar) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, s := range all {
		for {
			_, status := w.search(t, s, w.vector())
			if status == want {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s, and the answers stay %v", when, status)
			}
		}
	}
}
