package milvus

import (
	"context"
	"errors"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// recorded is a store whose calls never reach a network. It keeps the requests, and script answers them.
type recorded struct {
	script map[string]func(request proto.Message) proto.Message // by the name of the call; absent: an empty answer

	mu    sync.Mutex
	calls []recordedCall
}

type recordedCall struct {
	name    string
	request proto.Message
}

func record(t *testing.T, o Options) (*Store, *recorded) {
	t.Helper()
	r := &recorded{script: map[string]func(proto.Message) proto.Message{}}
	o.Address = "localhost:1"
	o.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(_ context.Context, method string, request, out any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		name := path.Base(method)
		r.mu.Lock()
		r.calls = append(r.calls, recordedCall{name, proto.Clone(request.(proto.Message))})
		answer := r.script[name]
		r.mu.Unlock()
		m, isMessage := out.(proto.Message)
		switch {
		case answer == nil && isMessage:
			if f := m.ProtoReflect().Descriptor().Fields().ByName("status"); f != nil {
				m.ProtoReflect().Mutable(f) // which the SDK wants to be there
			}
		case isMessage:
			proto.Merge(m, answer(request.(proto.Message)))
		case answer == nil: // a reply is used again, so that only reading empties it
			return out.(*reply).ReadWire(nil)
		default:
			b, err := proto.Marshal(answer(request.(proto.Message)))
			return errors.Join(err, out.(*reply).ReadWire(b))
		}
		return nil
	})}
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, r
}

// answers sets the replies to a call: the messages in order, and then the last one again and again.
func (r *recorded) answers(name string, messages ...proto.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := 0
	r.script[name] = func(proto.Message) proto.Message {
		r.mu.Lock()
		defer r.mu.Unlock()
		m := messages[min(next, len(messages)-1)]
		next++
		return m
	}
}

// take returns the requests of the calls with this name, and forgets all recorded calls.
func (r *recorded) take(name string) (requests []proto.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.name == name {
			requests = append(requests, c.request)
		}
	}
	r.calls = nil
	return requests
}

// wantSent fails the test unless the calls with this name had exactly these requests. The order of key-value
// parameters does not matter.
func (r *recorded) wantSent(t *testing.T, about, name string, want ...proto.Message) {
	t.Helper()
	got := r.take(name)
	if len(got) != len(want) {
		t.Errorf("%s: %d calls of %s, want %d: %v", about, len(got), name, len(want), got)
		return
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("%s: %s is sent as\n%v, want\n%v", about, name, got[i], want[i])
		}
	}
}

func refused(code int32, reason string) *commonpb.Status {
	return &commonpb.Status{Code: code, Reason: reason}
}

// described returns the description of a collection with a vector field v of two numbers, compared by inner
// product, an integer n, a text and a dynamic field.
func described(name string, change ...func(*schemapb.CollectionSchema)) *milvuspb.DescribeCollectionResponse {
	field := func(name string, kind schemapb.DataType, dim string) *schemapb.FieldSchema {
		f := &schemapb.FieldSchema{Name: name, DataType: kind}
		if dim != "" {
			f.TypeParams = pairs("dim", dim)
		}
		return f
	}
	s := &schemapb.CollectionSchema{Name: name, EnableDynamicField: true, Fields: []*schemapb.FieldSchema{
		field("id", schemapb.DataType_Int64, ""), field("v", schemapb.DataType_FloatVector, "2"), field("n", schemapb.DataType_Int64, ""),
		field("text", schemapb.DataType_VarChar, ""), field("bits", schemapb.DataType_BinaryVector, "8"), field("$meta", schemapb.DataType_JSON, ""),
	}}
	s.Fields[0].IsPrimaryKey, s.Fields[5].IsDynamic = true, true
	for _, c := range change {
		c(s)
	}
	return &milvuspb.DescribeCollectionResponse{Status: &commonpb.Status{}, Schema: s}
}

func indexed(field string, params ...string) *milvuspb.DescribeIndexResponse {
	return &milvuspb.DescribeIndexResponse{IndexDescriptions: []*milvuspb.IndexDescription{{FieldName: field, Params: pairs(params...)}}}
}

// inRows describes a companion whose fields a, of two numbers, and b, of three, share a column.
func inRows(t *testing.T) *milvuspb.DescribeCollectionResponse {
	t.Helper()
	l := layout{Version: layoutVersion, Rows: true, TextIDs: true, Owner: "item", Fields: []layoutField{{Name: "a", Column: "vector", Dim: 2, Metric: adapters.InnerProduct}, {Name: "b", Column: "vector", Dim: 3, Metric: adapters.InnerProduct}}}
	description, err := l.describe()
	if err != nil {
		t.Fatal(err)
	}
	return described("c", func(s *schemapb.CollectionSchema) {
		s.Description = description
		s.Fields = append(s.Fields[2:3], &schemapb.FieldSchema{Name: companionID, IsPrimaryKey: true, DataType: schemapb.DataType_VarChar},
			&schemapb.FieldSchema{Name: companionField, DataType: schemapb.DataType_Int16}, &schemapb.FieldSchema{Name: companionOwner, DataType: schemapb.DataType_VarChar},
			&schemapb.FieldSchema{Name: "vector", DataType: schemapb.DataType_FloatVector, TypeParams: pairs("dim", "3")})
	})
}

func longs(name string, n ...int64) *schemapb.FieldData {
	return scalarData(name, schemapb.DataType_Int64, &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: n}}})
}

func floats(name string, dim int64, x ...float32) *schemapb.FieldData {
	return &schemapb.FieldData{FieldName: name, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{Dim: dim, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: x}}}}}
}

func jsons(name string, texts ...string) *schemapb.FieldData {
	a := &schemapb.JSONArray{}
	for _, s := range texts {
		a.Data = append(a.Data, []byte(s))
	}
	return scalarData(name, schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: a}})
}

func intIDs(n ...int64) (ids []rerank.ID) {
	for _, x := range n {
		ids = append(ids, rerank.IntID(x))
	}
	return ids
}

// TestEveryCallNamesTheDatabase: a call names the database in its request, or in the metadata if the SDK makes the
// request.
func TestEveryCallNamesTheDatabase(t *testing.T) {
	s, r := record(t, Options{Database: "db"})
	r.answers("DescribeCollection", inRows(t))
	r.answers("DescribeIndex", indexed("vector", "metric_type", "IP", "index_type", "FLAT"))
	r.answers("GetLoadState", &milvuspb.GetLoadStateResponse{State: commonpb.LoadState_LoadStateLoaded})
	r.answers("Query", &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{longs("count(*)", 7)}})
	schema := adapters.Schema{Collection: "c", Owner: "item", Fields: []adapters.VectorField{{Name: "a", Dim: 2}, {Name: "b", Dim: 3}}}
	ids := []rerank.ID{rerank.TextID("x")}
	_ = s.Write(t.Context(), "c", schema, adapters.Rows{IDs: ids, Owners: ids, Vectors: []rerank.Matrix{rerank.NewMatrix(1, 2), rerank.NewMatrix(1, 3)}})
	_ = s.Delete(t.Context(), "c", ids)
	_, _ = s.Describe(t.Context(), "c")
	_, _ = s.Identify(t.Context(), "c")
	_, _ = s.Search(t.Context(), adapters.SearchRequest{Collection: "c", Vector: "a", Probes: []rerank.Probe{{Vector: []float32{1, 2}, Depth: 1}}})
	_ = s.checkAlias(t.Context(), &collection{name: "c"})
	seen := map[string]int{}
	named := func(c recordedCall) bool {
		f := c.request.ProtoReflect().Descriptor().Fields().ByName("db_name")
		return c.request.ProtoReflect().Get(f).String() == "db"
	}
	for _, c := range r.calls {
		if seen[c.name]++; !named(c) {
			t.Errorf("%s is sent without the database: %v", c.name, c.request)
		}
	}
	for _, name := range []string{"Upsert", "Delete", "Query", "DescribeCollection", "DescribeIndex", "Search"} {
		if seen[name] == 0 {
			t.Errorf("%s was not called", name)
		}
	}
	r.makes("a", "b")
	r.take("")
	if err := s.Create(t.Context(), schema); err != nil {
		t.Error(err)
	}
	for _, c := range r.calls {
		if c.name == "GetLoadState" && !named(c) || c == r.calls[0] && (c.name != "HasCollection" || !named(c)) {
			t.Errorf("%s is sent without the database: %v", c.name, c.request)
		}
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var databases []string
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		databases = append(databases, metadata.ValueFromIncomingContext(stream.Context(), "dbname")...)
		return status.Error(codes.PermissionDenied, "")
	}))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	wired, err := New(t.Context(), Options{Address: listener.Addr().String(), Database: "db"})
	if err != nil {
		t.Fatal(err)
	}
	defer wired.Close()
	if err := wired.Drop(t.Context(), "c"); !errors.Is(err, adapters.ErrRefused) || !slices.Equal(databases, []string{"db"}) {
		t.Errorf("the SDK's call names the databases %q: %v", databases, err)
	}
}

// TestSchemasAreReadAgain: a schema is cached for a time. If an outdated schema can explain an error, the schema is
// read again, and the request is repeated if it differs.
func TestSchemasAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := record(t, Options{SchemaTTL: time.Second})
		r.answers("DescribeCollection", described("own"))
		read := func(want int) {
			t.Helper()
			if _, err := s.collection(t.Context(), "c"); err != nil {
				t.Error(err)
			}
			if got := len(r.take("DescribeCollection")); got != want {
				t.Errorf("the schema is read %d times, want %d", got, want)
			}
		}
		read(1)
		time.Sleep(999 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
		read(0)
		time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
		read(1)
		norm := func() (bool, error) {
			_, cached, err := s.norms.Load(normsOf{"c", "v"}, func() (float64, error) { return 3, nil })
			return cached, err
		}
		if _, err := norm(); err != nil {
			t.Error(err)
		}
		s.forget("c")
		if cached, err := norm(); cached || err != nil {
			t.Errorf("the norms of a forgotten collection are kept: %t, %v", cached, err)
		}
		for name, c := range map[string]struct {
			err   error
			fresh *milvuspb.DescribeCollectionResponse
			times int
		}{
			"no error":                 {nil, described("other"), 1},
			"another error":            {adapters.ErrUnavailable, described("other"), 1},
			"the same schema":          {adapters.ErrField, described("own"), 1},
			"an alias that was moved":  {adapters.ErrNotFound, described("other"), 2},
			"another metric or column": {adapters.ErrMetric, described("own", func(s *schemapb.CollectionSchema) { s.Fields[1].Name = "w" }), 2},
			"a field":                  {adapters.ErrField, described("own", func(s *schemapb.CollectionSchema) { s.Fields[2].Name = "m" }), 2},
			"a dimension":              {adapters.ErrDimension, described("own", func(s *schemapb.CollectionSchema) { s.Fields[1].TypeParams = pairs("dim", "3") }), 2},
		} {
			s.forget("c")
			r.answers("DescribeCollection", described("own"), c.fresh)
			times := 0
			err := s.withSchema(t.Context(), "c", func(*collection) error { times++; return c.err })
			if times != c.times || !errors.Is(err, c.err) {
				t.Errorf("%s: done %d times, %v, want %d", name, times, err, c.times)
			}
		}
	})
}

// TestLimitsBeforeTheServer: a request over the limit is not sent. A call that ends frees its place among the
// concurrent calls. A call that its caller cancels does not count as a failure of the database.
func TestLimitsBeforeTheServer(t *testing.T) {
	s, r := record(t, Options{MaxInFlight: 1, Limits: adapters.Limits{MaxMessageBytes: 200}})
	r.answers("GetVersion", &milvuspb.GetVersionResponse{Status: refused(1, "not ready")}, &milvuspb.GetVersionResponse{Status: refused(10, "unimplemented")})
	if err := s.Ping(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("not ready: %v", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("without the call: %v", err)
	}
	if !s.slots.TryAcquire(1) {
		t.Fatal("a refused call keeps its turn")
	}
	s.slots.Release(1)
	r.take("")
	if _, err := s.Identify(t.Context(), strings.Repeat("c", 300)); !errors.Is(err, adapters.ErrLimit) || len(r.take("DescribeCollection")) > 0 {
		t.Errorf("a request that is too long: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.callError(ctx, errors.New("any")); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	s.loweredLimits.MaxDepth = 50
	for _, most := range []int64{70, 0, -1} {
		s.lowerLimit(&adapters.LimitError{Limit: limitDepth, Max: most})
	}
	if l := s.limits(); l.MaxDepth != 50 {
		t.Errorf("the depth is %d", l.MaxDepth)
	}
	if err := statusError(&commonpb.Status{ErrorCode: commonpb.ErrorCode_PermissionDenied}); !errors.Is(err, adapters.ErrRefused) { // as servers before 2.4 answer
		t.Errorf("an old server's refusal: %v", err)
	}
	if err := statusError(refused(1400, "any words")); !errors.Is(err, adapters.ErrRefused) {
		t.Errorf("a wrong password: %v", err)
	}
}
