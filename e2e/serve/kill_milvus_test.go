package serve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow"
)

// TestKilledMilvus is TestKilled in small, with one sidecar before milvus-lite.
func TestKilledMilvus(t *testing.T) {
	w := &killed{db: servers.MilvusLiteForTest(t, servers.Options{}), kind: "milvus", route: ", unit_vectors: true", dir: t.TempDir()}
	w.direct = connect(t, w.db.Address)
	createMilvusThings(t, w)
	w.configure(t, "one")
	w.build(t, "one", true)
	w.one = w.start(t, "one")
	writing, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for n := range 2 {
		writers.Go(func() {
			rng, tick := rand.New(rand.NewPCG(uint64(n), 9)), time.NewTicker(50*time.Millisecond)
			defer tick.Stop()
			for writing.Err() == nil {
				to := w.proxies[0].Load()
				if rng.IntN(20) == 0 {
					to = w.direct
				}
				if anyMilvusWrite(writing, rng, milvuspb.NewMilvusServiceClient(to)) == nil {
					w.sent[0].Add(1)
				}
				<-tick.C
			}
		})
	}
	for range 2 {
		pause(t, time.Second)
		must2(t, w.one.cmd.Process.Kill())
		_, _ = w.one.cmd.Process.Wait()
		w.one = w.start(t, "one")
	}
	pause(t, time.Second)
	stop()
	writers.Wait()
	must2(t, w.one.cmd.Process.Kill())
	_, _ = w.one.cmd.Process.Wait()
	found := w.reconcile(t, "one")
	_, parts := w.open(t, "one")
	defer parts.Close()
	d, err := follow.Compare(t.Context(), parts.Routes[0], nil)
	if must2(t, err); d.Differing() > 0 || d.Rows == 0 || w.sent[0].Load() == 0 {
		t.Errorf("after %d writes: %+v; the reconcile had found %+v", w.sent[0].Load(), d, found)
	}
}

func createMilvusThings(t *testing.T, w *killed) {
	t.Helper()
	c, err := client.NewClient(t.Context(), client.Config{Address: w.db.Address})
	must2(t, err)
	defer c.Close()
	schema := entity.NewSchema().WithName(things).WithDynamicFieldEnabled(true).
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(384))
	flat, err := entity.NewIndexFlat(entity.IP)
	must2(t, err)
	must2(t, c.CreateCollection(t.Context(), schema, 1))
	must2(t, c.CreateIndex(t.Context(), things, "vec", flat, false))
	must2(t, c.LoadCollection(t.Context(), things, false))
	rng := rand.New(rand.NewPCG(1, 1))
	for id := range int64(40) {
		must2(t, milvusUpsert(t.Context(), rng, milvuspb.NewMilvusServiceClient(w.direct), id))
	}
}

func anyMilvusWrite(ctx context.Context, rng *rand.Rand, c milvuspb.MilvusServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id := rng.Int64N(60)
	if rng.IntN(5) > 0 {
		return milvusUpsert(ctx, rng, c, id)
	}
	_, err := c.Delete(ctx, &milvuspb.DeleteRequest{CollectionName: things, Expr: fmt.Sprintf("id in [%d]", id)})
	return err
}

func milvusUpsert(ctx context.Context, rng *rand.Rand, c milvuspb.MilvusServiceClient, id int64) error {
	v := make([]float32, 384)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	rerank.Normalise(v)
	scalar := func(f *schemapb.ScalarField) *schemapb.FieldData_Scalars {
		return &schemapb.FieldData_Scalars{Scalars: f}
	}
	_, err := c.Upsert(ctx, &milvuspb.UpsertRequest{CollectionName: things, NumRows: 1, FieldsData: []*schemapb.FieldData{
		{FieldName: "id", Type: schemapb.DataType_Int64, Field: scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{id}}}})},
		{FieldName: "vec", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: 384, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: v}}}}},
		{FieldName: "$meta", Type: schemapb.DataType_JSON, IsDynamic: true, Field: scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{
			JsonData: &schemapb.JSONArray{Data: [][]byte{fmt.Appendf(nil, `{"n":%d}`, rng.IntN(100))}}}})},
	}})
	return err
}
