package milvus

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

func TestKeysOfAnExpression(t *testing.T) {
	text := rerank.TextID
	for expression, want := range map[string][]rerank.ID{
		"id in [1,-2 , 3]":              {rerank.IntID(1), rerank.IntID(-2), rerank.IntID(3)},
		" id IN [0]":                    {rerank.IntID(0)},
		"id==7":                         {rerank.IntID(7)},
		`id in ["a, 1", 'b]"', "ü"]`:    {text("a, 1"), text(`b]"`), text("ü")},
		`id == "7"`:                     {text("7")},
		`id in ["a\n"]`:                 nil, // an escape
		"id in [01]":                    nil, // octal
		"id in [1.5]":                   nil,
		"id in [9223372036854775808]":   nil,
		"id in []":                      nil,
		"id in [1 2]":                   nil,
		"id in 1]":                      nil,
		"id > 1":                        nil,
		"id == 1 or id == 2":            nil,
		"id in [1] and x > 2":           nil,
		"not id in [1]":                 nil,
		"id not in [1]":                 nil,
		"other in [1]":                  nil,
		"id in {ids}":                   nil,
		"idin [1]":                      nil,
		"json_contains(id, 1)":          nil,
		"id in [1] // and this is not)": nil,
	} {
		got, ok := keysOf(expression, "id")
		if !reflect.DeepEqual(got, want) || ok != (want != nil) {
			t.Errorf("%s: %v, %t", expression, got, ok)
		}
	}
}

// keyed is a store whose collections have a primary key.
type keyed struct {
	adapters.Store
	auto bool
}

func (k keyed) Identify(_ context.Context, name string) (adapters.Identity, error) {
	return adapters.Identity{Collection: name, Key: "id", AutoKey: k.auto}, nil
}

type oneRoute struct {
	search.Searcher
	route *route.Route
}

func (o oneRoute) Routes() []*route.Route { return []*route.Route{o.route} }

// noted is a follower of the collection c that records the last write.
type noted struct {
	write   *journal.Write
	chosen  []rerank.ID
	begun   int
	ended   int
	blocked bool // no write may be forwarded
}

func (n *noted) Blocked(string) bool { return n.blocked }

func (*noted) Covers(collection string) bool { return collection == "c" }

func (n *noted) Begin(_ context.Context, w journal.Write) func(bool, []rerank.ID) {
	n.write = &w
	n.begun++
	return func(_ bool, ids []rerank.ID) { n.chosen, n.ended = ids, n.ended+1 }
}

func (n *noted) Doubt(string) func(*journal.Write) {
	n.begun++
	return func(w *journal.Write) {
		if n.ended++; w != nil {
			n.write = w
		}
	}
}

// loud fails the test if an error is logged, as after a panic.
type loud struct {
	slog.Handler
	t testing.TB
}

func (loud) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (l loud) Handle(_ context.Context, r slog.Record) error {
	l.t.Error(r.Message)
	return nil
}

func following(t testing.TB, auto bool) (*Router, *noted) {
	t.Helper()
	n := &noted{}
	r, err := routing.New(oneRoute{route: &route.Route{Policy: route.Policy{Name: "r", Collection: "c", StoreName: "s", Ramp: 100}, Parts: route.Parts{Store: keyed{auto: auto}}}},
		routing.Options{Store: "s", Logger: slog.New(loud{t: t}), Follower: n, WriteBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return New(r, "mine"), n
}

func keyColumn(name string, ids ...string) *schemapb.FieldData {
	return &schemapb.FieldData{FieldName: name, Type: schemapb.DataType_VarChar, Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{
		Data: &schemapb.ScalarField_StringData{StringData: &schemapb.StringArray{Data: ids}},
	}}}
}

// TestBlockedWrites: a write that the follower forbids is refused, not forwarded, and its client can try again later.
func TestBlockedWrites(t *testing.T) {
	r, n := following(t, false)
	n.blocked = true
	request := encoded(t, &milvuspb.UpsertRequest{DbName: "mine", CollectionName: "c", FieldsData: []*schemapb.FieldData{keyColumn("id", "a")}})
	reply := r.Intercept(nil)[milvuspb.MilvusService_Upsert_FullMethodName].Answer(t.Context(), request)
	if status.Code(reply.Err) != codes.Unavailable || reply.Ended != nil || n.begun != n.ended {
		t.Errorf("%+v, begun %d times, ended %d times", reply, n.begun, n.ended)
	}
}

// TestWrites covers requests that none of the official clients sends.
func TestWrites(t *testing.T) {
	any := &journal.Write{Collection: "c", Kind: journal.Upsert, All: true}
	ids := []rerank.ID{rerank.TextID("a"), rerank.TextID("b")}
	upsert := &milvuspb.UpsertRequest{DbName: "mine", CollectionName: "c", FieldsData: []*schemapb.FieldData{keyColumn("x", "z"), keyColumn("id", "a", "b")}}
	unknown := proto.Clone(upsert).(*milvuspb.UpsertRequest)
	unknown.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 1})
	for _, c := range []struct {
		name    string
		method  string
		auto    bool
		request proto.Message
		want    *journal.Write
		chosen  []rerank.ID // behind an answer that chose "n"
	}{
		{"text keys", milvuspb.MilvusService_Upsert_FullMethodName, false, upsert, &journal.Write{Collection: "c", Kind: journal.Upsert, IDs: ids}, nil},
		{"an unknown field", milvuspb.MilvusService_Upsert_FullMethodName, false, unknown, any, nil},
		{"no key", milvuspb.MilvusService_Insert_FullMethodName, false, &milvuspb.InsertRequest{DbName: "mine", CollectionName: "c"}, any, nil},
		{"an upsert that gets new ids", milvuspb.MilvusService_Upsert_FullMethodName, true, upsert, any, append([]rerank.ID{rerank.TextID("n")}, ids...)},
		{"another database", milvuspb.MilvusService_Upsert_FullMethodName, false, &milvuspb.UpsertRequest{CollectionName: "c"}, nil, nil},
		{"a template", milvuspb.MilvusService_Delete_FullMethodName, false, &milvuspb.DeleteRequest{
			DbName: "mine", CollectionName: "c", Expr: "id in {ids}", ExprTemplateValues: map[string]*schemapb.TemplateValue{"ids": {}},
		}, &journal.Write{Collection: "c", Kind: journal.Delete, All: true}, nil},
		{"an import", milvuspb.MilvusService_Import_FullMethodName, false, &milvuspb.ImportRequest{DbName: "mine", CollectionName: "c"}, any, nil},
		{"a new field", milvuspb.MilvusService_AddCollectionField_FullMethodName, false, &milvuspb.AddCollectionFieldRequest{DbName: "mine", CollectionName: "c"},
			&journal.Write{Collection: "c", Kind: journal.Payload, All: true}, nil},
		{"a rename into another database", milvuspb.MilvusService_RenameCollection_FullMethodName, false, &milvuspb.RenameCollectionRequest{DbName: "mine", OldName: "x", NewName: "c", NewDBName: "yours"}, nil, nil},
		{"a rename out of another database", milvuspb.MilvusService_RenameCollection_FullMethodName, false, &milvuspb.RenameCollectionRequest{DbName: "yours", OldName: "c", NewName: "c", NewDBName: "mine"},
			&journal.Write{Collection: "c", Kind: journal.Collection, All: true, Waited: true}, nil},
	} {
		r, n := following(t, c.auto)
		b, err := proto.Marshal(c.request)
		if err != nil {
			t.Fatal(err)
		}
		reply := r.Intercept(nil)[c.method].Answer(metadata.NewOutgoingContext(t.Context(), metadata.MD{}), b)
		if reply.Ended != nil {
			answer, err := proto.Marshal(&milvuspb.MutationResult{IDs: &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: []string{"n"}}}}})
			if err != nil {
				t.Fatal(err)
			}
			reply.Ended(answer, nil)
		}
		want := c.want
		if c.chosen != nil {
			want = &journal.Write{Collection: "c", Kind: journal.Upsert, IDs: c.chosen}
		}
		if !reflect.DeepEqual(n.write, want) {
			t.Errorf("%s: %+v, want %+v", c.name, n.write, want)
		}
	}
}

// TestMethodsThatAreNotKnown: a call of a method without a class counts as a write of every row, unless the database
// refuses the caller or the method.
func TestMethodsThatAreNotKnown(t *testing.T) {
	framed := func(code int32) []byte {
		answer, err := proto.Marshal(&milvuspb.MutationResult{Status: &commonpb.Status{Code: code}})
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...)
	}
	frame := framed(1401)
	for name, c := range map[string]struct {
		frames []byte
		err    error
		writes bool
	}{
		"carried out": {nil, nil, true}, "several answers": {append([]byte{0, 0, 0, 0, 0}, frame...), nil, true}, "failed": {nil, status.Error(codes.InvalidArgument, ""), true},
		"cut": {nil, status.Error(codes.Unavailable, ""), true}, "denied": {nil, status.Error(codes.PermissionDenied, ""), false},
		"denied by its answer": {frame, nil, false}, "no replica": {framed(1900), nil, false}, "failed by its answer": {framed(100), nil, true}, "no such method": {nil, status.Error(codes.Unimplemented, ""), false},
	} {
		r, n := following(t, false)
		reply := r.Intercept(nil)[rawgrpc.AnyOther].Watch(metadata.NewOutgoingContext(t.Context(), metadata.MD{}), "/milvus.proto.milvus.MilvusService/TruncateCollection")
		if reply.Ended == nil || !reply.Outlives {
			t.Fatalf("%s: %+v", name, reply)
		}
		reply.Ended(c.frames, c.err)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		want := &journal.Write{Collection: "c", Kind: journal.Upsert, All: true}
		if n.begun != n.ended || (n.write != nil) != c.writes || c.writes && !reflect.DeepEqual(n.write, want) {
			t.Errorf("%s: %+v, begun %d times and ended %d times", name, n.write, n.begun, n.ended)
		}
	}
}

// FuzzWrites sends arbitrary requests to each method that writes: all are forwarded.
func FuzzWrites(f *testing.F) {
	insert, _ := proto.Marshal(&milvuspb.InsertRequest{DbName: "mine", CollectionName: "c", FieldsData: []*schemapb.FieldData{keyColumn("id", "a")}})
	remove, _ := proto.Marshal(&milvuspb.DeleteRequest{DbName: "mine", CollectionName: "c", Expr: `id in ["a"]`})
	for i := range 16 {
		f.Add(i, insert, []byte(nil))
		f.Add(i, remove, insert)
	}
	f.Fuzz(func(t *testing.T, method int, request, answer []byte) {
		r, n := following(t, method%2 == 0)
		methods := r.writes(nil)
		delete(methods, milvuspb.MilvusService_LoadCollection_FullMethodName) // it asks the database
		maps.DeleteFunc(methods, func(_ string, i rawgrpc.Interceptor) bool { return i.Answer == nil })
		names := slices.Sorted(maps.Keys(methods))
		name := names[uint(method)%uint(len(names))]
		reply := methods[name].Answer(t.Context(), request)
		if reply.Message != nil || reply.Err != nil || len(reply.Trailer) > 0 {
			t.Fatalf("%s: %+v", name, reply)
		}
		if reply.Ended != nil {
			reply.Ended(answer, nil)
		}
		if n.begun != n.ended {
			t.Fatalf("%s: begun %d times, ended %d times", name, n.begun, n.ended)
		}
	})
}
