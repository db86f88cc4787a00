package milvus_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	sdk "github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/proxy/recording"
)

var asked = [][]float32{{1, -2, 0.5, 3}, {0.5, 1, 2, -1}}

const (
	expression = "n == 1"
	limit      = 3
	depth      = 20
)

func group(t testing.TB, queries [][]float32) []byte {
	t.Helper()
	var values [][]byte
	for _, q := range queries {
		var b []byte
		for _, x := range q {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		values = append(values, b)
	}
	g, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: values}}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func parameters(pairs ...string) (out []*commonpb.KeyValuePair) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &commonpb.KeyValuePair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// wholeSearch returns a search with every field set that a route answers.
func wholeSearch(t testing.TB, queries [][]float32) *milvuspb.SearchRequest {
	t.Helper()
	return &milvuspb.SearchRequest{
		Base: &commonpb.MsgBase{MsgType: commonpb.MsgType_Search}, DbName: "default", CollectionName: "routed", PartitionNames: []string{"_default"},
		Dsl: expression, DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: group(t, queries), OutputFields: []string{"n"},
		SearchParams: parameters("anns_field", "vec", "topk", strconv.Itoa(limit), "offset", "1", "metric_type", "IP", "params", `{"nprobe":3}`, "round_decimal", "4"),
		// A level other than the collection's own.
		GuaranteeTimestamp: 1, ConsistencyLevel: commonpb.ConsistencyLevel_Eventually, UseDefaultConsistency: true, Nq: int64(len(queries)), NotReturnAllMeta: true,
		ExprTemplateValues: map[string]*schemapb.TemplateValue{"unused": {Val: &schemapb.TemplateValue_Int64Val{Int64Val: 1}}},
	}
}

// notSet lists the fields that are not set, with the reason.
var notSet = map[string]string{
	"travel_timestamp": "it passes, below", "search_by_primary_keys": "it passes, below", "sub_reqs": "they pass, below",
	"function_score": "it passes, below", "namespace": "it passes, below",
}

func wholeHybrid(t testing.TB, lists ...*milvuspb.SearchRequest) *milvuspb.HybridSearchRequest {
	t.Helper()
	return &milvuspb.HybridSearchRequest{
		Base: &commonpb.MsgBase{MsgType: commonpb.MsgType_Search}, DbName: "default", CollectionName: "routed", PartitionNames: []string{"_default"},
		Requests: lists, RankParams: parameters("strategy", "rrf", "params", `{"k":60}`, "limit", strconv.Itoa(limit), "offset", "1", "round_decimal", "4"), OutputFields: []string{"n"},
		GuaranteeTimestamp: 1, ConsistencyLevel: commonpb.ConsistencyLevel_Eventually, UseDefaultConsistency: true, NotReturnAllMeta: true,
	}
}

var notSetHybrid = map[string]string{"travel_timestamp": "it passes", "function_score": "it passes", "namespace": "it passes"}

// list returns one list of a hybrid search.
func list(t testing.TB, filter string) *milvuspb.SearchRequest {
	t.Helper()
	return &milvuspb.SearchRequest{
		CollectionName: "routed", Dsl: filter, DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: group(t, asked[:1]), Nq: 1,
		SearchParams: parameters("anns_field", "vec", "topk", "8", "metric_type", "IP", "params", "{}"), UseDefaultConsistency: true,
	}
}

// before runs a sidecar, with rules for its route, in front of a database behind a tap. It calls
// ask, and returns the requests that reached the database, by the caller's authorization.
func before(t *testing.T, db *servers.Server, rules string, ask func(up *recording.Upstream, c milvuspb.MilvusServiceClient)) map[string][]harness.Exchange {
	t.Helper()
	up := recording.Before(t, db.Address, "")
	w := tensor.Tensor{Shape: []int{4, 4}, Data: []float32{0, 1, 0, 0, 2, 0, 0, 0, 0, 0, -1, 0, 0.5, 0, 0, 1}}
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": w},
		Config: []byte(`{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":false,"form":"full"}`)})
	if err != nil {
		t.Fatal(err)
	}
	at, stop := recording.Sidecar(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: milvus, address: %q}}
models: {w: {path: w.safetensors}}
routes: {things: {store: main, collection: routed, vector: vec, model: w, placement: stored, depth: %d, consistency: Bounded, %s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, up.GRPC, depth, rules), map[string]*model.Model{"w.safetensors": m})
	conn, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ask(up, milvuspb.NewMilvusServiceClient(conn))
	_ = conn.Close()
	stop()
	return byCaller(up.Requests(t))
}

// fillRouted creates the collection, whose rows have a number.
func fillRouted(t testing.TB, db *servers.Server) {
	t.Helper()
	c, err := sdk.NewClient(t.Context(), sdk.Config{Address: db.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	schema := entity.NewSchema().WithName("routed").
		WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(4)).
		WithField(entity.NewField().WithName("n").WithDataType(entity.FieldTypeInt64))
	flat, err := entity.NewIndexFlat(entity.IP)
	if err == nil {
		err = c.CreateCollection(t.Context(), schema, 1, sdk.WithConsistencyLevel(entity.ClBounded))
	}
	if err == nil {
		err = c.CreateIndex(t.Context(), "routed", "vec", flat, false)
	}
	var rows []any
	for i := range 60 {
		x := float32(i)
		rows = append(rows, map[string]any{"id": int64(i), "vec": []float32{x / 7, 2 - x/5, x * x / 100, 1 / (1 + x)}, "n": int64(i % 3)})
	}
	if err == nil {
		_, err = c.InsertRows(t.Context(), "routed", "", rows)
	}
	if err == nil {
		err = c.LoadCollection(t.Context(), "routed", false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// send makes a call as the named caller, and returns the proxy's status.
func send(t testing.TB, c milvuspb.MilvusServiceClient, name string, request proto.Message) string {
	t.Helper()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("authorization", name, "x-other", name))
	accept(ctx, t, c)
	var trailer metadata.MD
	var answer *milvuspb.SearchResults
	var err error
	switch r := request.(type) {
	case *milvuspb.SearchRequest:
		answer, err = c.Search(ctx, r, grpc.Trailer(&trailer))
	case *milvuspb.HybridSearchRequest:
		answer, err = c.HybridSearch(ctx, r, grpc.Trailer(&trailer))
	}
	if state := strings.Join(trailer.Get("likeness-status"), ","); state != "" {
		return state
	}
	t.Errorf("%s: %v, %v", name, answer.GetStatus(), err)
	return ""
}

// acceptedBy is the filter of the searches that accept sends.
const acceptedBy = "n == 77"

// accept makes the database accept the caller of ctx, by a search that passes and that byCaller
// leaves out.
func accept(ctx context.Context, t testing.TB, c milvuspb.MilvusServiceClient) {
	t.Helper()
	passes := list(t, acceptedBy)
	passes.TravelTimestamp = 1
	if answer, err := c.Search(ctx, passes); err != nil || answer.GetStatus().GetCode() != 0 {
		t.Errorf("%v, %v", answer.GetStatus(), err)
	}
}

// byCaller groups requests by the caller's authorization. Requests that check whether a caller is
// accepted are left out.
func byCaller(all []harness.Exchange) map[string][]harness.Exchange {
	return recording.ByHeader(slices.DeleteFunc(all, func(e harness.Exchange) bool {
		m, ok := searchOf(e)
		return ok && m.GetDsl() == acceptedBy
	}), "authorization")
}

// searchOf decodes a search that reached the database.
func searchOf(e harness.Exchange) (*milvuspb.SearchRequest, bool) {
	m := &milvuspb.SearchRequest{}
	return m, e.Method() == milvuspb.MilvusService_Search_FullMethodName && proto.Unmarshal(e.Body, m) == nil
}

func parameter(m *milvuspb.SearchRequest, key string) string {
	for _, p := range m.GetSearchParams() {
		if p.GetKey() == key {
			return p.GetValue()
		}
	}
	return ""
}

// isConfirm recognises a confirming read by its ids.
func isConfirm(m *milvuspb.SearchRequest) bool { return strings.Contains(m.GetDsl(), "id in [") }

// wantCaller wants a request to have all of the caller's metadata.
func wantCaller(t *testing.T, name string, e harness.Exchange) {
	t.Helper()
	if !slices.Equal(e.Metadata["x-other"], []string{name}) || !slices.Equal(e.Metadata["authorization"], []string{name}) {
		t.Errorf("%s came with %q and %q", e.Call, e.Metadata["authorization"], e.Metadata["x-other"])
	}
}

// wantConfirm wants the call itself, restricted to the hits.
func wantConfirm(t *testing.T, got, want *milvuspb.SearchRequest, filter string, store bool) {
	t.Helper()
	changed := map[string]string{"dsl": "narrowed to the hits", "search_params": "as many rows as there are hits", "nq": "one vector finds them all", "placeholder_group": "one vector finds them all"}
	if store {
		delete(changed, "nq")
		delete(changed, "placeholder_group")
	}
	for _, name := range recording.Changed(got, want) {
		if _, known := changed[name]; !known {
			t.Errorf("the confirming read differs in %s: %v, want %v", name, got, want)
		}
	}
	if filter != "" && !strings.HasPrefix(got.GetDsl(), "("+filter+") and (id in [") || filter == "" && !strings.HasPrefix(got.GetDsl(), "id in [") {
		t.Errorf("the confirming read's filter is %q", got.GetDsl())
	}
	for _, p := range want.GetSearchParams() {
		value := parameter(got, p.GetKey())
		switch p.GetKey() {
		case "topk", "limit":
			if n, err := strconv.Atoi(value); err != nil || n < limit {
				t.Errorf("the confirming read asks for %q rows", value)
			}
		case "offset":
			if value != "0" {
				t.Errorf("the confirming read begins at %q", value)
			}
		case "params":
			if strings.Contains(p.GetValue(), "nprobe") && !strings.Contains(value, "65536") {
				t.Errorf("the confirming read is tuned by %q", value)
			}
		default:
			if value != p.GetValue() {
				t.Errorf("the confirming read's %s is %q, want %q", p.GetKey(), value, p.GetValue())
			}
		}
	}
}

// wantFirstStage wants the request's filter and partitions, and the route's rules. One row more
// than the route's depth shows whether the last row is tied.
func wantFirstStage(t *testing.T, got *milvuspb.SearchRequest, filter string) {
	t.Helper()
	want := &milvuspb.SearchRequest{
		CollectionName: "routed", PartitionNames: []string{"_default"}, Dsl: filter, DslType: commonpb.DslType_BoolExprV1,
		PlaceholderGroup: got.GetPlaceholderGroup(), Nq: 1, OutputFields: []string{"vec"}, SearchParams: got.GetSearchParams(),
		ConsistencyLevel: commonpb.ConsistencyLevel_Bounded,
	}
	if names := recording.Changed(got, want); len(names) > 0 {
		t.Errorf("the first stage differs in %q: %v, want %v", names, got, want)
	}
	for key, value := range map[string]string{"anns_field": "vec", "topk": strconv.Itoa(depth + 1), "offset": "0", "metric_type": "IP", "round_decimal": "-1"} {
		if got := parameter(got, key); got != value {
			t.Errorf("the first stage's %s is %q, want %q", key, got, value)
		}
	}
}

const optIn = "opt_in: [consistency, round-decimal, hybrid], partitions: [_default], "

// TestCallsReachTheDatabaseWhole: however a call is answered, the requests that it causes have all
// its fields and the caller's metadata, except the fields that are listed as changed.
func TestCallsReachTheDatabaseWhole(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	search := wholeSearch(t, asked)
	hybrid, several := wholeHybrid(t, list(t, expression)), wholeHybrid(t, list(t, "id < 30"), list(t, "id > 20"))
	if names := append(recording.Unset(search, notSet), recording.Unset(hybrid, notSetHybrid)...); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	calls := []struct {
		name    string
		request proto.Message
		first   int    // first stages
		filter  string // of the first stage and the confirming read
	}{{"search", search, 2, expression}, {"hybrid", hybrid, 1, expression}, {"several", several, 0, ""}}
	for _, way := range []struct {
		name, rules, state        string
		original, rescored, store bool
		raced                     bool // the original can be first, which ends the rescoring at any call
	}{
		{name: "rescored", rules: optIn, state: "rescored; ", rescored: true},
		{name: "store scores", rules: optIn + "score: store, ", state: "rescored; ", rescored: true, store: true},
		{name: "eager", rules: optIn + "fallback: eager, ", original: true, rescored: true, raced: true},
		{name: "shadow", rules: optIn + "shadow: {share: 1}, ", state: "shadow; ", original: true, rescored: true},
		{name: "not opted in", rules: "partitions: [_default], ", state: "passed; reason=", original: true},
		{name: "other partitions", rules: strings.Split(optIn, "partitions")[0] + "partitions: [other], ", state: "passed; reason=partitions", original: true},
		{name: "overload", rules: optIn + "rate: 0.0001, burst: 1, ", state: "degraded; reason=overload", original: true},
	} {
		t.Run(way.name, func(t *testing.T) {
			states := map[string]string{}
			got := before(t, db, strings.TrimSuffix(way.rules, ", "), func(up *recording.Upstream, c milvuspb.MilvusServiceClient) {
				if way.name == "overload" {
					send(t, c, "nobody", search)
				}
				for _, call := range calls {
					state := send(t, c, call.name, call.request)
					if !strings.HasPrefix(state, way.state) {
						t.Errorf("%s: %q, want %q", call.name, state, way.state)
					}
					states[call.name] = state
				}
				if way.rescored && !way.raced {
					up.Await(t, func(all []harness.Exchange) bool {
						confirms := 0
						for _, e := range all {
							if m, ok := searchOf(e); ok && isConfirm(m) && !e.Cut {
								confirms++
							}
						}
						return confirms == len(calls)
					})
				}
			})
			for _, call := range calls {
				originals, first, confirms, finds := 0, 0, 0, 0
				for _, e := range got[call.name] {
					m, searches := searchOf(e)
					h := &milvuspb.HybridSearchRequest{}
					isHybrid := e.Method() == milvuspb.MilvusService_HybridSearch_FullMethodName && proto.Unmarshal(e.Body, h) == nil
					switch {
					case searches && proto.Equal(m, call.request), isHybrid && proto.Equal(h, call.request):
						originals++
						wantCaller(t, call.name, e)
					case searches && isConfirm(m):
						confirms++
						wantCaller(t, call.name, e)
						want := search
						if r, ok := call.request.(*milvuspb.HybridSearchRequest); ok { // the fusion's, of its list
							want = proto.Clone(r.GetRequests()[0]).(*milvuspb.SearchRequest)
							want.Base, want.DbName, want.PartitionNames, want.OutputFields = r.GetBase(), r.GetDbName(), r.GetPartitionNames(), r.GetOutputFields()
							want.GuaranteeTimestamp, want.ConsistencyLevel, want.NotReturnAllMeta = r.GetGuaranteeTimestamp(), r.GetConsistencyLevel(), r.GetNotReturnAllMeta()
							want.UseDefaultConsistency = r.GetUseDefaultConsistency()
							want.SearchParams = parameters("anns_field", "vec", "topk", "3", "metric_type", "IP", "params", "{}", "round_decimal", "4", "offset", "1")
						}
						wantConfirm(t, m, want, call.filter, way.store)
					case searches:
						first++
						wantFirstStage(t, m, call.filter)
					case isHybrid && call.name == "several":
						finds++
						wantCaller(t, call.name, e)
						if names := recording.Changed(h, several); !slices.Equal(names, []string{"rank_params", "output_fields"}) {
							t.Errorf("candidates are found with another %q: %v", names, h)
						}
					case strings.Contains(e.Method(), "/Describe"), strings.Contains(e.Method(), "/GetLoadState"), strings.Contains(e.Method(), "/Query"):
					default: // reads of the schema and of the ids' vectors
						t.Errorf("%s was asked for %s, which nothing explains", e.Call, call.name)
					}
				}
				if originals > 1 || (originals == 1) != way.original {
					t.Errorf("%s reached the database as it came %d times", call.name, originals)
				}
				wantFirst, wantFinds, wantConfirms := call.first, 0, 1
				if call.name == "several" {
					wantFinds = 1
				}
				if !way.rescored {
					wantFirst, wantConfirms = 0, 0
				}
				if !way.rescored && way.name != "overload" { // known once there are rows to score
					wantFinds = 0
				}
				ended := way.raced && states[call.name] == "degraded; reason=deadline" && first <= wantFirst && confirms <= wantConfirms && finds <= wantFinds
				if !ended && (first != wantFirst || confirms != wantConfirms || finds != wantFinds) {
					t.Errorf("%s: %d first stages, %d searches for candidates, %d confirming reads; want %d, %d, %d", call.name, first, finds, confirms, wantFirst, wantFinds, wantConfirms)
				}
			}
		})
	}
}

// TestCallsThatPassReachTheDatabaseAsTheyCame: each field that no route answers makes the call pass
// unchanged, for a reason of its own.
func TestCallsThatPassReachTheDatabaseAsTheyCame(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillRouted(t, db)
	with := func(change func(m *milvuspb.SearchRequest)) *milvuspb.SearchRequest {
		m := list(t, expression)
		change(m)
		return m
	}
	param := func(key, value string) *milvuspb.SearchRequest {
		return with(func(m *milvuspb.SearchRequest) { m.SearchParams = append(m.SearchParams, parameters(key, value)...) })
	}
	calls := []struct {
		reason  string
		request *milvuspb.SearchRequest
	}{
		{"namespace", with(func(m *milvuspb.SearchRequest) { m.TravelTimestamp = 1 })},
		{"namespace", with(func(m *milvuspb.SearchRequest) { m.Namespace = proto.String("n") })},
		{"not-nearest", with(func(m *milvuspb.SearchRequest) { m.SearchByPrimaryKeys = true })},
		{"hybrid", with(func(m *milvuspb.SearchRequest) { m.SubReqs = []*milvuspb.SubSearchRequest{{}} })},
		{"function-score", with(func(m *milvuspb.SearchRequest) { m.FunctionScore = &schemapb.FunctionScore{} })},
		// Chains of functions, which Milvus 3 has, are field 24.
		{"unknown-field", with(func(m *milvuspb.SearchRequest) {
			m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 24, protowire.BytesType), []byte{10, 1, 'x'}))
		})},
		{"filter", with(func(m *milvuspb.SearchRequest) { m.DslType = commonpb.DslType_Dsl })},
		{"consistency", with(func(m *milvuspb.SearchRequest) { m.GuaranteeTimestamp = 3 })},
		{"partitions", with(func(m *milvuspb.SearchRequest) { m.PartitionNames = []string{"none"} })},
		{"round-decimal", param("round_decimal", "2")},
		{"ignore-growing", param("ignore_growing", "true")},
		{"group-by-field", param("group_by_field", "n")},
		{"iterator", param("iterator", "True")},
		{"search-params", param("hints", "x")},
		{"search-params", with(func(m *milvuspb.SearchRequest) { m.SearchParams[3].Value = `{"radius": 0.5}` })},
		{"metric", with(func(m *milvuspb.SearchRequest) { m.SearchParams[2].Value = "L2" })},
		{"depth", param("offset", "5000")},
		{"malformed", with(func(m *milvuspb.SearchRequest) { m.Nq = 2 })},
		{"template", with(func(m *milvuspb.SearchRequest) {
			m.Dsl, m.ExprTemplateValues = "n == {x}", map[string]*schemapb.TemplateValue{"x": {}}
		})},
	}
	got := before(t, db, "partitions: [_default]", func(_ *recording.Upstream, c milvuspb.MilvusServiceClient) {
		for i, call := range calls {
			if len(call.request.GetPartitionNames()) == 0 {
				call.request.PartitionNames = []string{"_default"}
			}
			if state := send(t, c, strconv.Itoa(i), call.request); state != "passed; reason="+call.reason {
				t.Errorf("%v: %q, want %s", call.request, state, call.reason)
			}
		}
	})
	for i, call := range calls {
		searches := 0
		for _, e := range got[strconv.Itoa(i)] {
			if m, ok := searchOf(e); ok {
				searches++
				if !proto.Equal(m, call.request) {
					t.Errorf("%v reached the database as %v", call.request, m)
				}
			}
		}
		if searches != 1 {
			t.Errorf("%v reached the database %d times", call.request, searches)
		}
	}
}
