package calibrate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	qdrantclient "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/route"
)

func TestMain(m *testing.M) { os.Exit(servers.Isolate(m)) }

const data, questions = "../../examples/data/banking77/", "questions"

// asked selects the data: every nth item, the test questions for the calibration and those held
// out, and the request to the route.
type asked struct {
	every, queries, heldOut int
	depths                  []int
	heads                   []string
}

// TestQuestions: over real HNSW indices, a promise of recall@10 ≥ .9 for 95 % of the queries is
// made, and holds on held-out queries. Over Qdrant's index, routes without a table promise a recall by
// themselves, which later questions keep. LIKENESS_SOAK=1 takes all of the data; its figures are in
// docs/benchmarks/quality.md.
func TestQuestions(t *testing.T) {
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
	isSoak := os.Getenv("LIKENESS_SOAK") != ""
	n := asked{4, 200, 200, []int{500, 200, 50}, []string{"residual"}}
	if isSoak {
		n = asked{1, 1540, 1540, []int{2000, 1500, 1000, 700, 500, 300, 200, 100, 50, 20, 10}, []string{"residual", "linear"}}
	}
	m := questionsModel(t, "mol")
	items := vectors(t, "train_vectors.npy", n.every)
	for name, open := range map[string]func(*testing.T, rerank.Matrix) adapters.Store{"qdrant": qdrantHNSW, "milvus": milvusHNSW} {
		t.Run(name, func(t *testing.T) {
			if !isSoak { // its times are published
				t.Parallel() // a server takes long to start
			}
			store := open(t, items)
			r := route.Route{
				Policy: route.Policy{Name: questions, Collection: questions, Vector: "vector", StoreName: name, UnitVectors: true, Strategy: rerank.Distilled},
				Parts:  route.Parts{Store: store, Model: m, Table: tableOf(t, m, items)},
			}
			for _, head := range n.heads {
				r.Head = head
				promiseKept(t, &r, n)
			}
			if name == "qdrant" {
				t.Run("by itself", func(t *testing.T) { calibratesItself(t, store) })
				t.Run("by a scan", func(t *testing.T) { calibratesItselfByAScan(t, r) })
			}
		})
	}
}

// questionsModel opens a shipped model of the questions, such as mol.
func questionsModel(t *testing.T, kind string) route.Model {
	t.Helper()
	m, err := model.Open("../../examples/models/banking77-questions-" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return route.Model{Name: "questions", Version: m.Version, Similarity: m.Similarity}
}

// promiseKept calibrates a route, and checks the promise on the held-out queries.
func promiseKept(t *testing.T, r *route.Route, n asked) {
	t.Helper()
	all := vectors(t, "test_vectors.npy", 1)
	order := rand.New(rand.NewPCG(1, 2)).Perm(all.Rows)
	in := calibrate.Input{
		Route: r, Promise: calibrate.Promise{K: 10, Recall: .9, Share: .95, Alpha: .05}, Parallel: 2, Source: "test questions",
		Depths: n.depths,
	}
	for i, row := range order[:n.queries+n.heldOut] {
		q := rerank.Query{Vector: all.Row(row)}
		if i < n.queries {
			in.Queries = append(in.Queries, q)
		} else {
			in.HeldOut = append(in.HeldOut, q)
		}
	}
	report, err := calibrate.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(tableText(report))
	if report.Calibration == nil {
		t.Fatal("no depth shows the promise")
	}
	// A promise that only just holds falls below this in one of a thousand draws.
	if h := report.HeldOut; float64(h.Kept) < .95*float64(h.Queries)-3.1*math.Sqrt(.95*.05*float64(h.Queries)) {
		t.Errorf("%d of %d held-out queries reached the recall", h.Kept, h.Queries)
	}
	if first := report.Rules[0]; first.Passed {
		t.Errorf("even depth %d shows the promise: the test is of nothing", first.Depth)
	}
}

// tableText returns a report as rows of a Markdown table.
func tableText(r *calibrate.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, head %s, %d rows, settings %v\n", r.Rules[0].Strategy, r.Rules[0].Head, r.Rows, r.Settings)
	row := func(o calibrate.Outcome, mark string) {
		fmt.Fprintf(&b, "| %d | %.0f | %d of %d | %.4f | %.4f | %.4f | %.1f | %.1f | %s |\n",
			o.Depth, o.Candidates, o.Kept, o.Queries, o.LeastShare, o.MeanRecall, o.LeastMeanRecall, o.P50, o.P99, mark)
	}
	for _, o := range r.Rules {
		row(o, r.Mark(o))
	}
	if r.HeldOut != nil {
		row(*r.HeldOut, "held out")
	}
	return b.String()
}

// vectors returns every nth row of a file of the shipped data.
func vectors(t *testing.T, file string, every int) rerank.Matrix {
	t.Helper()
	m, err := npy.Open(data + file)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := rerank.NewMatrix((m.Rows+every-1)/every, m.Cols)
	for r := range out.Rows {
		copy(out.Row(r), m.Row(r*every))
	}
	return out
}

func tableOf(t *testing.T, m route.Model, items rerank.Matrix) *table.Table {
	t.Helper()
	features := rerank.NewMatrix(items.Rows, m.Similarity.Spec().Features)
	if err := m.Similarity.EncodeItems(features, items); err != nil {
		t.Fatal(err)
	}
	tab, err := table.FromMemory(table.Meta{Model: "questions", ModelVersion: m.Version, Collection: questions}, ids(items.Rows), features, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func ids(n int) []rerank.ID {
	out := make([]rerank.ID, n)
	for i := range out {
		out[i] = rerank.UintID(uint64(i))
	}
	return out
}

// fill writes the items into a new collection. Before that it calls prepare, if it is not nil.
func fill(t *testing.T, store adapters.Store, metric adapters.Metric, items rerank.Matrix, prepare func()) {
	t.Helper()
	t.Cleanup(func() { _ = store.Close() })
	schema := adapters.Schema{Collection: questions, Fields: []adapters.VectorField{{Name: "vector", Dim: items.Cols, Metric: metric}}}
	w := store.(adapters.Writer)
	if err := w.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare()
	}
	const batch = 1000
	for from := 0; from < items.Rows; from += batch {
		to := min(from+batch, items.Rows)
		if err := w.Write(t.Context(), questions, schema, adapters.Rows{IDs: ids(items.Rows)[from:to], Vectors: []rerank.Matrix{items.Slice(from, to)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually polls a server until its background work is done.
func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	_, err := backoff.Retry(t.Context(), func() (struct{}, error) {
		ok, err := done(t.Context())
		if err == nil && !ok {
			err = errors.New("not yet")
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(100*time.Millisecond)), backoff.WithMaxElapsedTime(3*time.Minute))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// qdrantHNSW returns a Qdrant whose collection is searched by HNSW, which it would only do from 10 MB a segment
// on.
func qdrantHNSW(t *testing.T, items rerank.Matrix) adapters.Store {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(server.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	collections, least := qdrantclient.NewCollectionsClient(conn), qdrantclient.PtrOf(uint64(10))
	fill(t, store, adapters.Cosine, items, func() {
		_, err = collections.Update(t.Context(), &qdrantclient.UpdateCollection{
			CollectionName: questions, OptimizersConfig: &qdrantclient.OptimizersConfigDiff{IndexingThreshold: least},
			HnswConfig: &qdrantclient.HnswConfigDiff{FullScanThreshold: least},
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "Qdrant builds its index", func(ctx context.Context) (bool, error) {
		info, err := collections.Get(ctx, &qdrantclient.GetCollectionInfoRequest{CollectionName: questions})
		r := info.GetResult()
		return r.GetStatus() == qdrantclient.CollectionStatus_Green && r.GetIndexedVectorsCount() >= uint64(items.Rows), err
	})
	return store
}

// milvusHNSW returns a Milvus whose collection is sealed and searched by HNSW.
func milvusHNSW(t *testing.T, items rerank.Matrix) adapters.Store {
	server := servers.MilvusForTest(t, servers.Options{})
	store, err := milvus.New(t.Context(), milvus.Options{
		Address: server.Address, Companion: milvus.Index{Type: "HNSW", Params: map[string]string{"M": "16", "efConstruction": "200"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, store, adapters.InnerProduct, items, nil)
	sdk, err := client.NewClient(t.Context(), client.Config{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer sdk.Close()
	if err := sdk.Flush(t.Context(), questions, false); err != nil {
		t.Fatal(err)
	}
	// Milvus answers from the growing segment, by an index of less recall, until its query node has loaded the built one.
	eventually(t, "Milvus loads its index", func(ctx context.Context) (bool, error) {
		loaded, err := sdk.(*client.GrpcClient).Service.GetQuerySegmentInfo(ctx, &milvuspb.GetQuerySegmentInfoRequest{CollectionName: questions})
		indexed := int64(0)
		for _, segment := range loaded.GetInfos() {
			if segment.GetState() != commonpb.SegmentState_Sealed || segment.GetIndexID() == 0 {
				return false, err
			}
			indexed += segment.GetNumRows()
		}
		return indexed == int64(items.Rows), err
	})
	return store
}
