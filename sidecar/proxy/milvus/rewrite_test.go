package milvus_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/proxy/recording"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// rewriting serves a route that rewrites searches by W, and returns a client of the proxy.
func rewriting(t *testing.T, address string, w []float32, rules ...string) (c milvuspb.MilvusServiceClient, stop func()) {
	t.Helper()
	at, stop := rewritingAt(t, address, w, rules...)
	return connect(t, at.Proxy.GRPC), stop
}

func rewritingAt(t *testing.T, address string, w []float32, rules ...string) (at serve.Addresses, stop func()) {
	t.Helper()
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": {Shape: []int{4, 4}, Data: w}},
		Config: []byte(`{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":false,"form":"full"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return recording.Sidecar(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: milvus, address: %q}}
models: {w: {path: w.safetensors}}
routes: {things: {store: main, collection: routed, vector: vec, model: w, placement: rewrite%s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, address, strings.Join(rules, "")), map[string]*model.Model{"w.safetensors": m})
}

func connect(t *testing.T, address string) milvuspb.MilvusServiceClient {
	t.Helper()
	return milvuspb.NewMilvusServiceClient(dial(t, address))
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// wholeRewrite returns a search with every field set that rewriting forwards.
func wholeRewrite(t *testing.T, queries [][]float32) *milvuspb.SearchRequest {
	m := wholeSearch(t, queries)
	m.SearchParams = parameters("anns_field", "vec", "topk", "3", "offset", "1", "metric_type", "IP", "params", `{"nprobe":3}`, "round_decimal", "-1")
	return m
}

// The matrices of these tests. quarter rotates by quarter turns, which needs no rounding.
var (
	identity = []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}
	quarter  = []float32{0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0}
)

func turned(v []float32) []float32 { return []float32{-v[1], v[0], -v[3], v[2]} }

// TestRewrittenCallsReachMilvusWhole: for one call of each client the database gets every field and
// credential, and only the vectors differ.
func TestRewrittenCallsReachMilvusWhole(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	up := recording.Before(t, db.Address, "")
	c, stop := rewriting(t, up.GRPC, quarter)
	requests := map[string]*milvuspb.SearchRequest{"one": wholeRewrite(t, asked[:1]), "two": wholeRewrite(t, asked)}
	for name, request := range requests {
		if state := send(t, c, name, request); !strings.HasPrefix(state, "rewritten; route=things; certificate=") {
			t.Errorf("%s: %q", name, state)
		}
	}
	stop()
	got := byCaller(up.Requests(t))
	for name, request := range requests {
		var searches []harness.Exchange
		for _, e := range got[name] {
			if strings.HasSuffix(e.Method(), "Search") { // the first search also reads the schema
				searches = append(searches, e)
			}
		}
		if len(searches) != 1 || searches[0].Method() != milvuspb.MilvusService_Search_FullMethodName {
			t.Errorf("%s: %d calls reached the database: %v", name, len(searches), searches)
			continue
		}
		vectors := [][]float32{turned(asked[0])}
		if name == "two" {
			vectors = append(vectors, turned(asked[1]))
		}
		want, sent := proto.Clone(request).(*milvuspb.SearchRequest), &milvuspb.SearchRequest{}
		want.PlaceholderGroup = group(t, vectors)
		if err := proto.Unmarshal(searches[0].Body, sent); err != nil || !proto.Equal(sent, want) {
			t.Errorf("%s: %v differs in %q", name, sent, recording.Changed(sent, want))
		}
		if other := searches[0].Metadata["x-other"]; len(other) != 1 || other[0] != name {
			t.Errorf("%s: came with x-other %q", name, other)
		}
	}
}

// If W is the identity, the answer is the database's own. If W rotates the query, it is the
// database's answer to the rotated query.
func TestRewrittenAnswersOfMilvus(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	direct := connect(t, db.Address)
	for name, w := range map[string][]float32{"identity": identity, "quarter": quarter} {
		c, stop := rewriting(t, db.Address, w)
		for n := 1; n <= 2; n++ {
			queries := [][]float32{asked[0], asked[1]}[:n]
			same := [][]float32{asked[0], asked[1]}[:n]
			if name == "quarter" {
				for i := range same {
					same[i] = turned(same[i])
				}
			}
			var trailer metadata.MD
			got, err := c.Search(t.Context(), wholeRewrite(t, queries), grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			want, err := direct.Search(t.Context(), wholeRewrite(t, same))
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) || len(got.GetResults().GetScores()) == 0 || !strings.HasPrefix(strings.Join(trailer.Get("likeness-status"), ","), "rewritten; ") {
				t.Errorf("%s, %d: %v (%q), want %v", name, n, got, trailer, want)
			}
		}
		stop()
	}
}

// A search whose meaning depends on the database's scores is rewritten only if φ has the same
// scores.
func TestScoresThatStayInMilvus(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	cut := wholeRewrite(t, asked[:1])
	cut.SearchParams = parameters("anns_field", "vec", "topk", "3", "metric_type", "IP", "params", `{"radius":0.5}`, "round_decimal", "-1")
	c, stop := rewriting(t, db.Address, identity)
	defer stop()
	if state := send(t, c, "x", cut); !strings.HasPrefix(state, "rewritten; ") {
		t.Errorf("%q", state)
	}
}

// TestRewrittenExactSearch: a client's search has the certificate of the same search by the API. Milvus has no
// parameter for an exhaustive search, so exact_search adds none.
func TestRewrittenExactSearch(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	up := recording.Before(t, db.Address, "")
	at, stop := rewritingAt(t, up.GRPC, identity, ", exact_search: true, ef: 77")
	answer, err := likenessv1.NewSearchServiceClient(dial(t, at.GRPC)).Search(t.Context(), &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: asked[0]}, K: 3})
	if err != nil || answer.GetCertificate().GetStatus() != likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT {
		t.Errorf("%v, %v", answer, err)
	}
	const caller = "plain"
	plain := wholeRewrite(t, asked[:1])
	plain.SearchParams = parameters("anns_field", "vec", "topk", "3", "metric_type", "IP")
	if state := send(t, connect(t, at.Proxy.GRPC), caller, plain); state != "rewritten; route=things; certificate=exact" {
		t.Errorf("%q", state)
	}
	stop()
	sent := &milvuspb.SearchRequest{}
	searches := recording.Of(byCaller(up.Requests(t))[caller], milvuspb.MilvusService_Search_FullMethodName)
	plain.SearchParams = append(plain.SearchParams, parameters("params", `{"ef":77}`)...)
	if len(searches) != 1 || proto.Unmarshal(searches[0].Body, sent) != nil || !proto.Equal(sent, plain) {
		t.Errorf("%v, want %v", sent, plain)
	}
}

// TestRewrittenHybridSearches: if a route rewrites legs, the lists of a hybrid search are searched
// by the similarity and fused by an RRF ranker. With any other ranker, which uses scores, the
// search passes.
func TestRewrittenHybridSearches(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	direct := connect(t, db.Address)
	of := func(ranker string, vector []float32) *milvuspb.HybridSearchRequest {
		one, other := list(t, "id < 30"), list(t, "id > 20")
		for _, m := range []*milvuspb.SearchRequest{one, other} {
			m.PlaceholderGroup = group(t, [][]float32{vector})
		}
		h := wholeHybrid(t, one, other)
		h.RankParams = parameters("strategy", ranker, "params", `{"k":60,"weights":[0.5,0.5]}`, "limit", "5", "round_decimal", "-1")
		return h
	}
	for rules, states := range map[string]map[string]string{
		"":                             {"rrf": "passed; reason=hybrid"},
		", rewrite_legs: true, ef: 64": {"rrf": "rewritten; route=things; certificate=unknown", "weighted": "passed; reason=hybrid"},
	} {
		c, stop := rewriting(t, db.Address, quarter, rules)
		for ranker, state := range states {
			var trailer metadata.MD
			got, err := c.HybridSearch(t.Context(), of(ranker, asked[0]), grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			vector := asked[0]
			if strings.HasPrefix(state, "rewritten") {
				vector = turned(vector)
			}
			want, err := direct.HybridSearch(t.Context(), of(ranker, vector))
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) || len(got.GetResults().GetScores()) == 0 || strings.Join(trailer.Get("likeness-status"), ",") != state {
				t.Errorf("%q, %s: %v (%q), want %v", rules, ranker, got, trailer.Get("likeness-status"), want)
			}
		}
		stop()
	}
}
