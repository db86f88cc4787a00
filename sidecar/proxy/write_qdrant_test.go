package proxy_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy"
	router "github.com/likenessdb/likeness/sidecar/proxy/qdrant"
)

// writeCase is a call with its expected writes.
type writeCase struct {
	unary
	want []journal.Write
}

const aUUID = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"

// row is the write that changes some rows of the routed collection.
func row(kind journal.Kind, ids ...rerank.ID) []journal.Write {
	return []journal.Write{{Collection: "routed", Kind: kind, IDs: ids, Waited: true}}
}

func anyRow(kind journal.Kind, waited bool) []journal.Write {
	return []journal.Write{{Collection: "routed", Kind: kind, All: true, Waited: waited}}
}

// byOne is a filter, and how a write has it.
var byOne = &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}}

func byFilter(kind journal.Kind) []journal.Write {
	return []journal.Write{{Collection: "routed", Kind: kind, Filter: `{"must":[{"key":"n","match":{"value":1}}]}`, Waited: true}}
}

func qdrantWrites() []writeCase {
	wait := true
	updated := &qdrant.PointsOperationResponse{}
	changed := &qdrant.CollectionOperationResponse{}
	one, two := qdrant.NewIDNum(1<<64-1), qdrant.NewIDUUID(strings.ToUpper(strings.ReplaceAll(aUUID, "-", "")))
	ids := []rerank.ID{rerank.UintID(1<<64 - 1), rerank.TextID(aUUID)}
	vectors := qdrant.NewVectorsMap(map[string]*qdrant.Vector{"a": qdrant.NewVector(1, 2), "b": qdrant.NewVector(1)})
	points := []*qdrant.PointStruct{{Id: one, Vectors: vectors, Payload: qdrant.NewValueMap(map[string]any{"n": 1})}, {Id: two, Vectors: vectors}, {Id: one, Vectors: vectors}}
	names := &qdrant.VectorsSelector{Names: []string{"b"}}
	both := qdrant.NewPointsSelectorIDs([]*qdrant.PointId{one, two})
	payload := qdrant.NewValueMap(map[string]any{"m": "x"})
	filter := qdrant.NewPointsSelectorFilter(byOne)
	unknown := &qdrant.UpsertPoints{Wait: &wait, Points: points[:1]}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	created := &qdrant.CreateCollection{VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{
		"a": {Size: 2, Distance: qdrant.Distance_Dot}, "b": {Size: 1, Distance: qdrant.Distance_Dot},
	})}
	return []writeCase{
		{unary{qdrant.Collections_Create_FullMethodName, created, changed}, anyRow(journal.Collection, true)},
		{unary{qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{Wait: &wait, Points: points}, updated}, row(journal.Upsert, ids...)},
		{unary{qdrant.Points_Upsert_FullMethodName, unknown, updated}, anyRow(journal.Upsert, true)},
		{unary{qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{Wait: &wait, Points: []*qdrant.PointStruct{{Vectors: vectors}}}, updated}, nil},
		{unary{qdrant.Points_Upsert_FullMethodName, &qdrant.UpsertPoints{Wait: &wait, Points: []*qdrant.PointStruct{{Id: one, Vectors: qdrant.NewVectors(1, 2, 3)}}}, updated}, row(journal.Upsert, ids[0])},
		{unary{qdrant.Points_UpdateVectors_FullMethodName, &qdrant.UpdatePointVectors{Wait: &wait, Points: []*qdrant.PointVectors{{Id: two, Vectors: vectors}}}, updated}, row(journal.Vectors, ids[1])},
		{unary{qdrant.Points_DeleteVectors_FullMethodName, &qdrant.DeletePointVectors{Wait: &wait, PointsSelector: both, Vectors: names}, updated}, row(journal.Vectors, ids...)},
		{unary{qdrant.Points_DeleteVectors_FullMethodName, &qdrant.DeletePointVectors{Wait: &wait, PointsSelector: filter, Vectors: names}, updated}, byFilter(journal.Vectors)},
		{unary{qdrant.Points_SetPayload_FullMethodName, &qdrant.SetPayloadPoints{Wait: &wait, PointsSelector: both, Payload: payload}, updated}, row(journal.Payload, ids...)},
		{unary{qdrant.Points_SetPayload_FullMethodName, &qdrant.SetPayloadPoints{Wait: &wait, PointsSelector: filter, Payload: payload}, updated}, byFilter(journal.Payload)},
		{unary{qdrant.Points_SetPayload_FullMethodName, &qdrant.SetPayloadPoints{Wait: &wait, Payload: payload}, updated}, nil},
		{unary{qdrant.Points_OverwritePayload_FullMethodName, &qdrant.SetPayloadPoints{Wait: &wait, PointsSelector: both, Payload: payload}, updated}, row(journal.Payload, ids...)},
		{unary{qdrant.Points_DeletePayload_FullMethodName, &qdrant.DeletePayloadPoints{Wait: &wait, PointsSelector: both, Keys: []string{"m"}}, updated}, row(journal.Payload, ids...)},
		{unary{qdrant.Points_ClearPayload_FullMethodName, &qdrant.ClearPayloadPoints{Wait: &wait, Points: both}, updated}, row(journal.Payload, ids...)},
		{unary{qdrant.Points_UpdateBatch_FullMethodName, &qdrant.UpdateBatchPoints{Wait: &wait, Operations: []*qdrant.PointsUpdateOperation{
			{Operation: &qdrant.PointsUpdateOperation_Upsert{Upsert: &qdrant.PointsUpdateOperation_PointStructList{Points: points[:1]}}},
			{Operation: &qdrant.PointsUpdateOperation_UpdateVectors_{UpdateVectors: &qdrant.PointsUpdateOperation_UpdateVectors{Points: []*qdrant.PointVectors{{Id: one, Vectors: vectors}}}}},
			{Operation: &qdrant.PointsUpdateOperation_DeletePoints_{DeletePoints: &qdrant.PointsUpdateOperation_DeletePoints{Points: qdrant.NewPointsSelector(two)}}},
		}}, &qdrant.UpdateBatchResponse{}}, row(journal.Upsert, ids...)},
		{unary{qdrant.Points_UpdateBatch_FullMethodName, &qdrant.UpdateBatchPoints{Wait: &wait, Operations: []*qdrant.PointsUpdateOperation{
			{Operation: &qdrant.PointsUpdateOperation_SetPayload_{SetPayload: &qdrant.PointsUpdateOperation_SetPayload{PointsSelector: both, Payload: payload}}},
			{Operation: &qdrant.PointsUpdateOperation_ClearPayload_{ClearPayload: &qdrant.PointsUpdateOperation_ClearPayload{Points: both}}},
			{Operation: &qdrant.PointsUpdateOperation_DeletePayload_{DeletePayload: &qdrant.PointsUpdateOperation_DeletePayload{PointsSelector: both}}},
			{Operation: &qdrant.PointsUpdateOperation_OverwritePayload_{OverwritePayload: &qdrant.PointsUpdateOperation_OverwritePayload{PointsSelector: both, Payload: payload}}},
		}}, &qdrant.UpdateBatchResponse{}}, row(journal.Payload, ids...)},
		{unary{qdrant.Points_UpdateBatch_FullMethodName, &qdrant.UpdateBatchPoints{Wait: &wait, Operations: []*qdrant.PointsUpdateOperation{
			{Operation: &qdrant.PointsUpdateOperation_DeleteVectors_{DeleteVectors: &qdrant.PointsUpdateOperation_DeleteVectors{PointsSelector: filter, Vectors: names}}},
		}}, &qdrant.UpdateBatchResponse{}}, byFilter(journal.Vectors)},
		{unary{qdrant.Points_UpdateBatch_FullMethodName, &qdrant.UpdateBatchPoints{Wait: &wait, Operations: []*qdrant.PointsUpdateOperation{{}}}, &qdrant.UpdateBatchResponse{}}, nil},
		{unary{qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{Points: filter}, updated}, []journal.Write{{Collection: "routed", Kind: journal.Delete, Filter: byFilter("")[0].Filter}}},
		{unary{qdrant.Points_Delete_FullMethodName, &qdrant.DeletePoints{Wait: &wait, Points: both}, updated}, row(journal.Delete, ids...)},
		{unary{qdrant.Points_Scroll_FullMethodName, &qdrant.ScrollPoints{}, &qdrant.ScrollResponse{}}, nil},
		{unary{qdrant.Points_CreateFieldIndex_FullMethodName, &qdrant.CreateFieldIndexCollection{Wait: &wait, FieldName: "n", FieldType: qdrant.PtrOf(qdrant.FieldType_FieldTypeInteger)}, updated}, nil},
		{unary{qdrant.Collections_DeleteShardKey_FullMethodName, &qdrant.DeleteShardKeyRequest{Request: &qdrant.DeleteShardKey{}}, &qdrant.DeleteShardKeyResponse{}}, nil},
		{unary{qdrant.Collections_Delete_FullMethodName, &qdrant.DeleteCollection{}, changed}, anyRow(journal.Collection, true)},
	}
}

func TestQdrantWritesOverGRPC(t *testing.T) {
	eachQdrant(t, servers.Options{APIKey: "secret"}, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		store := openQdrant(t, s, "secret")
		direct := dial(t, s.Address)
		proxied := dial(t, start(t, proxy.Options{GRPC: proxy.Endpoint{Upstream: s.Address}, Router: router.New(followed(t, store, f))}).GRPC)
		for _, c := range qdrantWrites() {
			want, wantStatus := c.do(t, direct, "direct", "secret")
			got, gotStatus := c.do(t, proxied, "routed", "secret")
			if !proto.Equal(got, want) || strings.ReplaceAll(gotStatus.String(), "routed", "direct") != wantStatus.String() {
				t.Errorf("%s: %v %v\ndirectly %v %v", c.method, got, gotStatus, want, wantStatus)
			}
			if begun, _ := f.take(t); !reflect.DeepEqual(begun, c.want) {
				t.Errorf("%s %v:\nfollowed %+v\nwant     %+v", c.method, c.request, begun, c.want)
			}
			c.do(t, proxied, "unrouted", "wrong")
			if begun, _ := f.take(t); len(begun) > 0 {
				t.Errorf("%s on another collection: %+v", c.method, begun)
			}
		}
	})
}

func openQdrant(t *testing.T, s *servers.Server, key string) *adapter.Store {
	t.Helper()
	store, err := adapter.Open(adapter.Options{Address: s.Address, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// restWriteCases are requests on the routed collection with their expected writes: none if Qdrant
// says that it changed nothing.
var restWriteCases = []struct {
	step
	want []journal.Write
}{
	{step{"PUT", "/collections/{c}", `{"vectors":{"a":{"size":2,"distance":"Dot"},"b":{"size":1,"distance":"Dot"}}}`}, anyRow(journal.Collection, true)},
	{step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"vector":{"a":[1,2]},"payload":{"id":3,"x":"\"]}{[\\"},"id":18446744073709551615},{"id":"5C56C79369F34FBF87E6C4BF54C28C26","vector":{"a":[1,2]}}],"shard_key":null}`},
		row(journal.Upsert, rerank.UintID(1<<64-1), rerank.TextID(aUUID))},
	{step{"PUT", "//collections//{c}/points/?wait=true", `{"batch":{"ids":[1,2,1],"vectors":{"a":[[1,2],[3,4],[5,6]]}}}`}, row(journal.Upsert, numbers(1, 2)...)},
	{step{"PUT", "/collections/{c}/%70oints?wait=true", `{"\u0070oints" : [ {"id" : 1, "vector":{"a":[1,2]}} ]}`}, row(journal.Upsert, numbers(1)...)},
	{step{"PUT", "/collections/{c}/points", `{"points":[{"id":7,"vector":{"a":[1,2]}}]}`}, []journal.Write{{Collection: "routed", Kind: journal.Upsert, IDs: numbers(7)}}},
	{step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":1,"vector":{"a":[1,2]}}],"tomorrow":1}`}, anyRow(journal.Upsert, true)},
	{step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":-1,"vector":{"a":[1,2]}}]}`}, nil},
	{step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":"item 7","vector":{"a":[1,2]}}]}`}, nil},
	{step{"PUT", "/collections/{c}/points?wait=true", `{"points":[{"id":1,"vec`}, nil},
	{step{"PUT", "/collections/{c}/points/vectors?wait=true", `{"points":[{"id":1,"vector":{"b":[1]}}]}`}, row(journal.Vectors, numbers(1)...)},
	{step{"POST", "/collections/{c}/points/vectors/delete?wait=true", `{"points":[1,2],"vector":["b"]}`}, row(journal.Vectors, numbers(1, 2)...)},
	{step{"POST", "/collections/{c}/points/payload?wait=true", `{"payload":{"n":1},"points":[1,2]}`}, row(journal.Payload, numbers(1, 2)...)},
	{step{"PUT", "/collections/{c}/points/payload?wait=true", `{"payload":{"n":2},"points":null,"filter":{"must":[{"key":"n","match":{"value":1}}]}}`}, byFilter(journal.Payload)},
	{step{"POST", "/collections/{c}/points/payload/delete?wait=true", `{"keys":["n"],"points":[1]}`}, row(journal.Payload, numbers(1)...)},
	{step{"POST", "/collections/{c}/points/payload/clear?wait=true", `{"points":[1]}`}, row(journal.Payload, numbers(1)...)},
	{step{"POST", "/collections/{c}/points/batch?wait=true", `{"operations":[{"delete":{"points":[7]}},{"delete":{"points":[1]}}]}`}, row(journal.Delete, numbers(7, 1)...)},
	{step{"POST", "/collections/{c}/points/batch?wait=true", `{"operations":[{"upsert":{"points":[{"id":9,"vector":{}}]}},{"clear_payload":{"points":[2]}},{"set_payload":{"payload":{},"points":[2]}},{"overwrite_payload":{"payload":{},"points":[2]}},{"delete_payload":{"keys":["n"],"points":[2]}},{"update_vectors":{"points":[{"id":2,"vector":{"b":[3]}}]}},{"delete_vectors":{"points":[2],"vector":["b"]}}]}`},
		row(journal.Upsert, numbers(9, 2)...)},
	{step{"POST", "/collections/{c}/points/batch?wait=true", `{"operations":[{"delete":{"points":[7]}},{"delete":{"filter":{"must":[]}}}]}`}, anyRow(journal.Delete, true)},
	{step{"POST", "/collections/{c}/points/delete?wait=true", `{"filter":{"must":[{"key":"n","match":{"value":1}}]}}`}, byFilter(journal.Delete)},
	{step{"POST", "/collections/{c}/points/delete?wait=true", `{"points":[]}`}, nil},
	{step{"POST", "/collections/{c}/points", `{"ids":[1]}`}, nil},
	{step{"POST", "/collections/{c}/points/scroll", `{"limit":3}`}, nil},
	{step{"PATCH", "/collections/{c}", `{"optimizers_config":{}}`}, nil},
	{step{"PUT", "/collections/{c}/index?wait=true", `{"field_name":"n","field_schema":"integer"}`}, nil},
	{step{"POST", "/collections/{c}/cluster", `{"move_shard":{"shard_id":0,"to_peer_id":1,"from_peer_id":2}}`}, nil},
	{step{"POST", "/collections/{c}/cluster", `{"drop_sharding_key":{"shard_key":"x"}}`}, nil},
	{step{"POST", "/collections/{c}/shards/delete", `{"shard_key":"x"}`}, nil},
	{step{"PUT", "/collections/{c}/snapshots/recover", `{"location":"file:///nothing"}`}, anyRow(journal.Collection, true)},
	{step{"PUT", "/collections/{c}/shards/0/snapshots/recover?wait=false", `{"location":"file:///nothing"}`}, nil}, // refused as it is read
	{step{"DELETE", "/collections/{c}/vectors/b", ""}, nil},
	{step{"DELETE", "/collections/{c}", ""}, anyRow(journal.Collection, true)},
}

func TestQdrantWritesOverREST(t *testing.T) {
	eachQdrant(t, servers.Options{APIKey: "secret"}, func(t *testing.T, s *servers.Server) {
		f := &recorder{}
		at := start(t, proxy.Options{REST: proxy.Endpoint{Upstream: s.REST}, Router: router.New(followed(t, openQdrant(t, s, "secret"), f))})
		for _, c := range restWriteCases {
			want, got := c.do(t, s.REST, "direct", "secret"), c.do(t, "http://"+at.REST, "routed", "secret")
			if got != want {
				t.Errorf("%s %s: %+v\ndirectly %+v", c.method, c.path, got, want)
			}
			if begun, _ := f.take(t); !reflect.DeepEqual(begun, c.want) {
				t.Errorf("%s %s %s:\nfollowed %+v\nwant     %+v", c.method, c.path, c.body, begun, c.want)
			}
			c.do(t, "http://"+at.REST, "unrouted", "wrong")
			if begun, _ := f.take(t); len(begun) > 0 {
				t.Errorf("%s %s on another collection: %+v", c.method, c.path, begun)
			}
		}
		upload(t, "http://"+at.REST+"/collections/routed/snapshots/upload")
		twice := append(anyRow(journal.Collection, true), anyRow(journal.Collection, false)...) // it fails with 500
		if begun, _ := f.take(t); !reflect.DeepEqual(begun, twice) {
			t.Errorf("upload: %+v", begun)
		}
	})
}

// upload streams a form whose length is not told.
func upload(t *testing.T, url string) {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("snapshot", "s.snapshot")
	if err == nil {
		_, err = io.WriteString(part, "no snapshot")
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, struct{ io.Reader }{&form})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Api-Key", "secret")
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}

func TestQdrantAliases(t *testing.T) {
	s := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	f := &recorder{}
	at := start(t, proxy.Options{
		GRPC: proxy.Endpoint{Upstream: s.Address}, REST: proxy.Endpoint{Upstream: s.REST},
		Router: router.New(followed(t, openQdrant(t, s, ""), f)),
	})
	base := "http://" + at.REST
	vectors := `{"vectors":{"size":1,"distance":"Dot"}}`
	upsert := `{"points":[{"id":1,"vector":[1]}]}`
	written := func(collection string) []journal.Write {
		return []journal.Write{{Collection: collection, Kind: journal.Upsert, IDs: numbers(1), Waited: true}}
	}
	any := journal.Write{Collection: "other", Kind: journal.Collection, All: true, Waited: true}
	for _, c := range []struct {
		step
		want []journal.Write
	}{
		{step{"PUT", "/collections/routed", vectors}, anyRow(journal.Collection, true)},
		{step{"PUT", "/collections/beside", vectors}, nil},
		{step{"PUT", "/collections/mine/points?wait=true", upsert}, nil}, // no such alias
		{step{"POST", "/collections/aliases", `{"actions":[{"create_alias":{"collection_name":"routed","alias_name":"mine"}}]}`}, nil},
		{step{"PUT", "/collections/mine/points?wait=true", upsert}, written("routed")},
		{step{"POST", "/collections/aliases", `{"actions":[{"rename_alias":{"old_alias_name":"mine","new_alias_name":"yours"}}]}`}, nil},
		{step{"PUT", "/collections/mine/points?wait=true", upsert}, nil},
		{step{"PUT", "/collections/yours/points?wait=true", upsert}, written("routed")},
		// other is a route's collection and an alias.
		{step{"POST", "/collections/aliases", `{"actions":[{"create_alias":{"collection_name":"beside","alias_name":"other"}}]}`}, []journal.Write{any}},
		{step{"PUT", "/collections/beside/points?wait=true", upsert}, written("other")},
		{step{"POST", "/collections/aliases", `{"actions":[{"delete_alias":{"alias_name":"other"}},{"create_alias":{"collection_name":"routed","alias_name":"other"}}]}`}, []journal.Write{any}},
		{step{"PUT", "/collections/other/points?wait=true", upsert}, append(written("other"), written("routed")...)},
		{step{"PUT", "/collections/beside/points?wait=true", upsert}, nil},
		{step{"POST", "/collections/aliases", `{"actions":[{"tomorrow":{}}]}`}, nil},
	} {
		c.do(t, base, "", "")
		if begun, _ := f.take(t); !reflect.DeepEqual(begun, c.want) {
			t.Errorf("%s %s %s:\nfollowed %+v\nwant     %+v", c.method, c.path, c.body, begun, c.want)
		}
	}
}
