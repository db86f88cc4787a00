package serve_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	adapter "github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// milvusTable builds a table of the filled collection.
func milvusTable(t *testing.T, o adapter.Options) string {
	t.Helper()
	store, err := adapter.New(t.Context(), o)
	must2(t, err)
	defer store.Close()
	return buildTable(t, store, "routed", rerank.FormatFloat32)
}

// searchMilvus returns the hits and the status of a search of the routed collection.
func searchMilvus(ctx context.Context, c milvuspb.MilvusServiceClient) (hits []hit, state string, err error) {
	return searchMilvusAs(ctx, c, "routed")
}

// searchMilvusAs is searchMilvus by any name of a collection.
func searchMilvusAs(ctx context.Context, c milvuspb.MilvusServiceClient, collection string) (hits []hit, state string, err error) {
	var trailer metadata.MD
	answer, err := c.Search(ctx, milvusSearch(collection, [][]float32{query}, 5, 0, ""), grpc.Trailer(&trailer))
	if err == nil && answer.GetStatus().GetCode() != 0 {
		err = fmt.Errorf("status %v", answer.GetStatus())
	}
	for i, id := range answer.GetResults().GetIds().GetIntId().GetData() {
		hits = append(hits, hit{strconv.FormatInt(id, 10), answer.GetResults().GetScores()[i]})
	}
	return hits, strings.Join(trailer.Get("likeness-status"), "|"), err
}

// milvusUpsertion writes one row of the routed collection.
func milvusUpsertion(id int64, vector []float32) *milvuspb.UpsertRequest {
	field := func(name string, kind schemapb.DataType, f *schemapb.ScalarField) *schemapb.FieldData {
		return &schemapb.FieldData{FieldName: name, Type: kind, Field: &schemapb.FieldData_Scalars{Scalars: f}}
	}
	meta := field("$meta", schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: [][]byte{[]byte(`{}`)}}}})
	meta.IsDynamic = true
	return &milvuspb.UpsertRequest{CollectionName: "routed", NumRows: 1, FieldsData: []*schemapb.FieldData{
		field("id", schemapb.DataType_Int64, &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{id}}}}),
		{FieldName: "vec", Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
			Dim: 4, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: vector}}}}},
		field("name", schemapb.DataType_VarChar, &schemapb.ScalarField{Data: &schemapb.ScalarField_StringData{StringData: &schemapb.StringArray{Data: []string{"new"}}}}),
		field("on", schemapb.DataType_Bool, &schemapb.ScalarField{Data: &schemapb.ScalarField_BoolData{BoolData: &schemapb.BoolArray{Data: []bool{true}}}}),
		field("price", schemapb.DataType_Double, &schemapb.ScalarField{Data: &schemapb.ScalarField_DoubleData{DoubleData: &schemapb.DoubleArray{Data: []float64{1}}}}),
		field("more", schemapb.DataType_JSON, &schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: [][]byte{[]byte(`{}`)}}}}),
		meta,
	}}
}

// doubtful is how long a write may be on its way before answers say that they may lack it. A busy Milvus can take
// longer to refuse one.
const doubtful = 50 * time.Millisecond

// addMilvusUsers makes users of a Milvus: nobody has no rights, neighbour all to another collection, reader may search the
// routed one.
func addMilvusUsers(t *testing.T, root client.Client) {
	t.Helper()
	for user, grants := range map[string][][2]string{
		"nobody":    nil,
		"neighbour": {{"plain", "*"}},
		"reader":    {{"routed", "Search"}, {"routed", "Query"}},
	} {
		must2(t, root.CreateCredential(t.Context(), user, "no-rights"))
		if grants == nil {
			continue
		}
		must2(t, root.CreateRole(t.Context(), user))
		must2(t, root.AddUserRole(t.Context(), user, user))
		for _, g := range grants {
			must2(t, root.Grant(t.Context(), user, entity.PriviledegeObjectTypeCollection, g[0], g[1]))
		}
	}
}

// milvusCredentials are the credentials of a user of Milvus.
func milvusCredentials(userAndPassword string) metadata.MD {
	return metadata.Pairs("authorization", base64.StdEncoding.EncodeToString([]byte(userAndPassword)))
}

// startBesideMilvusLiars is startBesideLiars before a Milvus with users.
func startBesideMilvusLiars(t *testing.T) (h *honest, newMilvusLiar func(at serve.Addresses) *liar) {
	t.Helper()
	db := servers.MilvusForTest(t, servers.Options{Authorization: true})
	config := client.Config{Address: db.Address, Username: "root", Password: "Milvus"}
	fillMilvus(t, config, client.WithConsistencyLevel(entity.ClStrong))
	root, err := client.NewClient(t.Context(), config)
	must2(t, err)
	t.Cleanup(func() { _ = root.Close() })
	addMilvusUsers(t, root)
	password := filepath.Join(t.TempDir(), "password")
	must2(t, os.WriteFile(password, []byte("Milvus"), 0o600))
	at := startListening(t, apiBesideLiars(t)+fmt.Sprintf(`stores: {main: {kind: milvus, address: %q, username: root, password_file: %q}}
routes:
  things: {store: main, collection: routed, model: w, strategy: scan, table: %q, table_live: true, latency_budget: 20s, rate: 200, burst: 20, events: {share: 1, keep: [vector, user]}}
  another: {store: main, collection: plain, model: v, placement: stored, events: {share: 1}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", routes: [things]}
`, db.Address, password, milvusTable(t, adapter.Options{Address: db.Address, Username: "root", Password: "Milvus"})))
	proxy := milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC))
	h = &honest{at: at, db: db, pace: 50 * time.Millisecond, ways: []func(ctx context.Context) ([]hit, string, error){ // busier machines certify nothing in time
		func(ctx context.Context) ([]hit, string, error) {
			return searchMilvus(asMilvusUser(ctx, "root:Milvus"), proxy)
		},
	}}
	h.begin(t)
	return h, func(at serve.Addresses) *liar {
		l := newLiar(t, at, &h.answer)
		l.readers = []metadata.MD{milvusCredentials("reader:no-rights")}
		l.rightless = []metadata.MD{milvusCredentials("nobody:no-rights"), milvusCredentials("neighbour:no-rights")}
		l.none = []metadata.MD{
			{}, metadata.Pairs("authorization", ""), metadata.Pairs("authorization", "root:Milvus"), milvusCredentials("root:wrong"), milvusCredentials("root"), milvusCredentials(":"),
			milvusCredentials("root:"), milvusCredentials("Root:Milvus"), milvusCredentials("root:Milvus "), milvusCredentials("absent:Milvus"),
			milvusCredentials("nobody:wrong"), milvusCredentials("root:" + strings.Repeat("k", 20<<10)), metadata.Pairs("token", "root:Milvus"),
			metadata.Pairs("authorization", "Basic cm9vdDpNaWx2dXM=", "authorization", "x"), metadata.Pairs("api-key", "root:Milvus"),
		}
		l.ways = append(l.ways, slices.Repeat([]func(context.Context){l.searchMilvus, l.writeMilvus, l.callMilvus, l.spellMilvus}, 2)...)
		return l
	}
}

// TestALiarBeforeMilvusChangesNothing is TestALiarChangesNothing before a Milvus, which nobody asks beforehand who may
// write: an answer may be uncertified while a lie takes long.
func TestALiarBeforeMilvusChangesNothing(t *testing.T) {
	h, newLiar := startBesideMilvusLiars(t)
	before := h.count(t)
	lasts := liarFor(t, 15*time.Second)
	beside, lies := h.besideLiars(t, lasts, 5*time.Millisecond, newLiar)
	slow := slices.DeleteFunc(slices.Clone(lies), func(i interval) bool { return i.ended.Sub(i.began) <= doubtful })
	uncertified := 0
	for n, s := range beside {
		if s.status == h.status {
			continue
		}
		uncertified++
		if !strings.HasSuffix(s.status, "certificate=unknown") || !slices.ContainsFunc(slow, s.overlaps) {
			t.Errorf("search %d: %q, want %q; no lie was on its way for long", n, s.status, h.status)
		}
	}
	h.wantOnly(t, len(beside), before)
	if len(lies) < 100 || len(beside) < 10 {
		t.Errorf("%d lies and %d honest searches", len(lies), len(beside))
	}
	t.Logf("%d lies in %v beside %d honest searches, %d of them beside a lie that was on its way for long; 0 effects", len(lies), lasts, len(beside), uncertified)
}

// forgeMilvus returns a context with credentials, and now and then headers that likeness or Milvus could trust.
func (l *liar) forgeMilvus(ctx context.Context, credentials metadata.MD) context.Context {
	md := credentials.Copy()
	if l.random.IntN(3) == 0 {
		name, value, _ := strings.Cut(one(l, []string{
			"likeness-status=rescored; route=things", "likeness-user=ann", "x-request-id=" + strings.Repeat("i", 3000), "dbname=default", "dbname=other", "identifier=1", "identifier=449000000000000000",
			"sourceid=bWlsdnVzLXByb3h5", "sourceid=@@milvus-member@@", "user=root", "username=root", "x-forwarded-for=127.0.0.1", "grpc-internal-encoding-request=gzip", "client-request-unixmsec=-1",
			"traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "cookie=authorization=cm9vdDpNaWx2dXM=", "host=other",
		}), "=")
		md.Append(name, value)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// searchMilvus searches the routed collection.
func (l *liar) searchMilvus(ctx context.Context) {
	expr := one(l, []string{"", "price < 3", strings.Repeat("(", 500), "name in [" + strings.Repeat(`"k",`, 3000) + `"k"]`, strings.Repeat("not ", 200) + "on"})
	search := milvusSearch(one(l, []string{"routed", "routed", "routed", "Routed", "routed ", "default.routed"}), [][]float32{one(l, [][]float32{query, {1}, make([]float32, 10_000)})}, l.random.IntN(30), l.random.IntN(3), expr)
	set(search, one(l, []string{"topk", "anns_field", "metric_type", "round_decimal", "params"}), one(l, []string{"3", "", "vec", "-1", `{"radius":1}`, "{"}))
	for range l.random.IntN(2000) {
		search.SearchParams = append(search.SearchParams, &commonpb.KeyValuePair{Key: "k", Value: "v"})
	}
	ctx = l.forgeMilvus(ctx, l.credentials())
	var trailer metadata.MD
	var s *commonpb.Status
	var err error
	switch c := milvuspb.NewMilvusServiceClient(l.proxy); l.random.IntN(4) {
	case 0:
		var r *milvuspb.SearchResults
		r, err = c.HybridSearch(ctx, hybridOf(3, slices.Repeat([]*milvuspb.SearchRequest{search}, l.random.IntN(20))...), grpc.Trailer(&trailer))
		s = r.GetStatus()
	case 1:
		var r *milvuspb.QueryResults
		r, err = c.Query(ctx, &milvuspb.QueryRequest{CollectionName: "routed", Expr: "id >= 0", OutputFields: []string{"vec"}}, grpc.Trailer(&trailer))
		s = r.GetStatus()
	default:
		var r *milvuspb.SearchResults
		r, err = c.Search(ctx, search, grpc.Trailer(&trailer))
		s = r.GetStatus()
	}
	if err == nil && isGood(s) || len(trailer.Get("likeness-status")) > 0 {
		l.told("a search of %q: %v, %v, trailer %v", search.GetCollectionName(), s, err, trailer)
	}
}

// isGood reports whether Milvus says that it carried a call out.
func isGood(s *commonpb.Status) bool {
	return s.GetCode() == 0 && s.GetErrorCode() == commonpb.ErrorCode_Success //nolint:staticcheck // older servers set only this one
}

// milvusWrite returns the method and the request of a write to the routed collection, or to its names.
func (l *liar) milvusWrite() (method string, request proto.Message) {
	expr := one(l, []string{"id in [1, 2, 3]", "id in [" + strings.Repeat("1,", 5000) + "1]", "price >= 0", "id ==", "", `name == "` + strings.Repeat("n", 3000) + `"`})
	ttl := []*commonpb.KeyValuePair{{Key: "collection.ttl.seconds", Value: one(l, []string{"1", "0", "-1", "x"})}, {Key: "mmap.enabled", Value: "true"}}
	rows := milvusUpsertion(l.random.Int64N(milvusRows)-5, []float32{99, 99, 99, 99})
	name := one(l, []string{"routed", "plain", "other"})
	requests := []proto.Message{
		rows, rows, &milvuspb.InsertRequest{CollectionName: "routed", FieldsData: rows.GetFieldsData(), NumRows: 1}, &milvuspb.InsertRequest{CollectionName: "routed", NumRows: 1 << 30},
		&milvuspb.DeleteRequest{CollectionName: "routed", Expr: expr}, &milvuspb.DeleteRequest{CollectionName: "routed", Expr: expr},
		&milvuspb.ImportRequest{CollectionName: "routed", Files: []string{"/etc/passwd", "x.json"}},
		&milvuspb.AlterCollectionRequest{CollectionName: "routed", Properties: ttl}, &milvuspb.AlterCollectionFieldRequest{CollectionName: "routed", FieldName: "vec", Properties: ttl},
		&milvuspb.LoadCollectionRequest{CollectionName: "routed", Refresh: l.random.IntN(2) == 0}, &milvuspb.ReleaseCollectionRequest{CollectionName: "routed"},
		&milvuspb.LoadPartitionsRequest{CollectionName: "routed", PartitionNames: []string{"_default"}}, &milvuspb.ReleasePartitionsRequest{CollectionName: "routed", PartitionNames: []string{"_default"}},
		&milvuspb.DropPartitionRequest{CollectionName: "routed", PartitionName: "_default"}, &milvuspb.DropCollectionRequest{CollectionName: "routed"}, &milvuspb.CreateCollectionRequest{CollectionName: name},
		&milvuspb.CreateAliasRequest{CollectionName: name, Alias: one(l, []string{"routed", "alias"})}, &milvuspb.AlterAliasRequest{CollectionName: name, Alias: "routed"}, &milvuspb.DropAliasRequest{Alias: name},
		&milvuspb.RenameCollectionRequest{OldName: name, NewName: one(l, []string{"routed", "stolen"})}, &milvuspb.RenameCollectionRequest{OldName: "routed", NewName: "routed", NewDBName: "other"},
		&milvuspb.AddCollectionFieldRequest{CollectionName: "routed", Schema: []byte("x")}, &milvuspb.ReplicateMessageRequest{ChannelName: "by-dev-rootcoord-dml_0"}, &milvuspb.DropDatabaseRequest{DbName: "default"},
	}
	request = one(l, requests)
	return "/milvus.proto.milvus.MilvusService/" + strings.TrimSuffix(string(request.ProtoReflect().Descriptor().Name()), "Request"), request
}

// writeMilvus writes, as a caller who may not. Users without rights write rows only: Milvus is not asked beforehand
// whether they may do more.
func (l *liar) writeMilvus(ctx context.Context) {
	method, request := l.milvusWrite()
	credentials := one(l, l.none)
	switch request.(type) {
	case *milvuspb.InsertRequest, *milvuspb.UpsertRequest, *milvuspb.DeleteRequest:
		credentials = l.noWriter()
	}
	l.invokeMilvus(ctx, method, request, credentials)
}

// callMilvus calls any method of Milvus, as a caller whom it does not know.
func (l *liar) callMilvus(ctx context.Context) {
	service := milvuspb.File_milvus_proto.Services().ByName("MilvusService")
	method := service.Methods().Get(l.random.IntN(service.Methods().Len()))
	if method.IsStreamingClient() {
		return
	}
	in := dynamicpb.NewMessage(method.Input())
	for name, value := range map[protoreflect.Name]string{
		"collection_name": "routed", "collectionName": "routed", "oldName": "routed", "newName": "stolen", "alias": "routed", "partition_name": "_default", "expr": "id > 0", "field_name": "vec", "index_name": "vec",
		"username": "root", "password": "TWlsdnVz", "newPassword": "c3RvbGVu",
	} {
		if f := method.Input().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			in.Set(f, protoreflect.ValueOfString(value))
		}
	}
	l.invokeMilvus(ctx, fmt.Sprintf("/%s/%s", service.FullName(), method.Name()), in, one(l, l.none))
}

// milvusReads are the methods that Milvus answers to some or all users without rights.
var milvusReads = regexp.MustCompile(`/(Get|Has|List|Describe|BatchDescribe|Show|Check|Select|Alloc|Connect|Dummy|RegisterLink)\w*$`)

// invokeMilvus makes a call that Milvus refuses to the caller.
func (l *liar) invokeMilvus(ctx context.Context, method string, request proto.Message, credentials metadata.MD) {
	var trailer metadata.MD
	var answer milvusAnswer
	err := l.proxy.Invoke(l.forgeMilvus(ctx, credentials), method, request, &answer, grpc.Trailer(&trailer), grpc.ForceCodec(milvusCodec{}))
	if err == nil && answer.isGood() && !milvusReads.MatchString(method) || len(trailer.Get("likeness-status")) > 0 {
		l.told("%s of %.500v as %.100v: %q, %v, trailer %v", method, request, credentials, answer, err, trailer)
	}
}

// milvusAnswer is the answer to any call: a status, or a message with a status in its first field.
type milvusAnswer []byte

func (a milvusAnswer) isGood() bool {
	var whole commonpb.Status
	var inner milvuspb.MutationResult
	return (proto.Unmarshal(a, &whole) != nil || isGood(&whole)) && (proto.Unmarshal(a, &inner) != nil || isGood(inner.GetStatus()))
}

// milvusCodec reads every answer as a milvusAnswer.
type milvusCodec struct{}

func (milvusCodec) Name() string                    { return "proto" }
func (milvusCodec) Marshal(v any) ([]byte, error)   { return proto.Marshal(v.(proto.Message)) }
func (milvusCodec) Unmarshal(b []byte, v any) error { *v.(*milvusAnswer) = slices.Clone(b); return nil }

// spellMilvus calls the proxy by odd spellings, as a caller whom Milvus does not know. A call by a user whose message
// Milvus cannot read counts as a write.
func (l *liar) spellMilvus(ctx context.Context) {
	lie := grpcLie{milvuspb.MilvusService_Search_FullMethodName, l.marshalled(milvusSearch("routed", [][]float32{query}, 3, 0, "")), one(l, l.none)}
	if l.random.IntN(4) > 0 {
		method, request := l.milvusWrite()
		lie = grpcLie{method, l.marshalled(request), one(l, l.none)}
	}
	l.spellGRPC(ctx, one(l, []string{l.at.Proxy.GRPC, l.at.Proxy.GRPC, l.at.Proxy.GRPC, l.at.GRPC, l.at.REST}), lie)
}

// TestWritesPastTheProxyOfMilvus: where a route declares that all writes pass its proxy, a write past
// it is found within twice reconcile.interval, and then no answer is exact.
func TestWritesPastTheProxyOfMilvus(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	at := startSidecar(t, fmt.Sprintf(`
state_dir: %q
stores: {main: {kind: milvus, address: %q}}
routes: {things: {store: main, collection: routed, model: w, strategy: scan, table: %q, table_live: true, writes: proxy, latency_budget: 20s, reconcile: {interval: %v, rows_per_second: 0}}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, t.TempDir(), db.Address, milvusTable(t, adapter.Options{Address: db.Address}), comparison))
	direct, proxy := milvuspb.NewMilvusServiceClient(connect(t, db.Address)), milvuspb.NewMilvusServiceClient(connect(t, at.Proxy.GRPC))
	first := func(certificate string) (id string) {
		t.Helper()
		soon(t, "certificate="+certificate, func(ctx context.Context) error {
			hits, state, err := searchMilvus(ctx, proxy)
			if err == nil && (len(hits) == 0 || !strings.Contains(state, "certificate="+certificate)) {
				err = fmt.Errorf("status %q, %v", state, hits)
			}
			if err == nil {
				id = hits[0].id
			}
			return err
		})
		return id
	}
	write := func(c milvuspb.MilvusServiceClient, id int64, length float32) {
		t.Helper()
		best := []float32{-2.5 * length, length, -.5 * length, 3 * length} // testModel's W makes the query such a vector
		r, err := c.Upsert(t.Context(), milvusUpsertion(id, best))
		if must2(t, err); r.GetStatus().GetCode() != 0 {
			t.Fatal(r.GetStatus())
		}
	}
	first("exact")
	write(proxy, 1000, 100)
	if id := first("exact"); id != "1000" {
		t.Errorf("exact, and %s is first after a write through the proxy", id)
	}
	write(direct, 1001, 200)
	detected := time.Now().Add(detection)
	if id := first("snapshot"); id != "1000" && id != "1001" {
		t.Errorf("%s is first after a write past the proxy", id)
	}
	if late := time.Since(detected); late > detection { // twice as long, because the machine may be busy
		t.Errorf("the write was found %v after the window", late)
	}
	soon(t, "the row in the table", func(ctx context.Context) error {
		hits, state, err := searchMilvus(ctx, proxy)
		switch {
		case err != nil:
			return err
		case strings.Contains(state, "certificate=exact"):
			t.Errorf("%q after a write past the proxy was found", state)
		case len(hits) == 0 || hits[0].id != "1001":
			return fmt.Errorf("%v", hits)
		}
		return nil
	})
}
