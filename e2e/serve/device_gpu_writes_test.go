package serve_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/learn/index"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/route"
)

// gpuRows is a collection of a database, and what is in it.
type gpuRows struct {
	model   *model.Model
	vectors map[uint64][]float32
}

// put writes rows through a connection to the database or to the proxy before it.
func (r *gpuRows) put(t *testing.T, conn *grpc.ClientConn, first, count uint64) {
	t.Helper()
	var points []*qdrant.PointStruct
	for id := first; id < first+count; id++ {
		v := make([]float32, 16)
		for i := range v {
			v[i] = float32((id*16+uint64(i))*7919%1009)/504 - 1
		}
		r.vectors[id] = v
		points = append(points, &qdrant.PointStruct{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectors(v...)})
	}
	_, err := qdrant.NewPointsClient(conn).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: "many", Wait: qdrant.PtrOf(true), Points: points})
	must2(t, err)
}

// drop deletes a row.
func (r *gpuRows) drop(t *testing.T, conn *grpc.ClientConn, id uint64) {
	t.Helper()
	delete(r.vectors, id)
	_, err := qdrant.NewPointsClient(conn).Delete(t.Context(), &qdrant.DeletePoints{
		CollectionName: "many", Wait: qdrant.PtrOf(true), Points: qdrant.NewPointsSelector(qdrant.NewIDNum(id)),
	})
	must2(t, err)
}

// best are the ids and scores of the first ten, of all rows that there are.
func (r *gpuRows) best(t *testing.T, query []float32) (ids []uint64, scores map[uint64]float32) {
	t.Helper()
	ids = slices.Sorted(maps.Keys(r.vectors))
	features, out := rerank.NewMatrix(len(ids), r.model.Spec().Features), make([]float32, len(ids))
	for i, id := range ids {
		must2(t, r.model.EncodeItems(features.Slice(i, i+1), rerank.Matrix{Rows: 1, Cols: 16, Data: r.vectors[id]}))
	}
	enc, err := r.model.Encode(rerank.Query{Vector: query})
	must2(t, err)
	must2(t, enc.Score(out, rerank.Items{Features: features}))
	scores = map[uint64]float32{}
	for i, id := range ids {
		scores[id] = out[i]
	}
	slices.SortFunc(ids, func(a, b uint64) int {
		if scores[a] != scores[b] {
			return map[bool]int{true: -1, false: 1}[scores[a] > scores[b]]
		}
		return int(a) - int(b)
	})
	return ids[:10], scores
}

// TestGPUWrites writes a table while it is searched. A search after a write sees the new rows,
// whatever the device has. The device then gets the writes and is used again.
func TestGPUWrites(t *testing.T) {
	program := os.Getenv(withGPU)
	if program == "" {
		t.Skipf("%s names no likeness-gpu", withGPU)
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	direct, dir := connect(t, db.Address), t.TempDir()
	_, err := qdrant.NewCollectionsClient(direct).Create(t.Context(), &qdrant.CreateCollection{CollectionName: "many",
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 16, Distance: qdrant.Distance_Dot})})
	must2(t, err)
	m, err := parity.MoL(parity.Shape{PairsQuery: 4, PairsItem: 4, Dim: 64, Hidden: 128}, 5)
	must2(t, err)
	must2(t, model.Write(filepath.Join(dir, "mol.safetensors"), m))
	rows := &gpuRows{model: m, vectors: map[uint64][]float32{}}
	rows.put(t, direct, 0, 300)
	store, err := adapter.Open(adapter.Options{Address: db.Address})
	must2(t, err)
	_, err = index.BuildTable(t.Context(), index.TableJob{Source: index.Source{Store: store, Collection: "many"},
		Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}, Path: filepath.Join(dir, "many.table")})
	must2(t, err)
	store.Close()
	w := &gpuWorld{logged: &syncBuffer{}}
	var at string
	w.spans, at = collect(t)
	w.sidecar = startIn(t, fmt.Sprintf(`
trace: {endpoint: %q, insecure: true}
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: %q
stores: {main: {kind: qdrant, address: %q}}
models: {mol: {path: %q}}
plugins: {gpu: {path: %q, args: [serve], env: [LD_LIBRARY_PATH], start_timeout: 1m}}
routes: {many: {store: main, collection: many, model: mol, placement: table, table: %q, table_live: true, strategy: scan, device: gpu}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, at, filepath.Join(dir, "state"), db.Address, filepath.Join(dir, "mol.safetensors"), program, filepath.Join(dir, "many.table")),
		drivers("fake"), true, slog.New(slog.NewTextHandler(w.logged, nil)))
	w.search = func(t *testing.T) string {
		t.Helper()
		ctx, trace, vector := w.ask(t)
		want, scores := rows.best(t, vector)
		r, err := likenessv1.NewSearchServiceClient(w.conn).Search(ctx, &likenessv1.SearchRequest{Route: "many", Query: &likenessv1.Query{Vector: vector}, K: 10})
		must2(t, err)
		var got []uint64
		for _, h := range r.GetHits() {
			got = append(got, h.GetId().GetNumber())
			if d := h.GetScore() - scores[got[len(got)-1]]; !(d < 1e-4 && d > -1e-4) {
				t.Errorf("row %v scores %v, want %v", h.GetId(), h.GetScore(), scores[got[len(got)-1]])
			}
		}
		// While the table follows the database it says that it is behind, and proves nothing.
		c := r.GetCertificate()
		if behind := c.GetUncalibrated() == "behind"; !behind && (c.GetProof() == likenessv1.Proof_PROOF_UNSPECIFIED || !slices.Equal(got, want)) {
			t.Errorf("hits %v, want %v; %v", got, want, c)
		}
		return trace
	}
	w.until(t, answers("used"), 1)
	const deviceRows = `likeness_device_rows{plugin="gpu",route="many",version=""}`
	through := connect(t, w.at.Proxy.GRPC)
	for i := range uint64(4) {
		rows.put(t, through, 300+20*i, 20)
		rows.drop(t, through, 7*i)
		w.until(t, deviceRows, float64(320+20*i))
		w.until(t, answers("used"), w.metric(t, answers("used"))+1)
	}
	if stale, patches := w.metric(t, answers("stale")), w.metric(t, `likeness_device_patches_total{plugin="gpu",route="many",version=""}`); stale < 1 || patches < 4 {
		t.Errorf("%v searches met a device that was behind, %v patches; want 1 and 4 at least", stale, patches)
	}
	w.end(t, nil)
}
