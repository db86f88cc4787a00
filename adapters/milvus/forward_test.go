package milvus_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
)

// sent is a call to a server, with the credentials that it ended up with.
type sent struct {
	method        string
	request       proto.Message
	authorization []string
	left          time.Duration
}

type wiretap struct {
	mu  sync.Mutex
	all []sent
}

func (w *wiretap) dialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		deadline, _ := ctx.Deadline()
		w.mu.Lock()
		w.all = append(w.all, sent{method, proto.Clone(req.(proto.Message)), md.Get("authorization"), time.Until(deadline)})
		w.mu.Unlock()
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

// take returns the calls, and forgets them.
func (w *wiretap) take() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// sentBy returns the requests of a method, and wants each call to have the time of its context.
func sentBy[M proto.Message](t *testing.T, w *wiretap, method string) (all []M) {
	t.Helper()
	for _, s := range w.take() {
		if s.method == method {
			all = append(all, s.request.(M))
		}
		if s.left <= 0 || s.left > 41*time.Second {
			t.Errorf("%s has %v", s.method, s.left)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no call of %s", method)
	}
	return all
}

func value(pairs []*commonpb.KeyValuePair, key string) string {
	for _, p := range pairs {
		if p.GetKey() == key {
			return p.GetValue()
		}
	}
	return ""
}

// TestRequestsReachTheServerWhole: every field of every request of an adapter is seen in
// what the server is sent.
func TestRequestsReachTheServerWhole(t *testing.T) {
	server := servers.MilvusLiteForTest(t, servers.Options{})
	w := &wiretap{}
	s := open(t, milvus.Options{Address: server.Address, DialOptions: []grpc.DialOption{w.dialOption()}, SearchParams: map[string]any{"ef": 77}})
	ids := []rerank.ID{rerank.UintID(1), rerank.UintID(2)}
	schema := adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Name: "a", Dim: 2, Metric: adapters.InnerProduct}, {Name: "b", Dim: 2, Metric: adapters.InnerProduct}}, Owner: "item"}
	wants := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wants(s.Create(t.Context(), schema))
	vectors := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}}
	wants(s.Write(t.Context(), "c", schema, adapters.Rows{IDs: ids, Vectors: []rerank.Matrix{vectors, vectors}, Owners: ids}))
	ctx, cancel := context.WithTimeout(t.Context(), 41*time.Second)
	defer cancel()
	w.take()

	search := adapters.SearchRequest{
		Collection: "c", Vector: "a", Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: 7}}, Filter: "likeness_id > 0", Exclude: []rerank.ID{rerank.UintID(31)}, Exact: true, UnitVectors: true, Owner: "item",
		Consistency: "Eventually", Partitions: []string{"_default"},
	}
	if names := recorder.Unset(search, map[string]string{"WithVectors": "below", "Payload": "the conformance kit", "PayloadFields": "the conformance kit", "Rescore": "Milvus has no such parameter", "EF": "below", "Versions": "Milvus keeps none"}); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	for withVectors, ef := range map[bool]string{false: "77", true: "99"} {
		if search.WithVectors, search.EF = withVectors, 0; withVectors {
			search.EF = 99 // in place of the store's
		}
		_, err := s.Search(ctx, search)
		wants(err)
		got := sentBy[*milvuspb.SearchRequest](t, w, milvuspb.MilvusService_Search_FullMethodName)[0]
		if got.GetCollectionName() != "c" || !slices.Equal(got.GetPartitionNames(), []string{"_default"}) || !strings.Contains(got.GetDsl(), "likeness_id > 0") || !strings.Contains(got.GetDsl(), `not in ["31"]`) || got.GetNq() != 1 ||
			got.GetConsistencyLevel() != commonpb.ConsistencyLevel_Eventually || got.GetUseDefaultConsistency() || value(got.GetSearchParams(), "topk") != "7" {
			t.Errorf("a search is sent as %v", got)
		}
		if owner := slices.ContainsFunc(got.GetOutputFields(), func(f string) bool { return strings.Contains(f, "item") || strings.Contains(f, "owner") }); !owner || len(got.GetOutputFields()) != 1+len(map[bool][]int{true: {1}, false: {}}[withVectors]) {
			t.Errorf("a search asks for the fields %q", got.GetOutputFields())
		}
		if p := value(got.GetSearchParams(), "params"); !strings.Contains(p, ef) {
			t.Errorf("the store's parameters are %s", p)
		}
	}

	fetch := adapters.FetchRequest{Collection: "c", IDs: ids, Vectors: []string{"b"}, Consistency: "Eventually"}
	for _, owner := range []string{"", "item"} {
		fetch.Owner = owner
		_, err := s.Fetch(ctx, fetch)
		wants(err)
		for _, q := range sentBy[*milvuspb.QueryRequest](t, w, milvuspb.MilvusService_Query_FullMethodName) {
			if q.GetCollectionName() != "c" || q.GetConsistencyLevel() != commonpb.ConsistencyLevel_Eventually || q.GetUseDefaultConsistency() || !strings.Contains(q.GetExpr(), "1") || !strings.Contains(q.GetExpr(), "2") {
				t.Errorf("ids are fetched by %v", q)
			}
		}
	}
	scan := adapters.ScanRequest{Collection: "c", Vectors: []string{"b"}, Filter: "likeness_id > 1", Owner: "item", Batch: 1}
	rows := 0
	wants(s.Scan(ctx, scan, func(r adapters.Rows, _ string) error {
		rows += len(r.IDs)
		return nil
	}))
	for _, q := range sentBy[*milvuspb.QueryRequest](t, w, milvuspb.MilvusService_Query_FullMethodName) {
		if n, err := strconv.Atoi(value(q.GetQueryParams(), "limit")); !strings.Contains(q.GetExpr(), "likeness_id > 1") || err != nil || n < 1 {
			t.Errorf("rows are scanned by %v", q)
		}
	}
	if rows != 1 {
		t.Errorf("%d rows scanned, want the one behind the filter", rows)
	}
	matched, err := s.Match(ctx, "c", "likeness_id > 1")
	wants(err)
	for _, q := range sentBy[*milvuspb.QueryRequest](t, w, milvuspb.MilvusService_Query_FullMethodName) {
		if !strings.Contains(q.GetExpr(), "likeness_id > 1") {
			t.Errorf("a filter is matched by %v", q)
		}
	}
	if len(matched) != 1 {
		t.Errorf("%d ids matched", len(matched))
	}
}

// TestCredentialsOfACall: a call for a caller has the caller's credentials alone, every
// other one the store's own.
func TestCredentialsOfACall(t *testing.T) {
	server := servers.MilvusLiteForTest(t, servers.Options{})
	for name, o := range map[string]milvus.Options{"password": {Username: "own", Password: "secret"}, "key": {APIKey: "own:secret"}} {
		w := &wiretap{}
		o.Address, o.DialOptions = server.Address, []grpc.DialOption{w.dialOption()}
		s := open(t, o)
		w.take()
		theirs := adapters.AsCaller(metadata.NewOutgoingContext(t.Context(), metadata.Pairs("authorization", "theirs")))
		for _, c := range []struct {
			ctx  context.Context
			want []string
		}{{t.Context(), []string{"b3duOnNlY3JldA=="}}, {theirs, []string{"theirs"}}, {adapters.AsCaller(t.Context()), nil}} {
			_, _ = s.Describe(c.ctx, "none of that name")
			calls := w.take()
			for _, call := range calls {
				if !slices.Equal(call.authorization, c.want) {
					t.Errorf("%s: %s came with %q, want %q", name, call.method, call.authorization, c.want)
				}
			}
			if len(calls) == 0 {
				t.Errorf("%s: no call", name)
			}
		}
	}
}
