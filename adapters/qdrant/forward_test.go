package qdrant_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

// sent is a call to a server.
type sent struct {
	method  string
	request proto.Message
	key     []string
	timed   bool
}

// wiretap notes the calls of a connection, with the credentials that they end up with.
type wiretap struct {
	mu  sync.Mutex
	all []sent
}

func (w *wiretap) dialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		_, timed := ctx.Deadline()
		w.mu.Lock()
		w.all = append(w.all, sent{method, proto.Clone(req.(proto.Message)), md.Get("api-key"), timed})
		w.mu.Unlock()
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

// of returns the requests of a method, and forgets everything.
func of[M proto.Message](t *testing.T, w *wiretap, method string) (all []M) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.all {
		if s.method == method {
			all = append(all, s.request.(M))
		}
		if !s.timed {
			t.Errorf("%s has no deadline", s.method)
		}
	}
	w.all = nil
	if len(all) == 0 {
		t.Fatalf("no call of %s", method)
	}
	return all
}

// TestRequestsReachTheServerWhole: every field of every request of an adapter is seen in
// what the server is sent.
func TestRequestsReachTheServerWhole(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	w := &wiretap{}
	s := open(t, qdrant.Options{Address: server.Address, DialOptions: []grpc.DialOption{w.dialOption()}})
	defer s.Close()
	ids := []rerank.ID{rerank.UintID(1), rerank.UintID(2)}
	schema := adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Name: "a", Dim: 2, Metric: adapters.InnerProduct}, {Name: "b", Dim: 2, Metric: adapters.L2}}, Owner: "item"}
	must(t, s.Create(t.Context(), schema))
	vectors := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}}
	must(t, s.Write(t.Context(), "c", schema, adapters.Rows{IDs: ids, Vectors: []rerank.Matrix{vectors, vectors}, Owners: ids}))
	ctx, cancel := context.WithTimeout(t.Context(), 41*time.Second)
	defer cancel()

	search := adapters.SearchRequest{
		Collection: "c", Vector: "b", Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: 7}, {Vector: []float32{0, 1}, Depth: 8, Field: "a"}},
		Filter: `{"must":[{"key":"n","match":{"value":1}}]}`, Exclude: []rerank.ID{rerank.UintID(5), rerank.TextID("sku")}, Exact: true, UnitVectors: true, Owner: "item", Consistency: "quorum", Partitions: []string{"north", "south"},
	}
	if names := recorder.Unset(search, map[string]string{"WithVectors": "with a single probe, below", "Payload": "with a single probe, below", "PayloadFields": "with a single probe, below", "Rescore": "TestRescore", "EF": "TestExhaustiveSearches", "Versions": "every answer has them: TestVersionsOfRows"}); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	quorum := client.NewReadConsistencyType(client.ReadConsistencyType_Quorum)
	first := client.NewMatchInt("n", 1) // the filter's only condition
	want := func(using string, limit uint64, vector ...float32) *client.QueryPoints {
		return &client.QueryPoints{
			CollectionName: "c", Query: client.NewQueryDense(vector), Using: proto.String(using), Limit: proto.Uint64(limit),
			Filter: &client.Filter{
				Must:    []*client.Condition{first},
				MustNot: []*client.Condition{client.NewMatchInts("item", 5), client.NewMatchKeywords("item", "sku")},
			},
			Params:           &client.SearchParams{Exact: proto.Bool(true), Quantization: &client.QuantizationSearchParams{Ignore: proto.Bool(true)}},
			WithPayload:      client.NewWithPayloadInclude("item"),
			ShardKeySelector: &client.ShardKeySelector{ShardKeys: []*client.ShardKey{client.NewShardKeyKeyword("north"), client.NewShardKeyKeyword("south")}},
		}
	}
	_, _ = s.Search(ctx, search) // the collection has no shard keys, and says so
	batch := of[*client.QueryBatchPoints](t, w, client.Points_QueryBatch_FullMethodName)[0]
	if n := batch.GetTimeout(); n == 0 || n > 41 || !proto.Equal(batch.GetReadConsistency(), quorum) || batch.GetCollectionName() != "c" {
		t.Errorf("the batch is %v", batch)
	}
	for i, q := range []*client.QueryPoints{want("b", 7, 1, 0), want("a", 8, 0, 1)} {
		q.Timeout = batch.Timeout
		if !proto.Equal(batch.GetQueryPoints()[i], q) {
			t.Errorf("probe %d is sent as %v, want %v", i, batch.GetQueryPoints()[i], q)
		}
	}
	content := search
	content.Probes, content.Payload, content.PayloadFields, content.Owner = content.Probes[:1], true, []string{"n", "m"}, ""
	content.Exclude = content.Exclude[:1]
	_, _ = s.Search(ctx, content)
	if fields := of[*client.QueryBatchPoints](t, w, client.Points_QueryBatch_FullMethodName)[0].GetQueryPoints()[0].GetWithPayload(); !slices.Equal(fields.GetInclude().GetFields(), []string{"n", "m"}) {
		t.Errorf("two payload fields are asked for by %v", fields)
	}
	ranked := search
	ranked.Probes, ranked.Owner, ranked.WithVectors, ranked.Vector = []rerank.Probe{{Vector: []float32{1, 0}, Depth: 7}}, "", true, "a"
	ranked.Exclude = []rerank.ID{rerank.UintID(5), rerank.TextID("5C56C79369F34FBF87E6C4BF54C28C26")}
	_, _ = s.Search(ctx, ranked)
	q := of[*client.QueryBatchPoints](t, w, client.Points_QueryBatch_FullMethodName)[0].GetQueryPoints()[0]
	if !slices.Equal(q.GetWithVectors().GetInclude().GetNames(), []string{"a"}) || q.GetWithPayload().GetEnable() {
		t.Errorf("a search with vectors is sent as %v", q)
	}
	plain := want("a", 7, 1, 0)
	plain.Filter.MustNot = []*client.Condition{client.NewHasID(client.NewIDNum(5), client.NewIDUUID("5c56c793-69f3-4fbf-87e6-c4bf54c28c26"))}
	plain.WithPayload, plain.WithVectors, plain.Timeout = q.GetWithPayload(), q.GetWithVectors(), q.Timeout
	if !proto.Equal(q, plain) {
		t.Errorf("a search with vectors is sent as %v, want %v", q, plain)
	}

	fetch := adapters.FetchRequest{Collection: "c", IDs: ids, Vectors: []string{"a"}, Owner: "item", Payload: true, PayloadFields: []string{"n"}, Consistency: "quorum"}
	if names := recorder.Unset(fetch, nil); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	_, err := s.Fetch(ctx, fetch)
	must(t, err)
	scroll := of[*client.ScrollPoints](t, w, client.Points_Scroll_FullMethodName)[0]
	if n := scroll.GetTimeout(); n == 0 || n > 41 || !proto.Equal(scroll.GetReadConsistency(), quorum) || scroll.GetCollectionName() != "c" ||
		!slices.Equal(scroll.GetWithPayload().GetInclude().GetFields(), []string{"n", "item"}) || !slices.Equal(scroll.GetWithVectors().GetInclude().GetNames(), []string{"a"}) || len(scroll.GetFilter().GetShould()) != 1 {
		t.Errorf("owners are fetched by %v", scroll)
	}
	for _, payload := range []bool{true, false} {
		fetch.Owner, fetch.Payload = "", payload
		if !payload {
			fetch.PayloadFields = nil
		}
		_, err = s.Fetch(ctx, fetch)
		must(t, err)
		get := of[*client.GetPoints](t, w, client.Points_Get_FullMethodName)[0]
		wantGet := &client.GetPoints{
			CollectionName: "c", Ids: []*client.PointId{client.NewIDNum(1), client.NewIDNum(2)}, WithVectors: client.NewWithVectorsInclude("a"),
			WithPayload: client.NewWithPayload(false), ReadConsistency: quorum, Timeout: get.Timeout,
		}
		if payload {
			wantGet.WithPayload = client.NewWithPayloadInclude("n")
		}
		if !proto.Equal(get, wantGet) || get.GetTimeout() == 0 || get.GetTimeout() > 41 {
			t.Errorf("ids are fetched by %v, want %v", get, wantGet)
		}
	}

	scan := adapters.ScanRequest{Collection: "c", Vectors: []string{"a"}, Filter: search.Filter, Owner: "item", Payload: true, PayloadFields: []string{"n"}, Batch: 1}
	if names := recorder.Unset(scan, map[string]string{"Cursor": "the conformance kit's", "Until": "the conformance kit's"}); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	must(t, s.Scan(ctx, scan, func(adapters.Rows, string) error { return nil }))
	scroll = of[*client.ScrollPoints](t, w, client.Points_Scroll_FullMethodName)[0]
	if !proto.Equal(scroll.GetFilter(), &client.Filter{Must: []*client.Condition{first}}) || scroll.GetLimit() != 1 || !slices.Equal(scroll.GetWithPayload().GetInclude().GetFields(), []string{"n", "item"}) ||
		!slices.Equal(scroll.GetWithVectors().GetInclude().GetNames(), []string{"a"}) || scroll.GetTimeout() == 0 {
		t.Errorf("rows are scanned by %v", scroll)
	}
	_, err = s.Match(ctx, "c", search.Filter)
	must(t, err)
	scroll = of[*client.ScrollPoints](t, w, client.Points_Scroll_FullMethodName)[0]
	if !proto.Equal(scroll.GetFilter(), &client.Filter{Must: []*client.Condition{first}}) || scroll.GetCollectionName() != "c" {
		t.Errorf("a filter is matched by %v", scroll)
	}
}

// TestCredentialsOfACall: a call for a caller has the caller's key alone, every other one
// the store's own, whatever the context holds.
func TestCredentialsOfACall(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: "own"})
	s := open(t, qdrant.Options{Address: server.Address, APIKey: "own"})
	defer s.Close()
	theirs := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", "wrong"))
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("with the store's own: %v", err)
	}
	if err := s.Ping(adapters.AsCaller(t.Context())); err == nil {
		t.Error("a caller without a key has the store's")
	}
	if err := s.Ping(adapters.AsCaller(theirs)); err == nil {
		t.Error("a caller with a wrong key has the store's")
	}
	if err := s.Ping(adapters.AsCaller(metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", "own")))); err != nil {
		t.Errorf("a caller with the key: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
