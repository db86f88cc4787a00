package qdrant_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/qdrant"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
)

// noted is a follower of the collection c that records the last write.
type noted struct {
	write *journal.Write
	begun int
	ended int
}

func (*noted) Blocked(string) bool { return false }

func (*noted) Covers(collection string) bool { return collection == "c" }

func (n *noted) Begin(_ context.Context, w journal.Write) func(bool, []rerank.ID) {
	n.write = &w
	n.begun++
	return func(bool, []rerank.ID) { n.ended++ }
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
	var all []string
	r.Attrs(func(a slog.Attr) bool {
		all = append(all, a.String())
		return true
	})
	l.t.Errorf("%s %v", r.Message, all)
	return nil
}

func following(t testing.TB) (*qdrant.Router, *noted) {
	t.Helper()
	n := &noted{}
	r, err := routing.New(searcher{answer: found, route: route.Route{Policy: route.Policy{Name: "r", Collection: "c", StoreName: "s", Ramp: 100}, Parts: route.Parts{Store: described{metric: adapters.Cosine}}}},
		routing.Options{Store: "s", Logger: slog.New(loud{t: t}), Follower: n, WriteBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return qdrant.New(r), n
}

// covers reports whether a write names all ids, or any row.
func (n *noted) covers(ids []rerank.ID) bool {
	if n.write == nil {
		return len(ids) == 0
	}
	return n.write.All || !slices.ContainsFunc(ids, func(id rerank.ID) bool { return !slices.Contains(n.write.IDs, id) })
}

// FuzzWrites sends arbitrary requests to each method that writes: all are forwarded, and the ids
// that a full decoder finds are followed.
func FuzzWrites(f *testing.F) {
	upsert, _ := proto.Marshal(&client.UpsertPoints{CollectionName: "c", Points: []*client.PointStruct{
		{Id: client.NewIDNum(7), Vectors: client.NewVectors(1, 2)}, {Id: client.NewIDUUID("5c56c793-69f3-4fbf-87e6-c4bf54c28c26")},
	}})
	batch, _ := proto.Marshal(&client.UpdateBatchPoints{CollectionName: "c", Operations: []*client.PointsUpdateOperation{
		{Operation: &client.PointsUpdateOperation_DeletePoints_{DeletePoints: &client.PointsUpdateOperation_DeletePoints{Points: client.NewPointsSelector(client.NewIDNum(1))}}},
	}})
	for i := range 20 {
		f.Add(i, upsert)
		f.Add(i, batch)
		f.Add(i, []byte("\x0a\x01c"))
	}
	f.Fuzz(func(t *testing.T, method int, b []byte) {
		r, n := following(t)
		methods := r.Intercept(nil)
		maps.DeleteFunc(methods, func(_ string, i rawgrpc.Interceptor) bool { return !i.MustRead })
		names := slices.Sorted(maps.Keys(methods))
		name := names[uint(method)%uint(len(names))]
		before := bytes.Clone(b)
		reply := methods[name].Answer(t.Context(), b)
		if reply.Message != nil || reply.Err != nil || len(reply.Trailer) > 0 || !bytes.Equal(b, before) {
			t.Fatalf("%s: %+v", name, reply)
		}
		if reply.Ended != nil {
			reply.Ended(nil, nil)
		}
		if n.begun != n.ended {
			t.Fatalf("%s: begun %d times, ended %d times", name, n.begun, n.ended)
		}
		m := &client.UpsertPoints{}
		if name != client.Points_Upsert_FullMethodName || proto.Unmarshal(b, m) != nil || m.GetCollectionName() != "c" {
			return
		}
		var ids []rerank.ID
		for _, p := range m.GetPoints() {
			if _, ok := p.GetId().GetPointIdOptions().(*client.PointId_Num); ok {
				ids = append(ids, rerank.UintID(p.GetId().GetNum()))
			}
		}
		if !n.covers(ids) {
			t.Fatalf("ids %v, followed %+v", ids, n.write)
		}
	})
}

// FuzzWritesREST sends arbitrary requests: all are forwarded, and the ids that encoding/json finds
// are followed.
func FuzzWritesREST(f *testing.F) {
	for _, s := range []struct{ method, path, body string }{
		{"PUT", "/collections/c/points?wait=true", `{"points":[{"id":7,"vector":[1,2],"payload":{"\"id\"":"]}"}},{"vector":{"a":[]},"id":"5c56c793-69f3-4fbf-87e6-c4bf54c28c26"}]}`},
		{"PUT", "/collections/c/points", `{"batch":{"ids":[1,2],"vectors":[[1],[2]]}}`},
		{"POST", "/collections/c/points/delete", `{"points":[1,2]}`},
		{"POST", "/collections/c/points/payload", `{"payload":{},"filter":{"must":[{"has_id":[1]}]}}`},
		{"POST", "/collections/c/points/batch", `{"operations":[{"delete":{"points":[1]}},{"upsert":{"points":[{"id":3}]}}]}`},
		{"POST", "/collections/aliases", `{"actions":[{"create_alias":{"collection_name":"x","alias_name":"c"}}]}`},
		{"POST", "/collections/c/shards/1/snapshot/partial/recover_from", `{}`},
		{"POST", "/collections/c/cluster", `{"replicate_points":{}}`},
		{"DELETE", "/collections/c", ""},
		{"PUT", "//collections//%63/points/", `{"points":[{"id":1}]}`},
	} {
		f.Add(s.method, s.path, s.body)
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		in, err := http.NewRequestWithContext(t.Context(), method, "http://h"+path, strings.NewReader(body))
		if err != nil || strings.Contains(path, "search") || strings.Contains(path, "query") {
			return
		}
		r, n := following(t)
		reply := r.InterceptREST(in, []byte(body), nil)
		if reply.Answer != nil || reply.Status != "" {
			t.Fatalf("%+v", reply)
		}
		if reply.Ended != nil {
			reply.Ended(rest.Ending{Status: http.StatusOK})
		}
		if begun := n.write != nil; begun != (n.ended == 1) {
			t.Fatalf("begun %t, ended %d times", begun, n.ended)
		}
		if method == http.MethodPut && in.URL.EscapedPath() == "/collections/c/points" && !n.covers(jsonIDs(body)) {
			t.Fatalf("ids %v, followed %+v", jsonIDs(body), n.write)
		}
	})
}

// jsonIDs returns the numeric ids of an upsert.
func jsonIDs(body string) (ids []rerank.ID) {
	var m struct {
		Points []struct {
			ID json.RawMessage `json:"id"`
		} `json:"points"`
		Batch struct {
			IDs []json.RawMessage `json:"ids"`
		} `json:"batch"`
	}
	if json.Unmarshal([]byte(body), &m) != nil {
		return nil
	}
	all := m.Batch.IDs
	for _, p := range m.Points {
		all = append(all, p.ID)
	}
	for _, raw := range all {
		if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
			ids = append(ids, rerank.UintID(n))
		}
	}
	return ids
}

// TestEveryMethodHasAClass: each method of Qdrant's services is known to read, or to write to what its request names.
// A method of a later version has to be put into a class.
func TestEveryMethodHasAClass(t *testing.T) {
	r, _ := following(t)
	all := r.Intercept(nil)
	known := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("qdrant", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				method := "/" + string(f.Services().Get(i).FullName()) + "/" + string(methods.Get(j).Name())
				if _, ok := all[method]; ok {
					known++
				} else {
					t.Errorf("%s has no class", method)
				}
			}
		}
		return true
	})
	if all[rawgrpc.AnyOther].Watch == nil || known < 50 {
		t.Errorf("methods without a class are not followed, or only %d methods are known", known)
	}
}

// BenchmarkRecognise reads upserts of a hundred points with 768 numbers.
func BenchmarkRecognise(b *testing.B) {
	r, _ := following(b)
	vector := make([]float32, 768)
	for i := range vector {
		vector[i] = 1 / float32(i+3)
	}
	m := &client.UpsertPoints{CollectionName: "c"}
	var points []map[string]any
	for i := range 100 {
		m.Points = append(m.Points, &client.PointStruct{Id: client.NewIDNum(uint64(i)), Vectors: client.NewVectors(vector...)})
		points = append(points, map[string]any{"id": i, "vector": vector})
	}
	frame, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"points": points})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("gRPC", func(b *testing.B) {
		b.SetBytes(int64(len(frame)))
		intercept := r.Intercept(nil)[client.Points_Upsert_FullMethodName].Answer
		for b.Loop() {
			intercept(b.Context(), frame).Ended(nil, nil)
		}
	})
	b.Run("REST", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		in := httptest.NewRequest(http.MethodPut, "/collections/c/points", nil)
		for b.Loop() {
			r.InterceptREST(in, body, nil).Ended(rest.Ending{Status: http.StatusOK})
		}
	})
}
