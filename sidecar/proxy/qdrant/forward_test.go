package qdrant_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/proxy/recording"
)

// ownKey is the sidecar's own key. The callers' keys are the names of their cases.
const ownKey = "key-of-the-sidecar"

var asked = []float32{1, -2, 0.5, 3}

// byNumber is the filter of every search here.
func byNumber() *client.Filter {
	return &client.Filter{Must: []*client.Condition{client.NewMatchInt("n", 1)}}
}

const byNumberJSON = `{"must":[{"key":"n","match":{"value":1}}]}`

// wholeSearch returns a search with every field set that a route answers.
func wholeSearch() *client.SearchPoints {
	return &client.SearchPoints{
		CollectionName: "routed", Vector: asked, Filter: byNumber(), Limit: 3, WithPayload: client.NewWithPayloadInclude("n"), Params: wholeParams(),
		ScoreThreshold: proto.Float32(-1000), Offset: proto.Uint64(1), VectorName: proto.String("vec"), WithVectors: client.NewWithVectors(true),
		ReadConsistency: client.NewReadConsistencyType(client.ReadConsistencyType_All), Timeout: proto.Uint64(40),
	}
}

func wholeParams() *client.SearchParams {
	return &client.SearchParams{HnswEf: proto.Uint64(99), Exact: proto.Bool(true), IndexedOnly: proto.Bool(true), Quantization: &client.QuantizationSearchParams{Rescore: proto.Bool(true)}, Acorn: &client.AcornSearchParams{Enable: proto.Bool(true)}}
}

func wholeQuery() *client.QueryPoints {
	return &client.QueryPoints{
		CollectionName: "routed", Query: client.NewQueryDense(asked), Using: proto.String("vec"), Filter: byNumber(), Params: wholeParams(),
		ScoreThreshold: proto.Float32(-1000), Limit: proto.Uint64(3), Offset: proto.Uint64(1), WithVectors: client.NewWithVectors(true),
		WithPayload: client.NewWithPayloadInclude("n"), ReadConsistency: client.NewReadConsistencyType(client.ReadConsistencyType_All), Timeout: proto.Uint64(40),
	}
}

// Fields that are not set, and why.
var (
	notOfASearch = map[string]string{"shard_key_selector": "it passes, below", "sparse_indices": "it is no dense vector"}
	notOfAQuery  = map[string]string{"shard_key_selector": "it passes, below", "lookup_from": "it passes", "prefetch": "TestPrefetchesArriveWhole"}
)

// asking is a client's call, over gRPC or REST.
type asking struct {
	method  string        // of gRPC
	request proto.Message // of gRPC
	path    string        // of REST
	body    string        // of REST
}

func (a asking) name() string {
	return strings.ReplaceAll(strings.Trim(a.method+a.path, "/"), "/", ".")
}

// askings returns calls that a route answers, with every field set.
func askings(t testing.TB) []asking {
	t.Helper()
	if names := append(recording.Unset(wholeSearch(), notOfASearch), recording.Unset(wholeQuery(), notOfAQuery)...); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	if names := recording.Unset(wholeParams(), nil); len(names) > 0 {
		t.Fatalf("the test does not set %q of the parameters", names)
	}
	all := client.NewReadConsistencyType(client.ReadConsistencyType_All)
	const common = `,"filter":` + byNumberJSON + `,"params":{"hnsw_ef":99,"exact":true,"indexed_only":true,"quantization":{"rescore":true}},"limit":3,"offset":1,` +
		`"with_payload":["n"],"with_vector":true,"score_threshold":-1000.0}`
	const search, query = `{"vector":{"name":"vec","vector":[1,-2,0.5,3]}` + common, `{"query":[1,-2,0.5,3],"using":"vec"` + common
	return []asking{
		{method: client.Points_Search_FullMethodName, request: wholeSearch()},
		{method: client.Points_Query_FullMethodName, request: wholeQuery()},
		{method: client.Points_SearchBatch_FullMethodName, request: &client.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*client.SearchPoints{wholeSearch(), wholeSearch()}, ReadConsistency: all, Timeout: proto.Uint64(40)}},
		{method: client.Points_QueryBatch_FullMethodName, request: &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*client.QueryPoints{wholeQuery(), wholeQuery()}, ReadConsistency: all, Timeout: proto.Uint64(40)}},
		{path: "search", body: search},
		{path: "query", body: query},
		{path: "search/batch", body: `{"searches":[` + search + `,` + search + `]}`},
		{path: "query/batch", body: `{"searches":[` + query + `,` + query + `]}`},
	}
}

const arguments = "?consistency=all&timeout=40"

// send makes the call with a key, and returns the proxy's status.
func (a asking) send(t testing.TB, conn *grpc.ClientConn, rest, key string) (state string) {
	t.Helper()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", key, "authorization", "Bearer "+key, "x-other", key))
	accept(ctx, t, conn)
	if a.method != "" {
		var trailer metadata.MD
		answer := map[string]proto.Message{
			client.Points_Search_FullMethodName: &client.SearchResponse{}, client.Points_Query_FullMethodName: &client.QueryResponse{},
			client.Points_SearchBatch_FullMethodName: &client.SearchBatchResponse{}, client.Points_QueryBatch_FullMethodName: &client.QueryBatchResponse{},
			client.Points_SearchGroups_FullMethodName: &client.SearchGroupsResponse{}, client.Points_QueryGroups_FullMethodName: &client.QueryGroupsResponse{},
		}[a.method]
		err := conn.Invoke(ctx, a.method, a.request, answer, grpc.Trailer(&trailer))
		if state = strings.Join(trailer.Get("likeness-status"), ","); err != nil && state == "" {
			t.Errorf("%s: %v", key, err)
		}
		return state
	}
	in, err := http.NewRequestWithContext(t.Context(), http.MethodPost, rest+"/collections/routed/points/"+a.path+arguments, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	in.Header.Set("Content-Type", "application/json")
	in.Header.Set("Api-Key", key)
	in.Header.Set("Authorization", "Bearer "+key)
	in.Header.Set("X-Other", key)
	answer, err := restClient.Do(in)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get("Likeness-Status")
}

// accept makes the database accept the caller of ctx, by a call that passes and that byCaller
// leaves out.
func accept(ctx context.Context, t testing.TB, conn *grpc.ClientConn) {
	t.Helper()
	_, err := client.NewPointsClient(conn).Recommend(ctx, &client.RecommendPoints{
		CollectionName: "routed", Positive: []*client.PointId{client.NewIDNum(1)}, Using: proto.String("vec"), Limit: 1,
	})
	if err != nil {
		t.Error(err)
	}
}

// byCaller groups requests by the caller's key. Requests that check whether a caller is accepted
// are left out.
func byCaller(all []harness.Exchange) map[string][]harness.Exchange {
	return recording.ByHeader(slices.DeleteFunc(all, func(e harness.Exchange) bool {
		return e.Method() == client.Points_Recommend_FullMethodName
	}), "api-key")
}

// restClient asks the proxy's REST listener.
var restClient = &http.Client{Transport: &http.Transport{}}

// before runs a sidecar, with rules for its route, in front of a database behind taps. It calls
// ask, and returns the requests that reached the database, by the caller's key.
func before(t *testing.T, db *servers.Server, rules string, ask func(up *recording.Upstream, conn *grpc.ClientConn, rest string)) map[string][]harness.Exchange {
	t.Helper()
	up := recording.Before(t, db.Address, db.REST)
	w := tensor.Tensor{Shape: []int{4, 4}, Data: []float32{0, 1, 0, 0, 2, 0, 0, 0, 0, 0, -1, 0, 0.5, 0, 0, 1}}
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": w},
		Config: []byte(`{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":false,"form":"full"}`)})
	if err != nil {
		t.Fatal(err)
	}
	at, stop := recording.Sidecar(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: qdrant, address: %q, api_key_env: OWN_KEY}}
models: {w: {path: w.safetensors}}
routes: {things: {store: main, collection: routed, vector: vec, model: w, placement: stored, depth: 20, consistency: majority, %s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, up.GRPC, rules, up.REST), map[string]*model.Model{"w.safetensors": m}, "OWN_KEY="+ownKey)
	conn, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ask(up, conn, "http://"+at.Proxy.REST)
	_ = conn.Close()
	restClient.CloseIdleConnections()
	stop()
	return byCaller(up.Requests(t))
}

// fillQdrant makes the collections, of points whose payload has a number.
func fillQdrant(t testing.TB, db *servers.Server, more ...*client.CreateCollection) {
	t.Helper()
	conn, err := grpc.NewClient(db.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var points []*client.PointStruct
	for i := range 60 {
		x := float32(i)
		points = append(points, &client.PointStruct{
			Id: client.NewIDNum(uint64(i)), Payload: client.NewValueMap(map[string]any{"n": int64(i % 3)}),
			Vectors: client.NewVectorsMap(map[string]*client.Vector{"vec": client.NewVector(x/7, 2-x/5, x*x/100, 1/(1+x))}),
		})
	}
	for _, create := range append(more, &client.CreateCollection{CollectionName: "routed"}, &client.CreateCollection{CollectionName: "other"}) {
		create.VectorsConfig = client.NewVectorsConfigMap(map[string]*client.VectorParams{"vec": {Size: 4, Distance: client.Distance_Dot}})
		_, err := client.NewCollectionsClient(conn).Create(t.Context(), create)
		if err == nil {
			_, err = client.NewPointsClient(conn).Upsert(t.Context(), &client.UpsertPoints{CollectionName: create.GetCollectionName(), Wait: proto.Bool(true), Points: points})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ways lists what can happen to a call: which requests reach the database for it.
var ways = []struct {
	name, rules string
	state       string // begins so
	original    bool   // the call as it came
	rescored    bool   // the first stage, and the confirming read
	store       bool   // scores are the store's
	twice       bool   // each call is made twice, and counts the second time
	raced       bool   // the original can be first, which ends the rescoring at any call
}{
	{name: "rescored", rules: optIn + "exact_search: true", state: "rescored; ", rescored: true},
	{name: "store scores", rules: optIn + "exact_search: true, score: store", state: "rescored; ", rescored: true, store: true},
	{name: "eager", rules: optIn + "exact_search: true, fallback: eager", original: true, rescored: true, raced: true},
	{name: "shadow", rules: optIn + "exact_search: true, shadow: {share: 1}", state: "shadow; ", original: true, rescored: true},
	{name: "not exact", rules: optIn + "exact_search: false", state: "passed; reason=exact", original: true},
	{name: "not opted in", rules: "exact_search: true", state: "passed; reason=", original: true},
	{name: "overload", rules: optIn + "exact_search: true, rate: 0.001, burst: 1", state: "degraded; reason=overload", original: true, twice: true},
}

const optIn = "opt_in: [score-threshold, indexed-only, consistency, prefetch], "

// TestCallsReachTheDatabaseWhole: however a call is answered, the requests that it causes have all
// its fields and the caller's credentials, except the fields that are listed here as changed.
func TestCallsReachTheDatabaseWhole(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			calls := askings(t)
			lost := map[string]bool{} // by name, the calls whose original request was first
			got := before(t, db, way.rules, func(up *recording.Upstream, conn *grpc.ClientConn, rest string) {
				if way.twice { // the first of all takes what there is
					calls[0].send(t, conn, rest, "nobody")
				}
				for _, a := range calls {
					state := a.send(t, conn, rest, a.name())
					if !strings.HasPrefix(state, way.state) {
						t.Errorf("%s: %q, want %q", a.name(), state, way.state)
					}
					lost[a.name()] = way.raced && state == "degraded; reason=deadline"
				}
				if way.rescored { // what runs beside the calls ends too
					wait := slices.DeleteFunc(slices.Clone(calls), func(a asking) bool { return lost[a.name()] })
					up.Await(t, func(all []harness.Exchange) bool { return confirmed(wait, all) })
				}
			})
			for _, a := range calls {
				t.Run(a.name(), func(t *testing.T) {
					theirs := got[a.name()]
					originals, others := a.split(theirs)
					if n := len(originals); way.original != (n > 0) || n > 1 {
						t.Errorf("the call reached the database as it came %d times", n)
					}
					for _, o := range originals {
						a.wantCaller(t, o)
					}
					first, confirms := a.wantRescoring(t, others, way.store)
					n := a.searches()
					if !way.rescored {
						n = 0
					}
					if first > n || confirms > 1 || first+confirms > 0 && n == 0 || (first < n || confirms == 0 && n > 0) && !lost[a.name()] {
						t.Errorf("%d first stages and %d confirming reads, want %d and one for all; rescored: %t", first, confirms, n, way.rescored)
					}
				})
			}
			for _, own := range got[ownKey] {
				if strings.HasPrefix(own.Method(), "/qdrant.Points/") && own.Method() != client.Points_Query_FullMethodName && own.Method() != client.Points_Scroll_FullMethodName {
					t.Errorf("%s is asked with the sidecar's own key", own.Call)
				}
			}
			keys := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(k string) bool {
				return k == ownKey || k == "nobody" || slices.ContainsFunc(calls, func(a asking) bool { return a.name() == k })
			})
			for _, k := range keys {
				for _, e := range got[k] {
					if k == "" && e.Call == "GET /" {
						continue // the sidecar asks whether this is Qdrant's REST API
					}
					t.Errorf("%s came with the key %q", e.Call, k)
				}
			}
		})
	}
}

// confirmed reports whether one interface of the database has answered a confirming read for each
// of its calls.
func confirmed(calls []asking, all []harness.Exchange) bool {
	rest := slices.ContainsFunc(all, func(e harness.Exchange) bool { return strings.HasPrefix(e.Call, "POST ") })
	by := recording.ByHeader(all, "api-key")
	for _, a := range calls {
		if (a.path != "") != rest {
			continue
		}
		_, others := a.split(by[a.name()])
		if !slices.ContainsFunc(others, func(e harness.Exchange) bool { return !e.Cut && a.isConfirm(e) }) {
			return false
		}
	}
	return true
}

// isConfirm reports whether a request confirms hits: it uses the call's own method, narrowed by
// ids.
func (a asking) isConfirm(e harness.Exchange) bool {
	if a.path != "" {
		return strings.HasPrefix(e.Call, "POST /collections/routed/points/"+a.path+"?") && bytes.Contains(e.Body, []byte("has_id"))
	}
	m := a.request.ProtoReflect().New().Interface()
	if e.Method() != a.method || proto.Unmarshal(e.Body, m) != nil {
		return false
	}
	for _, p := range parts(m) {
		must := p.(interface{ GetFilter() *client.Filter }).GetFilter().GetMust()
		if len(must) == 0 || must[0].GetHasId() == nil {
			return false
		}
	}
	return true
}

// isSample tells an adapter's sample of the vectors' lengths.
func isSample(e harness.Exchange) bool {
	m, sample := &client.QueryPoints{}, false
	if e.Method() == client.Points_Query_FullMethodName && proto.Unmarshal(e.Body, m) == nil {
		_, sample = m.GetQuery().GetVariant().(*client.Query_Sample)
	}
	return sample
}

// split separates the requests that are the unchanged call from the others.
func (a asking) split(all []harness.Exchange) (originals, others []harness.Exchange) {
	for _, e := range all {
		same := a.path != "" && bytes.Equal(e.Body, []byte(a.body)) && e.Call == "POST /collections/routed/points/"+a.path+arguments
		if a.method != "" && e.Method() == a.method {
			m := a.request.ProtoReflect().New().Interface()
			same = proto.Unmarshal(e.Body, m) == nil && proto.Equal(m, a.request)
		}
		if same {
			originals = append(originals, e)
		} else {
			others = append(others, e)
		}
	}
	return originals, others
}

// wantCaller wants the caller's own metadata, all of it, on a request.
func (a asking) wantCaller(t *testing.T, e harness.Exchange) {
	t.Helper()
	for name, want := range map[string]string{"api-key": a.name(), "authorization": "Bearer " + a.name(), "x-other": a.name()} {
		if got := e.Metadata[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s came with %s %q, want %q", e.Call, name, got, want)
		}
	}
}

// wantRescoring compares the first stages and the confirming reads with the call, and counts them.
func (a asking) wantRescoring(t *testing.T, all []harness.Exchange, store bool) (first, confirms int) {
	t.Helper()
	for _, e := range all {
		if got := e.Metadata["authorization"]; !slices.Equal(got, []string{"Bearer " + a.name()}) {
			t.Errorf("%s came with the authorization %q", e.Call, got)
		}
		switch {
		case e.Method() == client.Points_QueryBatch_FullMethodName && isFirstStage(e):
			first++
			a.wantFirstStage(t, e)
		case isSample(e), strings.HasPrefix(e.Method(), "/qdrant.Collections/"): // what the collection is
		case a.path != "" && a.isConfirm(e):
			confirms++
			a.wantCaller(t, e)
			if e.Call != "POST /collections/routed/points/"+a.path+arguments {
				t.Errorf("the confirming read is %s", e.Call)
			}
			a.wantJSONConfirm(t, e, store)
		case a.method != "" && a.isConfirm(e):
			confirms++
			a.wantCaller(t, e)
			a.wantConfirm(t, e, store)
		default:
			t.Errorf("%s was asked for it, which nothing explains: %.300q", e.Call, e.Body)
		}
	}
	return first, confirms
}

func (a asking) searches() int {
	if strings.Contains(strings.ToLower(a.name()), "batch") {
		return 2
	}
	return 1
}

// isFirstStage tells an adapter's search: it wants no payload, and has a limit of the route.
func isFirstStage(e harness.Exchange) bool {
	m := &client.QueryBatchPoints{}
	return proto.Unmarshal(e.Body, m) == nil && len(m.GetQueryPoints()) == 1 && !m.GetQueryPoints()[0].GetWithPayload().GetEnable() && m.GetQueryPoints()[0].GetWithPayload().GetInclude() == nil
}

// wantFirstStage wants the request's filter and time, and the route's rules.
func (a asking) wantFirstStage(t *testing.T, e harness.Exchange) {
	t.Helper()
	m := &client.QueryBatchPoints{}
	if err := proto.Unmarshal(e.Body, m); err != nil {
		t.Fatal(err)
	}
	majority := client.NewReadConsistencyType(client.ReadConsistencyType_Majority)
	got := m.GetQueryPoints()[0]
	want := &client.QueryBatchPoints{
		CollectionName: "routed", ReadConsistency: majority, Timeout: m.Timeout,
		QueryPoints: []*client.QueryPoints{{
			CollectionName: "routed", Query: client.NewQueryDense([]float32{-0.5, 1, -0.5, 3}), Using: proto.String("vec"), Filter: byNumber(),
			Params:      &client.SearchParams{Exact: proto.Bool(true), Quantization: &client.QuantizationSearchParams{Ignore: proto.Bool(true)}},
			WithPayload: client.NewWithPayload(false), WithVectors: client.NewWithVectorsInclude("vec"), Timeout: got.Timeout,
			Limit: got.Limit,
		}},
	}
	want.QueryPoints[0].Query = got.GetQuery() // whose sign and order the model's tests hold
	except := map[string]string{
		"shard_key_selector": "the route has none", "lookup_from": "no adapter asks for it", "prefetch": "no adapter asks for it",
		"score_threshold": "a search of all ranks", "offset": "pages are cut behind rescoring", "read_consistency": "it is the batch's",
	}
	if names := append(recording.Unset(want, nil), recording.Unset(want.GetQueryPoints()[0], except)...); len(names) > 0 {
		t.Errorf("the test sets nothing for %q", names)
	}
	if names := append(recording.Changed(m, want), recording.Changed(got, want.GetQueryPoints()[0])...); len(names) > 0 {
		t.Errorf("the first stage differs in %q: %v, want %v", names, m, want)
	}
	if got.GetLimit() < 20 || len(e.Metadata["grpc-timeout"]) == 0 || m.GetTimeout() > 40 {
		t.Errorf("the first stage asks for %d rows in %d s, %v", got.GetLimit(), m.GetTimeout(), e.Metadata["grpc-timeout"])
	}
}

// changed lists the fields that a confirming read changes on purpose.
var changed = map[string]string{
	"filter": "it is narrowed to the hits, within the caller's own", "limit": "as many as there are hits", "offset": "pages are cut behind rescoring",
	"params": "all of the hits are to be found", "score_threshold": "it is of the learned score",
}

// wantConfirm wants the call itself, restricted to the hits.
func (a asking) wantConfirm(t *testing.T, e harness.Exchange, store bool) {
	t.Helper()
	m := a.request.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(e.Body, m); err != nil {
		t.Fatal(err)
	}
	got, want := parts(m), parts(a.request)
	if len(got) != len(want) {
		t.Fatalf("%d searches are confirmed of %d", len(got), len(want))
	}
	if len(want) > 1 || got[0] != m {
		if names := recording.Changed(m, a.request); !slices.Equal(names, []string{"search_points"}) && !slices.Equal(names, []string{"query_points"}) {
			t.Errorf("the batch differs in %q", names)
		}
	}
	for i := range want {
		for _, name := range recording.Changed(got[i], want[i]) {
			if _, known := changed[name]; !known || store && name == "score_threshold" {
				t.Errorf("the confirming read differs in %s: %v, want %v", name, got[i], want[i])
			}
		}
		filter := got[i].(interface{ GetFilter() *client.Filter }).GetFilter()
		if len(filter.GetMust()) != 2 || len(filter.GetMust()[0].GetHasId().GetHasId()) == 0 || !proto.Equal(filter.GetMust()[1].GetFilter(), byNumber()) {
			t.Errorf("the confirming read's filter is %v", filter)
		}
		if p := got[i].(interface{ GetParams() *client.SearchParams }).GetParams(); !p.GetExact() {
			t.Errorf("the confirming read's parameters are %v", p)
		}
	}
}

// parts returns the searches of a request.
func parts(m proto.Message) (all []proto.Message) {
	switch m := m.(type) {
	case *client.SearchBatchPoints:
		for _, s := range m.GetSearchPoints() {
			all = append(all, s)
		}
	case *client.QueryBatchPoints:
		for _, s := range m.GetQueryPoints() {
			all = append(all, s)
		}
	default:
		all = append(all, m)
	}
	return all
}

// wantJSONConfirm is wantConfirm for REST.
func (a asking) wantJSONConfirm(t *testing.T, e harness.Exchange, store bool) {
	t.Helper()
	got, want := jsonParts(t, e.Body), jsonParts(t, []byte(a.body))
	if len(got) != len(want) {
		t.Fatalf("%d searches are confirmed of %d", len(got), len(want))
	}
	for i := range want {
		keys := map[string]bool{}
		for k := range got[i] {
			keys[k] = true
		}
		for k := range want[i] {
			keys[k] = true
		}
		for k := range keys {
			if _, known := changed[k]; (!known || store && k == "score_threshold") && !reflect.DeepEqual(got[i][k], want[i][k]) {
				t.Errorf("the confirming read's %s is %v, want %v", k, got[i][k], want[i][k])
			}
		}
		must := got[i]["filter"].(map[string]any)["must"].([]any)
		if ids, ok := must[0].(map[string]any)["has_id"].([]any); len(must) != 2 || !ok || len(ids) == 0 || !reflect.DeepEqual(must[1], want[i]["filter"]) {
			t.Errorf("the confirming read's filter is %v", got[i]["filter"])
		}
		if !reflect.DeepEqual(got[i]["params"], map[string]any{"exact": true}) {
			t.Errorf("the confirming read's parameters are %v", got[i]["params"])
		}
	}
}

func jsonParts(t *testing.T, body []byte) (all []map[string]any) {
	t.Helper()
	var one map[string]any
	if err := json.Unmarshal(body, &one); err != nil {
		t.Fatal(err)
	}
	searches, batch := one["searches"].([]any)
	if !batch {
		return []map[string]any{one}
	}
	for _, s := range searches {
		all = append(all, s.(map[string]any))
	}
	return all
}

// TestCallsThatPassReachTheDatabaseAsTheyCame: each field that no route answers makes the call pass
// unchanged, for a reason of its own, alone and in a batch.
func TestCallsThatPassReachTheDatabaseAsTheyCame(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	type passing struct {
		reason string
		change func(m proto.Message)
	}
	set := func(field string, v any) func(proto.Message) {
		return func(m proto.Message) {
			r := m.ProtoReflect()
			other := r.New()
			text, err := json.Marshal(map[string]any{field: v})
			if err == nil {
				err = protojson.Unmarshal(text, other.Interface())
			}
			if err != nil {
				t.Fatal(err)
			}
			f := r.Descriptor().Fields().ByName(protoreflect.Name(field))
			r.Set(f, other.Get(f))
		}
	}
	both := []passing{
		{"shard-key", set("shard_key_selector", map[string]any{"shard_keys": []any{map[string]any{"keyword": "k"}}})},
		{"consistency", set("read_consistency", map[string]any{"type": "All"})},
		{"indexed-only", set("params", map[string]any{"indexed_only": true})},
		{"exact", set("params", map[string]any{"exact": true})},
		{"score-threshold", set("score_threshold", -5.0)},
		{"depth", set("offset", "5000")},
		{"limit", set("limit", "0")},
	}
	search := slices.Concat(both, []passing{{"vector", set("vector_name", "unknown")}})
	query := slices.Concat(both, []passing{{"vector", set("using", "unknown")}, {"lookup", set("lookup_from", map[string]any{"collection_name": "other"})},
		{"not-nearest", set("query", map[string]any{"sample": "Random"})}})
	var calls []asking
	reasons := map[string]string{}
	add := func(reason, method string, m proto.Message) {
		calls = append(calls, asking{method: method, request: m, path: ""})
		reasons[fmt.Sprint(len(calls)-1)] = reason
	}
	plainSearch := func() *client.SearchPoints {
		return &client.SearchPoints{CollectionName: "routed", Vector: asked, Limit: 3, VectorName: proto.String("vec")}
	}
	plainQuery := func() *client.QueryPoints {
		return &client.QueryPoints{CollectionName: "routed", Query: client.NewQueryDense(asked), Using: proto.String("vec")}
	}
	for _, p := range search {
		s := plainSearch()
		p.change(s)
		add(p.reason, client.Points_Search_FullMethodName, s)
		add(p.reason, client.Points_SearchBatch_FullMethodName, &client.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*client.SearchPoints{plainSearch(), s}})
	}
	for _, p := range query {
		q := plainQuery()
		p.change(q)
		add(p.reason, client.Points_Query_FullMethodName, q)
		add(p.reason, client.Points_QueryBatch_FullMethodName, &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*client.QueryPoints{plainQuery(), q}})
	}
	elsewhere, asksElsewhere := plainSearch(), plainQuery()
	elsewhere.CollectionName, asksElsewhere.CollectionName = "other", "other"
	add("collection", client.Points_SearchBatch_FullMethodName, &client.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*client.SearchPoints{plainSearch(), elsewhere}})
	add("collection", client.Points_QueryBatch_FullMethodName, &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*client.QueryPoints{plainQuery(), asksElsewhere}})
	all := client.NewReadConsistencyType(client.ReadConsistencyType_All)
	add("consistency", client.Points_SearchBatch_FullMethodName, &client.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*client.SearchPoints{plainSearch()}, ReadConsistency: all})
	add("consistency", client.Points_QueryBatch_FullMethodName, &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*client.QueryPoints{plainQuery()}, ReadConsistency: all})
	type posted struct{ reason, path, body string }
	var posts []posted
	for reason, more := range map[string]string{
		"shard-key": `"shard_key":["k"]`, "indexed-only": `"params":{"indexed_only":true}`, "exact": `"params":{"exact":true}`,
		"score-threshold": `"score_threshold":-5`, "depth": `"offset":5000`, "unknown-field": `"tomorrow":1`,
	} {
		search := `{"vector":{"name":"vec","vector":[1,-2,0.5,3]},"limit":3,` + more + `}`
		query := `{"query":[1,-2,0.5,3],"using":"vec",` + more + `}`
		posts = append(posts, posted{reason, "search", search}, posted{reason, "query", query},
			posted{reason, "search/batch", `{"searches":[` + search + `]}`}, posted{reason, "query/batch", `{"searches":[` + query + `]}`})
	}
	got := before(t, db, "exact_search: false", func(_ *recording.Upstream, conn *grpc.ClientConn, rest string) {
		for i, a := range calls {
			var trailer metadata.MD
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", fmt.Sprint(i)))
			accept(ctx, t, conn)
			var answer client.SearchResponse
			_ = conn.Invoke(ctx, a.method, a.request, &answer, grpc.Trailer(&trailer)) // the database says what it thinks
			if state := strings.Join(trailer.Get("likeness-status"), ","); state != "passed; reason="+reasons[fmt.Sprint(i)] {
				t.Errorf("%s of %v: %q, want %s", a.method, a.request, state, reasons[fmt.Sprint(i)])
			}
		}
		for i, p := range posts {
			in, err := http.NewRequestWithContext(context.Background(), http.MethodPost, rest+"/collections/routed/points/"+p.path, strings.NewReader(p.body))
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprintf("rest-%d", i)
			accept(metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", key)), t, conn)
			in.Header.Set("Api-Key", key)
			answer, err := restClient.Do(in)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if state := answer.Header.Get("Likeness-Status"); state != "passed; reason="+p.reason {
				t.Errorf("%s %s: %q, want %s", p.path, p.body, state, p.reason)
			}
		}
	})
	for i, a := range calls {
		a.only(t, got[fmt.Sprint(i)])
	}
	for i, p := range posts {
		e := got[fmt.Sprintf("rest-%d", i)]
		if len(e) != 1 || string(e[0].Body) != p.body || e[0].Call != "POST /collections/routed/points/"+p.path {
			t.Errorf("%s %s reached the database as %v", p.path, p.body, e)
		}
	}
}

// only wants the unchanged call and no other request.
func (a asking) only(t *testing.T, all []harness.Exchange) {
	t.Helper()
	originals, others := a.split(all)
	if len(originals) != 1 || len(others) > 0 {
		t.Errorf("%s of %v reached the database %d times, and %d other calls for it", a.method, a.request, len(originals), len(others))
	}
}

// TestPrefetchesArriveWhole: the rows of a query with a prefetch are requested by the query itself:
// first the ids of as many rows as the route's first stage has, then the hits, without the prefetch
// but with everything else of the caller's.
func TestPrefetchesArriveWhole(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	whole := wholeQuery()
	whole.Prefetch = []*client.PrefetchQuery{{
		Query: client.NewQueryDense(asked), Using: proto.String("vec"), Limit: proto.Uint64(30), Filter: byNumber(), ScoreThreshold: proto.Float32(-500),
	}}
	except := maps.Clone(notOfAQuery)
	delete(except, "prefetch")
	if names := recording.Unset(whole, except); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	a := asking{method: client.Points_Query_FullMethodName, request: whole}
	const body = `{"query":[1,-2,0.5,3],"using":"vec","filter":` + byNumberJSON + `,"params":{"hnsw_ef":99,"exact":true,"indexed_only":true},"limit":3,"offset":1,` +
		`"with_payload":["n"],"with_vector":true,"score_threshold":-1000.0,"prefetch":{"query":[1,-2,0.5,3],"using":"vec","limit":30,"filter":` + byNumberJSON + `}}`
	r := asking{path: "query", body: body}
	nameless := proto.Clone(whole).(*client.QueryPoints)
	nameless.CollectionName = "" // as a batch's may be
	b := asking{method: client.Points_QueryBatch_FullMethodName, request: &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*client.QueryPoints{nameless}}}
	got := before(t, db, optIn+"exact_search: true", func(_ *recording.Upstream, conn *grpc.ClientConn, rest string) {
		b.send(t, conn, rest, b.name()) // Qdrant has the last word on such a batch
		for _, c := range []asking{a, r} {
			if state := c.send(t, conn, rest, c.name()); !strings.HasPrefix(state, "rescored; ") {
				t.Errorf("%s: %q", c.name(), state)
			}
		}
	})
	finding := map[string]bool{"limit": true, "offset": true, "score_threshold": true, "with_payload": true, "with_vectors": true, "with_vector": true}
	found, confirmed := 0, 0
	for _, e := range got[a.name()] {
		m := &client.QueryPoints{}
		switch {
		case e.Method() != a.method || isSample(e):
		case proto.Unmarshal(e.Body, m) == nil && len(m.GetPrefetch()) > 0:
			found++
			a.wantCaller(t, e)
			for _, name := range recording.Changed(m, whole) {
				if !finding[name] {
					t.Errorf("candidates are found with another %s: %v", name, m)
				}
			}
			if m.GetLimit() != 20 || m.Offset != nil || m.ScoreThreshold != nil || m.GetWithPayload().GetEnable() || m.GetWithVectors().GetEnable() {
				t.Errorf("candidates are found by %v", m)
			}
		default:
			confirmed++
			plain := proto.Clone(whole).(*client.QueryPoints)
			plain.Prefetch = nil
			asking{method: a.method, request: plain}.wantConfirm(t, e, false)
			a.wantCaller(t, e)
		}
	}
	for _, e := range got[r.name()] {
		if !strings.HasPrefix(e.Call, "POST ") {
			continue
		}
		one, want := jsonParts(t, e.Body)[0], jsonParts(t, []byte(body))[0]
		r.wantCaller(t, e)
		if _, finds := one["prefetch"]; !finds {
			confirmed++
			delete(want, "prefetch")
			plain, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			asking{path: r.path, body: string(plain)}.wantJSONConfirm(t, e, false)
			continue
		}
		found++
		for k := range want {
			if !finding[k] && !reflect.DeepEqual(one[k], want[k]) {
				t.Errorf("candidates are found with another %s: %s", k, e.Body)
			}
		}
		if one["limit"] != 20.0 || one["offset"] != nil || one["score_threshold"] != nil || one["with_payload"] != false || one["with_vector"] != false {
			t.Errorf("candidates are found by %s", e.Body)
		}
	}
	inBatch := recording.Of(got[b.name()], client.Points_Query_FullMethodName)
	for _, e := range inBatch {
		m := &client.QueryPoints{}
		if err := proto.Unmarshal(e.Body, m); err != nil || m.GetCollectionName() != "routed" {
			t.Errorf("candidates of a batch are found by %v, %v", m, err)
		}
	}
	if len(inBatch) == 0 {
		t.Error("candidates of a batch are not found")
	}
	if found != 2 || confirmed != 2 {
		t.Errorf("found %d times and confirmed %d times", found, confirmed)
	}
}
