package proxy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/qdrant/go-client/qdrant"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// unary is a call of the method with that name.
type unary struct {
	method          string
	request, answer proto.Message
}

// do makes the call. It returns its status, and its answer without the parts that differ between
// two direct answers.
func (u unary) do(t *testing.T, conn *grpc.ClientConn, collection, key string) (proto.Message, *status.Status) {
	t.Helper()
	request, answer := proto.Clone(u.request), proto.Clone(u.answer)
	setName(request, collection)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
	err := conn.Invoke(ctx, u.method, request, answer)
	for _, name := range []string{"time", "usage"} {
		if f := answer.ProtoReflect().Descriptor().Fields().ByTextName(name); f != nil {
			answer.ProtoReflect().Clear(f)
		}
	}
	return answer, status.Convert(err)
}

func setName(m proto.Message, name string) {
	if c, ok := m.(*milvuspb.CreateCollectionRequest); ok {
		// Its schema names the collection too: field 1, appended.
		c.Schema = protowire.AppendString(protowire.AppendTag(c.GetSchema(), 1, protowire.BytesType), name)
	}
	if f := m.ProtoReflect().Descriptor().Fields().ByTextName("collection_name"); f != nil {
		m.ProtoReflect().Set(f, protoreflect.ValueOfString(name))
	}
}

func compare(t *testing.T, u unary, direct, proxied *grpc.ClientConn, key string) {
	t.Helper()
	want, wantStatus := u.do(t, direct, "direct", key)
	got, gotStatus := u.do(t, proxied, "proxied", key)
	if named(got, gotStatus) != named(want, wantStatus) {
		t.Errorf("%s with key %q:\nproxied %v %v\ndirect  %v %v", u.method, key, got, gotStatus, want, wantStatus)
	}
}

func qdrantCalls() []unary {
	wait := true
	vector := []float32{1, 2, 3, 4}
	return []unary{
		{"/qdrant.Qdrant/HealthCheck", &qdrant.HealthCheckRequest{}, &qdrant.HealthCheckReply{}},
		{"/grpc.health.v1.Health/Check", &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthCheckResponse{}},
		{"/qdrant.Collections/Get", &qdrant.GetCollectionInfoRequest{}, &qdrant.GetCollectionInfoResponse{}},
		{"/qdrant.Collections/Create", &qdrant.CreateCollection{
			VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 4, Distance: qdrant.Distance_Dot}),
		}, &qdrant.CollectionOperationResponse{}},
		{"/qdrant.Points/Upsert", &qdrant.UpsertPoints{Wait: &wait, Points: []*qdrant.PointStruct{
			{Id: qdrant.NewIDNum(1<<64 - 1), Vectors: qdrant.NewVectors(vector...), Payload: qdrant.NewValueMap(map[string]any{"a": 1, "b": "\x00ü"})},
			{Id: qdrant.NewIDNum(2), Vectors: qdrant.NewVectors(0, 0, 0, 1)},
		}}, &qdrant.PointsOperationResponse{}},
		{"/qdrant.Points/Search", &qdrant.SearchPoints{Vector: vector, Limit: 2, WithPayload: qdrant.NewWithPayload(true)}, &qdrant.SearchResponse{}},
		{"/qdrant.Points/Search", &qdrant.SearchPoints{Vector: vector[:1], Limit: 2}, &qdrant.SearchResponse{}},
		{"/qdrant.Points/Query", &qdrant.QueryPoints{Query: qdrant.NewQuery(vector...), WithVectors: qdrant.NewWithVectors(true)}, &qdrant.QueryResponse{}},
		{"/qdrant.Points/Count", &qdrant.CountPoints{}, &qdrant.CountResponse{}},
		{"/qdrant.Points/Scroll", &qdrant.ScrollPoints{}, &qdrant.ScrollResponse{}},
		{"/qdrant.Points/OfTomorrow", &qdrant.ScrollPoints{}, &qdrant.ScrollResponse{}},
		{"/qdrant.Tomorrow/Get", &qdrant.ScrollPoints{}, &qdrant.ScrollResponse{}},
		{"/qdrant.Collections/Delete", &qdrant.DeleteCollection{}, &qdrant.CollectionOperationResponse{}},
	}
}

func TestQdrantGRPCAnswersAsDirectly(t *testing.T) {
	eachQdrant(t, servers.Options{APIKey: "secret"}, func(t *testing.T, s *servers.Server) {
		direct := dial(t, s.Address)
		proxied := dial(t, start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}}).GRPC)
		for _, u := range qdrantCalls() {
			compare(t, u, direct, proxied, "wrong")
			compare(t, u, direct, proxied, "secret")
		}
	})
}

// One client's cancelled calls fail no other client's.
func TestQdrantCancels(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	address := start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}}).GRPC
	impatient, patient := qdrant.NewQdrantClient(dial(t, address)), qdrant.NewQdrantClient(dial(t, address))
	var group errgroup.Group
	group.Go(func() error {
		for range 500 {
			ctx, cancel := context.WithCancel(t.Context())
			group.Go(func() error {
				_, err := impatient.HealthCheck(ctx, &qdrant.HealthCheckRequest{})
				if code := status.Code(err); code != codes.OK && code != codes.Canceled {
					return err
				}
				return nil
			})
			cancel()
			if _, err := patient.HealthCheck(t.Context(), &qdrant.HealthCheckRequest{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// named returns the whole answer as text, with the collection's name replaced.
func named(m proto.Message, s *status.Status) string {
	text := prototext.MarshalOptions{EmitUnknown: true}.Format(m) + s.String()
	return strings.ReplaceAll(text, "proxied", "direct")
}

func milvusCalls(t *testing.T) []unary {
	t.Helper()
	schema, err := proto.Marshal(&schemapb.CollectionSchema{Fields: []*schemapb.FieldSchema{
		{FieldID: 100, Name: "id", IsPrimaryKey: true, DataType: schemapb.DataType_Int64},
		{FieldID: 101, Name: "v", DataType: schemapb.DataType_FloatVector, TypeParams: []*commonpb.KeyValuePair{{Key: "dim", Value: "2"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	insert := &milvuspb.InsertRequest{NumRows: 2, FieldsData: []*schemapb.FieldData{
		{FieldName: "id", Type: schemapb.DataType_Int64, Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{
			Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{1, 2}}},
		}}},
		{FieldName: "v", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: 2, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: []float32{1, 0, 0, 1}}},
		}}},
	}}
	const service = "/milvus.proto.milvus.MilvusService/"
	return []unary{
		{service + "GetVersion", &milvuspb.GetVersionRequest{}, &milvuspb.GetVersionResponse{}},
		{service + "DescribeCollection", &milvuspb.DescribeCollectionRequest{}, &milvuspb.DescribeCollectionResponse{}},
		{service + "CreateCollection", &milvuspb.CreateCollectionRequest{Schema: schema}, &commonpb.Status{}},
		{service + "CreateCollection", &milvuspb.CreateCollectionRequest{Schema: []byte("no schema")}, &commonpb.Status{}},
		{service + "Insert", insert, &milvuspb.MutationResult{}},
		{service + "CreateIndex", &milvuspb.CreateIndexRequest{FieldName: "v", ExtraParams: []*commonpb.KeyValuePair{
			{Key: "index_type", Value: "FLAT"}, {Key: "metric_type", Value: "IP"},
		}}, &commonpb.Status{}},
		{service + "LoadCollection", &milvuspb.LoadCollectionRequest{}, &commonpb.Status{}},
		{service + "Query", &milvuspb.QueryRequest{Expr: "id > 0", OutputFields: []string{"id", "v"}}, &milvuspb.QueryResults{}},
		{service + "Query", &milvuspb.QueryRequest{Expr: "nonsense >"}, &milvuspb.QueryResults{}},
		{service + "OfTomorrow", &milvuspb.QueryRequest{}, &milvuspb.QueryResults{}},
		{"/milvus.proto.milvus.ClientTelemetryService/ClientHeartbeat", &milvuspb.GetVersionRequest{}, &milvuspb.GetVersionResponse{}},
		{service + "DropCollection", &milvuspb.DropCollectionRequest{}, &commonpb.Status{}},
	}
}

func TestMilvusAnswersAsDirectly(t *testing.T) {
	s := servers.MilvusLiteForTest(t, servers.Options{})
	direct := dial(t, s.Address)
	proxied := dial(t, start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}}).GRPC)
	for _, u := range milvusCalls(t) {
		compare(t, u, direct, proxied, "")
	}
}
