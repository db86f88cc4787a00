package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// The lies. Each makes an answer that no honest store gives. Lies that an honest store could tell,
// such as that a row is missing, cannot be detected.
const (
	lieNaN      = "score not a number"
	lieInfinite = "infinite score"
	lieTwice    = "row twice"
	lieMore     = "more rows than asked"
	lieOrder    = "not in order"
	lieCount    = "wrong number of lists"
	lieVector   = "vector that is not finite"
	lieShort    = "vector too short"
	lieGarbage  = "message that cannot be read"
)

var lies = []string{lieNaN, lieInfinite, lieTwice, lieMore, lieOrder, lieCount, lieVector, lieShort, lieGarbage}

// liar forwards gRPC calls to a store and edits some answers.
type liar struct {
	conn   *grpc.ClientConn
	ledger *ledger
	lie    atomic.Pointer[string] // nil: it does not lie
}

// raw carries messages as bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *v.(*[]byte) = slices.Clone(b); return nil }
func (raw) Name() string                    { return "proto" }

// startLiar returns a liar and its address.
func startLiar(t *testing.T, to string, counts *ledger) (*liar, string) {
	t.Helper()
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()), patient,
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{conn: conn, ledger: counts}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(l.handle), grpc.MaxRecvMsgSize(64<<20), pingsAllowed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
		_ = conn.Close()
	})
	return l, listener.Addr().String()
}

func (l *liar) handle(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	md, _ := metadata.FromIncomingContext(in.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), md))
	defer cancel()
	var request []byte
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	out, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = out.SendMsg(&request)
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = out.CloseSend()
	}
	for err == nil {
		var answer []byte
		if err = out.RecvMsg(&answer); err != nil {
			break
		}
		err = in.SendMsg(l.edited(method, &answer))
	}
	if out != nil {
		in.SetTrailer(out.Trailer())
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// edited returns an answer, with a lie in it if a lie is active and the answer has search results
// or vectors.
func (l *liar) edited(method string, answer *[]byte) *[]byte {
	lie := l.lie.Load()
	if lie == nil {
		return answer
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	edit := map[string]func([]byte, string) (proto.Message, bool){
		"QueryBatch": editLists, "Query": editQuery, "Get": editGet, "Search": editSearch,
	}[name]
	if edit == nil {
		return answer
	}
	if *lie == lieGarbage {
		l.ledger.inject("lie: " + *lie)
		spoiled := append(slices.Clone(*answer), 0x07) // a field with number 0 and an invalid wire type
		return &spoiled
	}
	milvus := strings.Contains(method, "milvus")
	if milvus {
		if edit = map[string]func([]byte, string) (proto.Message, bool){"Search": editMilvusSearch, "Query": editMilvusQuery}[name]; edit == nil {
			return answer
		}
	}
	m, ok := edit(*answer, *lie)
	if !ok {
		return answer
	}
	spoiled, err := proto.Marshal(m)
	if err != nil {
		return answer
	}
	l.ledger.inject("lie: " + *lie)
	return &spoiled
}

func editLists(b []byte, lie string) (proto.Message, bool) {
	m := &qdrant.QueryBatchResponse{}
	if proto.Unmarshal(b, m) != nil || len(m.GetResult()) == 0 {
		return nil, false
	}
	if lie == lieCount {
		m.Result = append(m.Result, m.GetResult()[0])
		return m, true
	}
	one := m.GetResult()[0]
	points, ok := editPoints(one.GetResult(), lie)
	one.Result = points
	return m, ok
}

func editQuery(b []byte, lie string) (proto.Message, bool) {
	m := &qdrant.QueryResponse{}
	if proto.Unmarshal(b, m) != nil {
		return nil, false
	}
	points, ok := editPoints(m.GetResult(), lie)
	m.Result = points
	return m, ok
}

func editSearch(b []byte, lie string) (proto.Message, bool) {
	m := &qdrant.SearchResponse{}
	if proto.Unmarshal(b, m) != nil {
		return nil, false
	}
	points, ok := editPoints(m.GetResult(), lie)
	m.Result = points
	return m, ok
}

func editPoints(points []*qdrant.ScoredPoint, lie string) ([]*qdrant.ScoredPoint, bool) {
	if len(points) < 2 {
		return points, false
	}
	i := rand.IntN(len(points) - 1)
	switch lie {
	case lieNaN:
		points[i].Score = float32(math.NaN())
	case lieInfinite:
		points[i].Score = float32(math.Inf(1))
	case lieTwice:
		points[i+1] = points[i]
	case lieMore:
		more := proto.Clone(points[len(points)-1]).(*qdrant.ScoredPoint)
		more.Id = qdrant.NewIDNum(1 << 40)
		points = append(points, more)
	case lieOrder:
		slices.Reverse(points)
	default:
		return points, false
	}
	return points, true
}

func editGet(b []byte, lie string) (proto.Message, bool) {
	m := &qdrant.GetResponse{}
	if proto.Unmarshal(b, m) != nil || len(m.GetResult()) < 2 {
		return nil, false
	}
	v := m.GetResult()[0].GetVectors().GetVector()
	if v == nil {
		return nil, false
	}
	data := &v.Data //nolint:staticcheck // servers fill either place
	if d := v.GetDense(); d != nil {
		data = &d.Data
	}
	switch {
	case lie == lieVector && len(*data) > 0:
		(*data)[0] = float32(math.NaN())
	case lie == lieShort && len(*data) > 1:
		*data = (*data)[1:]
	case lie == lieMore:
		more := proto.Clone(m.GetResult()[0]).(*qdrant.RetrievedPoint)
		more.Id = qdrant.NewIDNum(1 << 40)
		m.Result = append(m.Result, more)
	default:
		return nil, false
	}
	return m, true
}

func editMilvusSearch(b []byte, lie string) (proto.Message, bool) {
	m := &milvuspb.SearchResults{}
	if proto.Unmarshal(b, m) != nil || len(m.GetResults().GetScores()) < 2 {
		return nil, false
	}
	r := m.GetResults()
	i := rand.IntN(len(r.GetScores()) - 1)
	switch lie {
	case lieNaN:
		r.Scores[i] = float32(math.NaN())
	case lieInfinite:
		r.Scores[i] = float32(math.Inf(1))
	case lieMore:
		r.Topks[0] += 5
	case lieCount:
		r.Topks = append(r.Topks, 0, 0)
	default:
		return nil, false
	}
	return m, true
}

func editMilvusQuery(b []byte, lie string) (proto.Message, bool) {
	m := &milvuspb.QueryResults{}
	if proto.Unmarshal(b, m) != nil {
		return nil, false
	}
	at := slices.IndexFunc(m.GetFieldsData(), func(f *schemapb.FieldData) bool { return f.GetVectors().GetFloatVector() != nil })
	if at < 0 {
		return nil, false
	}
	v := m.GetFieldsData()[at].GetVectors().GetFloatVector()
	if len(v.GetData()) < 2 {
		return nil, false
	}
	switch lie {
	case lieVector:
		v.Data[0] = float32(math.NaN())
	case lieShort:
		v.Data = v.GetData()[1:]
	default:
		return nil, false
	}
	return m, true
}

// begin starts a lie, and returns the function that ends it.
func (l *liar) begin(lie string) (end func()) {
	l.lie.Store(&lie)
	return func() { l.lie.Store(nil) }
}

func (l *liar) String() string { return fmt.Sprintf("liar before %s", l.conn.Target()) }
