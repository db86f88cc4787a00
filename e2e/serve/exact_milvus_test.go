package serve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// exactMilvus is a milvus-lite with two sidecars before it, and what it holds.
type exactMilvus struct {
	*exactness
	// first sees every write, and declares so; the routes of replica search Milvus itself, or a
	// table whose writes bypass it.
	first, replica milvusSide
}

// milvusSide is one of the sidecars.
type milvusSide struct {
	proxy milvuspb.MilvusServiceClient
	api   *grpc.ClientConn
}

// mustMilvus wants a call of Milvus to succeed.
func (e *exactMilvus) mustMilvus(s *commonpb.Status, err error) {
	if err != nil || s.GetCode() != 0 {
		e.t.Errorf("%v, %v", s, err)
	}
}

// withStatus returns the status of an answer.
func withStatus[A interface{ GetStatus() *commonpb.Status }](a A, err error) (*commonpb.Status, error) {
	return a.GetStatus(), err
}

// makeCollection makes the collection, empty and loaded.
func (e *exactMilvus) makeCollection(ctx context.Context, c milvuspb.MilvusServiceClient) {
	dim := []*commonpb.KeyValuePair{{Key: "dim", Value: "4"}}
	schema, err := proto.Marshal(&schemapb.CollectionSchema{Name: "items", Fields: []*schemapb.FieldSchema{
		{FieldID: 100, Name: "id", DataType: schemapb.DataType_Int64, IsPrimaryKey: true},
		{FieldID: 101, Name: "vec", DataType: schemapb.DataType_FloatVector, TypeParams: dim},
		{FieldID: 102, Name: "n", DataType: schemapb.DataType_Int64},
	}})
	must2(e.t, err)
	e.mustMilvus(c.CreateCollection(ctx, &milvuspb.CreateCollectionRequest{CollectionName: "items", Schema: schema, ShardsNum: 1}))
	flat := []*commonpb.KeyValuePair{{Key: "index_type", Value: "FLAT"}, {Key: "metric_type", Value: "IP"}, {Key: "params", Value: "{}"}}
	e.mustMilvus(c.CreateIndex(ctx, &milvuspb.CreateIndexRequest{CollectionName: "items", FieldName: "vec", IndexName: "vec", ExtraParams: flat}))
	e.mustMilvus(c.LoadCollection(ctx, &milvuspb.LoadCollectionRequest{CollectionName: "items", ReplicaNumber: 1}))
}

// put writes items. Milvus deletes a row before it inserts it again.
func (e *exactMilvus) put(ctx context.Context, c milvuspb.MilvusServiceClient, items map[uint64]item) {
	var ids, kinds []int64
	var vectors []float32
	var changes []func(contents)
	for id, i := range items {
		ids, kinds, vectors = append(ids, int64(id)), append(kinds, int64(i.kind)), append(vectors, i.vector[:]...)
		changes = append(changes, func(c contents) { delete(c.items["items"], id) }, func(c contents) { c.items["items"][id] = i })
	}
	numbers := func(name string, data []int64) *schemapb.FieldData {
		return &schemapb.FieldData{FieldName: name, Type: schemapb.DataType_Int64, Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{
			Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: data}}}}}
	}
	end := e.begin(changes...)
	e.mustMilvus(withStatus(c.Upsert(ctx, &milvuspb.UpsertRequest{CollectionName: "items", NumRows: uint32(len(ids)), FieldsData: []*schemapb.FieldData{
		numbers("id", ids), numbers("n", kinds),
		{FieldName: "vec", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: 4, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: vectors}}}}},
	}})))
	end()
}

// remove deletes the rows of an expression.
func (e *exactMilvus) remove(ctx context.Context, expression string, ids ...uint64) {
	var changes []func(contents)
	for _, id := range ids {
		changes = append(changes, func(c contents) { delete(c.items["items"], id) })
	}
	end := e.begin(changes...)
	e.mustMilvus(withStatus(e.first.proxy.Delete(ctx, &milvuspb.DeleteRequest{CollectionName: "items", Expr: expression})))
	end()
}

// action is one random write through the first sidecar.
func (e *exactMilvus) action(ctx context.Context, random *rand.Rand) {
	id, kind := random.Uint64N(idRange), random.IntN(kinds)
	switch n := random.IntN(100); {
	case n < 60:
		e.put(ctx, e.first.proxy, randomItems(random, 1+random.IntN(2)))
	case n < 75:
		e.remove(ctx, fmt.Sprintf("id in [%d, %d]", id, idRange-1-id), id, idRange-1-id)
	default:
		_, last := e.now()
		var ids []uint64
		for other, i := range last.items["items"] {
			if i.kind == kind && other < id {
				ids = append(ids, other)
			}
		}
		if len(ids) > 0 && len(ids) < 7 {
			e.remove(ctx, fmt.Sprintf("n == %d and id < %d", kind, id), ids...)
		}
	}
}

// recreate drops the collection and makes it again, with other items.
func (e *exactMilvus) recreate(ctx context.Context, random *rand.Rand) {
	end := e.begin(func(c contents) { c.items["items"] = map[uint64]item{} })
	e.mustMilvus(e.first.proxy.DropCollection(ctx, &milvuspb.DropCollectionRequest{CollectionName: "items"}))
	end()
	e.makeCollection(ctx, e.first.proxy)
	for range 8 {
		e.put(ctx, e.first.proxy, randomItems(random, 2))
	}
}

func (e *exactMilvus) writeUntil(ctx context.Context) {
	random, calls := rand.New(rand.NewPCG(8, 1)), context.WithoutCancel(ctx)
	for n := 1; ctx.Err() == nil && !e.t.Failed(); n++ {
		switch {
		case n%20 == 0: // a pause, in which the tables are fresh
			pass(ctx, comparison)
		case n%150 == 130:
			e.recreate(calls, random)
		default:
			e.action(calls, random)
		}
	}
}

// searchProxy searches through a proxy of Milvus.
func searchProxy(ctx context.Context, c milvuspb.MilvusServiceClient, a asked) (out got, err error) {
	var fields []string
	if a.withVectors {
		fields = []string{"vec"}
	}
	var trailer metadata.MD
	answer, err := c.Search(ctx, milvusSearch("items", [][]float32{a.vector}, 5, 0, expressionOf(a.kind), fields...), grpc.Trailer(&trailer))
	if err == nil && answer.GetStatus().GetCode() != 0 {
		err = fmt.Errorf("status %v", answer.GetStatus())
	}
	vectors := column(answer.GetResults(), "vec").GetVectors().GetFloatVector().GetData()
	for i, id := range answer.GetResults().GetIds().GetIntId().GetData() {
		out.hits = append(out.hits, hit{strconv.FormatInt(id, 10), answer.GetResults().GetScores()[i]})
		if a.withVectors {
			out.vectors = append(out.vectors, vectors[4*i:][:4])
		}
	}
	out.status = strings.Join(trailer.Get("likeness-status"), "|")
	return out, err
}

func expressionOf(kind int) string {
	if kind < 0 {
		return ""
	}
	return fmt.Sprintf("n == %d", kind)
}

func (e *exactMilvus) ways() (all []way) {
	for from, s := range map[string]milvusSide{"first": e.first, "replica": e.replica} {
		all = append(all, way{from + " gRPC", "items", func(ctx context.Context, a asked) (got, error) { return searchProxy(ctx, s.proxy, a) }})
	}
	for name, s := range map[string]milvusSide{"declared": e.first, "undeclared": e.replica, "stored": e.replica, "usual": e.replica} {
		all = append(all, way{"API " + name, "items", func(ctx context.Context, a asked) (got, error) {
			return searchAPI(ctx, s.api, name, a.vector, expressionOf(a.kind))
		}})
	}
	return all
}

// TestExactIsNeverWrongBeforeMilvus is TestExactIsNeverWrong before milvus-lite, which has neither
// aliases nor snapshots. No write bypasses the sidecar that declares to see every write: its route compares
// no rows during the test, so that a write which is not followed is not repaired.
func TestExactIsNeverWrongBeforeMilvus(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	m := testModel(t)
	e := &exactMilvus{exactness: &exactness{t: t, model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}}}
	direct := milvuspb.NewMilvusServiceClient(connect(t, db.Address))
	e.states = []contents{{items: map[string]map[uint64]item{"items": {}}, aliases: map[string]string{}}}
	random := rand.New(rand.NewPCG(6, 5))
	e.makeCollection(t.Context(), direct)
	for range 12 {
		e.put(t.Context(), direct, randomItems(random, 2))
	}
	table := func() string {
		store, err := adapter.New(t.Context(), adapter.Options{Address: db.Address})
		must2(t, err)
		defer store.Close()
		return buildTable(t, store, "items", rerank.FormatFloat32)
	}
	start := func(routes, proxied string) milvusSide {
		at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: milvus, address: %q}}
routes: {%s}
proxy: {store: main, listen_grpc: "127.0.0.1:0", routes: [%s]}
`, t.TempDir(), db.Address, fmt.Sprintf(routes, table()), proxied))
		return milvusSide{milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC)), connect(t, at.GRPC)}
	}
	e.first = start(`declared: {store: main, collection: items, model: w, strategy: scan, table: %q, table_live: true, writes: proxy, latency_budget: 20s, write_budget: 5s, reconcile: {interval: 1h}}`, "declared")
	e.replica = start(`undeclared: {store: main, collection: items, model: w, strategy: scan, table: %q, table_live: true, reconcile: {interval: 500ms}},
  stored: {store: main, collection: items, model: w, placement: stored, exact_search: true},
  usual: {store: main, collection: items, model: w}`, "usual")
	proved := e.run(searchesOf(t, 1500, 50_000), e.ways(), e.writeUntil)
	t.Logf("%d searches beside %d states of milvus-lite: %d exact, 0 wrong", e.searches.Load(), e.forgotten+len(e.states), proved)
}
