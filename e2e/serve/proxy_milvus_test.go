package serve_test

import (
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
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// milvusProxied is a sidecar before a real milvus-lite with two collections of
// the same rows: routed has a route, plain has none.
type milvusProxied struct {
	direct, proxy milvuspb.MilvusServiceClient
	api           likenessv1.SearchServiceClient
	address       string
	database      string // its address
}

const milvusRows = 40

func startMilvusProxied(t *testing.T) *milvusProxied {
	t.Helper()
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	return startMilvusRuled(t, db, "")
}

// startMilvusRuled is a sidecar whose route has more rules.
func startMilvusRuled(t *testing.T, db *servers.Server, rules string) *milvusProxied {
	t.Helper()
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: milvus, address: %q}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, depth: 30, %s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, db.Address, rules))
	return &milvusProxied{
		direct: milvuspb.NewMilvusServiceClient(connect(t, db.Address)), proxy: milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC)),
		api: likenessv1.NewSearchServiceClient(connect(t, at.GRPC)), address: at.Proxy.GRPC, database: db.Address,
	}
}

func milvusVector(i int) []float32 {
	x := float32(i)
	return []float32{x / 7, 2 - x/5, x * x / 100, 1 / (1 + x)}
}

func fillMilvus(t *testing.T, config client.Config, o ...client.CreateCollectionOption) {
	t.Helper()
	ctx := t.Context()
	c, err := client.NewClient(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"routed", "plain"} {
		schema := entity.NewSchema().WithName(name).WithDynamicFieldEnabled(true).
			WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
			WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(4)).
			WithField(entity.NewField().WithName("name").WithDataType(entity.FieldTypeVarChar).WithMaxLength(100)).
			WithField(entity.NewField().WithName("on").WithDataType(entity.FieldTypeBool)).
			WithField(entity.NewField().WithName("price").WithDataType(entity.FieldTypeDouble)).
			WithField(entity.NewField().WithName("more").WithDataType(entity.FieldTypeJSON))
		flat, err := entity.NewIndexFlat(entity.IP)
		if err == nil {
			err = c.CreateCollection(ctx, schema, 1, o...)
		}
		if err == nil {
			err = c.CreateIndex(ctx, name, "vec", flat, false)
		}
		var rows []any
		for i := range milvusRows {
			rows = append(rows, map[string]any{"id": int64(i) - 5, "vec": milvusVector(i), "name": "n" + strconv.Itoa(i), "on": i%2 == 0,
				"price": float64(i) / 3, "more": fmt.Appendf(nil, `{"i":%d}`, i), "extra": int64(i)})
		}
		if err == nil {
			_, err = c.InsertRows(ctx, name, "", rows)
		}
		if err == nil {
			err = c.LoadCollection(ctx, name, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// milvusSearch is a request as clients send it.
func milvusSearch(collection string, queries [][]float32, limit, offset int, expr string, fields ...string) *milvuspb.SearchRequest {
	var values [][]byte
	for _, q := range queries {
		var b []byte
		for _, x := range q {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		values = append(values, b)
	}
	group, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{
		{Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: values},
	}})
	if err != nil {
		panic(err)
	}
	r := &milvuspb.SearchRequest{CollectionName: collection, Dsl: expr, DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: group,
		Nq: int64(len(queries)), OutputFields: fields, UseDefaultConsistency: true}
	for key, value := range map[string]string{"anns_field": "vec", "topk": strconv.Itoa(limit), "offset": strconv.Itoa(offset),
		"metric_type": "IP", "params": "{}", "round_decimal": "-1"} {
		r.SearchParams = append(r.SearchParams, &commonpb.KeyValuePair{Key: key, Value: value})
	}
	return r
}

func set(r *milvuspb.SearchRequest, key, value string) {
	for _, p := range r.GetSearchParams() {
		if p.GetKey() == key {
			p.Value = value
			return
		}
	}
	r.SearchParams = append(r.SearchParams, &commonpb.KeyValuePair{Key: key, Value: value})
}

func (p *milvusProxied) search(t *testing.T, r *milvuspb.SearchRequest) (*schemapb.SearchResultData, string) {
	t.Helper()
	var trailer metadata.MD
	answer, err := p.proxy.Search(t.Context(), r, grpc.Trailer(&trailer))
	if err != nil || answer.GetStatus().GetCode() != 0 {
		t.Fatalf("search: %v, %v", answer.GetStatus(), err)
	}
	return answer.GetResults(), strings.Join(trailer.Get("likeness-status"), "|")
}

func (p *milvusProxied) expected(t *testing.T, q []float32, k int32, filter string) []*likenessv1.Hit {
	t.Helper()
	r, err := p.api.Search(t.Context(), &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: q}, K: k, Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetHits()
}

func column(d *schemapb.SearchResultData, name string) *schemapb.FieldData {
	for _, f := range d.GetFieldsData() {
		if f.GetFieldName() == name {
			return f
		}
	}
	return &schemapb.FieldData{}
}

func TestMilvusProxyRescores(t *testing.T) {
	p := startMilvusProxied(t)
	queries := [][]float32{query, {-1, 1, 0, 2}, query}
	const limit, offset = 5, 2
	filter := "price < 11.5 or on == true"
	d, state := p.search(t, milvusSearch("routed", queries, limit, offset, filter, "name", "vec", "on", "more", "extra", "price"))
	if !strings.HasPrefix(state, "rescored; route=things; certificate=") {
		t.Fatalf("status %q", state)
	}
	if d.GetNumQueries() != 3 || d.GetTopK() != limit || fmt.Sprint(d.GetTopks()) != "[5 5 5]" {
		t.Errorf("%d queries, top %d, lists %v", d.GetNumQueries(), d.GetTopK(), d.GetTopks())
	}
	at := 0
	for i, q := range queries {
		for j, h := range p.expected(t, q, limit+offset, filter)[offset:] {
			id := int64(h.GetId().GetNumber()) // negative ones are signed
			if n := h.GetId().GetNegative(); n != 0 {
				id = n
			}
			row := int(id) + 5
			if got := d.GetIds().GetIntId().GetData()[at]; got != id || d.GetScores()[at] != h.GetScore() {
				t.Errorf("query %d, row %d: %d with %g, want %d with %g", i, j, got, d.GetScores()[at], id, h.GetScore())
			}
			vec := column(d, "vec").GetVectors().GetFloatVector().GetData()[4*at:][:4]
			if got := column(d, "name").GetScalars().GetStringData().GetData()[at]; got != "n"+strconv.Itoa(row) ||
				fmt.Sprint(vec) != fmt.Sprint(milvusVector(row)) ||
				column(d, "on").GetScalars().GetBoolData().GetData()[at] != (row%2 == 0) ||
				column(d, "price").GetScalars().GetDoubleData().GetData()[at] != float64(row)/3 ||
				string(column(d, "more").GetScalars().GetJsonData().GetData()[at]) != fmt.Sprintf(`{"i":%d}`, row) {
				t.Errorf("query %d, row %d: the fields are those of %s", i, j, got)
			}
			at++
		}
	}
}

func TestMilvusProxyKeepsTheShapeOfAnAnswer(t *testing.T) {
	p := startMilvusProxied(t)
	// The plain collection is the same, so the database's own answer has the shape.
	fields := []string{"name", "on", "extra", "vec"}
	own, state := p.search(t, milvusSearch("plain", [][]float32{query}, 6, 0, "", fields...))
	if state != "" {
		t.Errorf("status %q on a collection without a route", state)
	}
	got, _ := p.search(t, milvusSearch("routed", [][]float32{query}, 6, 0, "", fields...))
	if fmt.Sprint(own.GetOutputFields()) != fmt.Sprint(got.GetOutputFields()) || own.GetPrimaryFieldName() != got.GetPrimaryFieldName() ||
		len(own.GetFieldsData()) != len(got.GetFieldsData()) {
		t.Errorf("fields %v of %q, the database has %v of %q", got.GetOutputFields(), got.GetPrimaryFieldName(), own.GetOutputFields(), own.GetPrimaryFieldName())
	}
	for i, f := range own.GetFieldsData() {
		if g := got.GetFieldsData()[i]; g.GetFieldName() != f.GetFieldName() || g.GetType() != f.GetType() || g.GetIsDynamic() != f.GetIsDynamic() {
			t.Errorf("field %d is %s, the database has %s", i, g.GetFieldName(), f.GetFieldName())
		}
	}
}

func hybridOf(limit int, lists ...*milvuspb.SearchRequest) *milvuspb.HybridSearchRequest {
	return &milvuspb.HybridSearchRequest{CollectionName: "routed", UseDefaultConsistency: true, Requests: lists,
		RankParams: []*commonpb.KeyValuePair{{Key: "strategy", Value: "rrf"}, {Key: "params", Value: `{"k":60}`}, {Key: "limit", Value: strconv.Itoa(limit)}},
	}
}

// TestMilvusProxyAnswersAHybridSearchOfOneList as the search that it is, and lets
// one pass whose list ends before its answer does.
func TestMilvusProxyAnswersAHybridSearchOfOneList(t *testing.T) {
	p := startMilvusProxied(t)
	want, _ := p.search(t, milvusSearch("routed", [][]float32{query}, 3, 0, ""))
	for limit, state := range map[int]string{3: "rescored", 9: "passed; reason=hybrid"} {
		var trailer metadata.MD
		got, err := p.proxy.HybridSearch(t.Context(), hybridOf(limit, milvusSearch("routed", [][]float32{query}, 5, 0, "")), grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		if s := trailer.Get("likeness-status"); len(s) != 1 || !strings.HasPrefix(s[0], state) {
			t.Errorf("limit %d: status %q, want %s", limit, s, state)
		}
		if limit == 3 && (!proto.Equal(got.GetResults().GetIds(), want.GetIds()) || !slices.Equal(got.GetResults().GetScores(), want.GetScores())) {
			t.Errorf("%v, %v; the search has %v, %v", got.GetResults().GetIds(), got.GetResults().GetScores(), want.GetIds(), want.GetScores())
		}
	}
}

func TestMilvusProxyPasses(t *testing.T) {
	p := startMilvusProxied(t)
	for reason, change := range map[string]func(*milvuspb.SearchRequest){
		"depth":          func(r *milvuspb.SearchRequest) { set(r, "offset", "28") },
		"search-params":  func(r *milvuspb.SearchRequest) { set(r, "params", `{"radius": 0.5}`) },
		"round-decimal":  func(r *milvuspb.SearchRequest) { set(r, "round_decimal", "2") },
		"group-by-field": func(r *milvuspb.SearchRequest) { set(r, "group_by_field", "name") },
		"iterator":       func(r *milvuspb.SearchRequest) { set(r, "iterator", "True") },
		"consistency":    func(r *milvuspb.SearchRequest) { r.GuaranteeTimestamp = 1 << 40 },
		"unknown-field": func(r *milvuspb.SearchRequest) {
			r.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 1))
		},
	} {
		r := milvusSearch("routed", [][]float32{query}, 5, 0, "", "name")
		change(r)
		var through, straight metadata.MD
		got, err := p.proxy.Search(t.Context(), r, grpc.Trailer(&through))
		want, wantErr := p.direct.Search(t.Context(), r, grpc.Trailer(&straight))
		if state := through.Get("likeness-status"); len(state) != 1 || state[0] != "passed; reason="+reason {
			t.Errorf("%s: status %q", reason, state)
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v; the database says %v, %v", reason, got, err, want, wantErr)
		}
	}
	one := milvusSearch("routed", [][]float32{query}, 5, 0, "")
	hybrid := hybridOf(5, one, one)
	var trailer metadata.MD
	got, err := p.proxy.HybridSearch(t.Context(), hybrid, grpc.Trailer(&trailer))
	want, wantErr := p.direct.HybridSearch(t.Context(), hybrid)
	if state := trailer.Get("likeness-status"); len(state) != 1 || state[0] != "passed; reason=hybrid" || fmt.Sprint(err) != fmt.Sprint(wantErr) || !proto.Equal(got, want) {
		t.Errorf("hybrid: %q, %v, %v; the database says %v, %v", state, got, err, want, wantErr)
	}
	if _, state := p.search(t, milvusSearch("plain", [][]float32{query}, 5, 0, "")); state != "" {
		t.Errorf("without a route: status %q", state)
	}
}

// Every row keeps the score that the store gives it for its own query.
func TestMilvusProxyKeepsTheStoresScores(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	p := startMilvusRuled(t, db, "score: store, latency_budget: 5s")
	queries := [][]float32{query, {-1, 1, 0, 2}}
	d, state := p.search(t, milvusSearch("routed", queries, 5, 0, "", "name"))
	if !strings.HasPrefix(state, "rescored;") || len(d.GetScores()) != 10 {
		t.Fatalf("status %q, %v", state, d)
	}
	for i, q := range queries {
		for j, h := range p.expected(t, q, 5, "") {
			at := 5*i + j
			id := int64(h.GetId().GetNumber()) + h.GetId().GetNegative()
			var own float64
			for k, x := range milvusVector(int(id) + 5) {
				own += float64(x * q[k])
			}
			if d.GetIds().GetIntId().GetData()[at] != id || !(math.Abs(float64(d.GetScores()[at])-own) <= 1e-4) {
				t.Errorf("query %d, row %d: %d with %g, want %d with %g", i, j, d.GetIds().GetIntId().GetData()[at], d.GetScores()[at], id, own)
			}
		}
	}
}

func TestMilvusProxyOptsIn(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	p := startMilvusRuled(t, db, "opt_in: [round-decimal, consistency]")
	r := milvusSearch("routed", [][]float32{query}, 5, 0, "")
	set(r, "round_decimal", "1")
	r.UseDefaultConsistency, r.ConsistencyLevel = false, commonpb.ConsistencyLevel_Strong
	d, state := p.search(t, r)
	if !strings.HasPrefix(state, "rescored;") {
		t.Fatalf("status %q", state)
	}
	for i, h := range p.expected(t, query, 5, "") {
		if want := float32(math.Round(float64(h.GetScore())*10) / 10); d.GetScores()[i] != want {
			t.Errorf("row %d scores %g, want %g", i, d.GetScores()[i], want)
		}
	}
}

func TestMilvusSDKThroughTheProxy(t *testing.T) {
	p := startMilvusProxied(t)
	var trailer metadata.MD
	c, err := client.NewClient(t.Context(), client.Config{Address: p.address, DialOptions: []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.Trailer(&trailer)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	params, err := entity.NewIndexFlatSearchParam()
	if err != nil {
		t.Fatal(err)
	}
	results, err := c.Search(t.Context(), "routed", nil, "", []string{"name"}, []entity.Vector{entity.FloatVector(query)}, "vec", entity.IP, 5, params)
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if state := trailer.Get("likeness-status"); len(state) != 1 || !strings.HasPrefix(state[0], "rescored;") {
		t.Errorf("status %q", state)
	}
	for i, h := range p.expected(t, query, 5, "") {
		if id, err := results[0].IDs.GetAsInt64(i); err != nil || id != int64(h.GetId().GetNumber())+h.GetId().GetNegative() || results[0].Scores[i] != h.GetScore() {
			t.Errorf("row %d: %d, %v, %g; the API says %v", i, id, err, results[0].Scores[i], h)
		}
	}
}
