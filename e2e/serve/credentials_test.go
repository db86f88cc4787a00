package serve_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// ownMilvus is the sidecar's own authorization for Milvus in these tests.
var ownMilvus = base64.StdEncoding.EncodeToString([]byte("root:" + key))

// seen holds the credentials of a call as it reached a database.
type seen struct {
	method             string
	key, authorization []string
}

// hop stands in front of a database and records the credentials of calls. It lets every caller in,
// with the credentials that the database wants.
type hop struct {
	as      metadata.MD // credentials for the database; nil: the caller's
	forward func(method string) bool
	edit    func(method string, answer []byte) []byte // nil: answers are not changed
	to      *grpc.ClientConn

	mu   sync.Mutex
	seen []seen
}

func (h *hop) note(s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, s)
}

// take returns the calls since the last take, except those that a sidecar makes for itself with its
// own credentials, for names, fields, and the database's version.
func (h *hop) take() []seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := slices.DeleteFunc(h.seen, func(s seen) bool {
		switch {
		case strings.HasSuffix(s.method, "/ListAliases"), strings.HasSuffix(s.method, "qdrant.Collections/List"):
			return slices.Equal(s.key, []string{key}) || slices.Equal(s.authorization, []string{ownMilvus})
		case strings.HasSuffix(s.method, "/DescribeCollection"):
			return slices.Equal(s.authorization, []string{ownMilvus})
		}
		return s.method == "GET /" && len(s.key)+len(s.authorization) == 0
	})
	h.seen = nil
	return got
}

// plainBytes is a codec of *[]byte.
type plainBytes struct{}

var _ encoding.CodecV2 = plainBytes{}

func (plainBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (plainBytes) Unmarshal(data mem.BufferSlice, v any) error {
	b := make([]byte, data.Len())
	data.CopyTo(b)
	*v.(*[]byte) = b
	return nil
}

func (plainBytes) Name() string { return "proto" }

// startHop listens in front of a database's gRPC port.
func startHop(t *testing.T, h *hop, database string) (address string) {
	t.Helper()
	h.to = connect(t, database)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must2(t, err)
	s := grpc.NewServer(grpc.UnknownServiceHandler(h.handle), grpc.ForceServerCodecV2(plainBytes{}))
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); done.Wait() })
	return l.Addr().String()
}

// handle forwards unary calls. It answers each message of a stream with an empty one.
func (h *hop) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	md, _ := metadata.FromIncomingContext(s.Context())
	h.note(seen{method, md.Get("api-key"), md.Get("authorization")})
	for {
		var in, out []byte
		if err := s.RecvMsg(&in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if h.forward(method) {
			as := metadata.NewOutgoingContext(s.Context(), h.as)
			if err := h.to.Invoke(as, method, &in, &out, grpc.ForceCodecV2(plainBytes{})); err != nil {
				return err
			}
		}
		if h.edit != nil {
			out = h.edit(method, out)
		}
		if err := s.SendMsg(&out); err != nil {
			return err
		}
	}
}

// caller is a caller, by number. No two callers have the same credentials.
type caller int

func (c caller) key() string { return fmt.Sprintf("key-of-caller-%d", c) }

func (c caller) authorization() string { return fmt.Sprintf("Bearer token-of-caller-%d", c) }

func (c caller) context(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("api-key", c.key(), "authorization", c.authorization()))
}

// its returns the difference between the recorded credentials and the caller's own, or "".
func (c caller) its(got []seen) string {
	for _, s := range got {
		if !slices.Equal(s.key, []string{c.key()}) || !slices.Equal(s.authorization, []string{c.authorization()}) {
			return fmt.Sprintf("%s came with the key %q and the authorization %q, want those of caller %d alone", s.method, s.key, s.authorization, c)
		}
	}
	if len(got) == 0 {
		return "nothing came"
	}
	return ""
}

// methods calls each for all methods of a file's services.
func methods(file protoreflect.FileDescriptor, each func(name string, m protoreflect.MethodDescriptor)) {
	for i := range file.Services().Len() {
		all := file.Services().Get(i).Methods()
		for j := range all.Len() {
			each(fmt.Sprintf("/%s/%s", file.Services().Get(i).FullName(), all.Get(j).Name()), all.Get(j))
		}
	}
}

// request returns an empty message with the collection's name, which destructive methods do not
// get.
func request(m protoreflect.MethodDescriptor) proto.Message {
	r := dynamicpb.NewMessage(m.Input())
	destroys := slices.ContainsFunc([]string{"Create", "Drop", "Delete", "Truncate", "Release", "Rename", "Alter"}, func(verb string) bool {
		return strings.HasPrefix(string(m.Name()), verb)
	})
	if f := m.Input().Fields().ByName("collection_name"); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() && !destroys {
		r.Set(f, protoreflect.ValueOfString("routed"))
	}
	return r
}

// invoke makes a call of any kind, and ignores the answer.
func invoke(ctx context.Context, conn *grpc.ClientConn, name string, m protoreflect.MethodDescriptor, in proto.Message) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out := dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		_ = conn.Invoke(ctx, name, in, out)
		return
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()}, name)
	for range 2 {
		if err == nil {
			err = s.SendMsg(in)
		}
		if err == nil {
			err = s.RecvMsg(out)
		}
	}
	if err == nil && s.CloseSend() == nil {
		_ = s.RecvMsg(out)
	}
}

// each calls every method once, each as another caller, and checks the credentials that arrive.
func (h *hop) each(t *testing.T, conn *grpc.ClientConn, files ...protoreflect.FileDescriptor) (called int) {
	t.Helper()
	for _, file := range files {
		methods(file, func(name string, m protoreflect.MethodDescriptor) {
			called++
			c := caller(called)
			invoke(c.context(t.Context()), conn, name, m, request(m))
			if problem := c.its(h.take()); problem != "" {
				t.Errorf("%s: %s", name, problem)
			}
		})
	}
	return called
}

// interleave makes concurrent calls of two callers over one connection: each call arrives with the
// credentials of one of them, never mixed.
func (h *hop) interleave(t *testing.T, calls int, call func(context.Context) error) {
	t.Helper()
	var all sync.WaitGroup
	for n := range calls {
		all.Go(func() {
			if err := call(caller(1 + n%2).context(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	by := map[caller]int{}
	for _, s := range h.take() {
		switch {
		case caller(1).its([]seen{s}) == "":
			by[1]++
		case caller(2).its([]seen{s}) == "":
			by[2]++
		default:
			t.Errorf("%s came with the key %q and the authorization %q", s.method, s.key, s.authorization)
		}
	}
	if by[1] < calls/2 || by[2] < calls/2 {
		t.Errorf("of %d calls of each caller came %v", calls/2, by)
	}
}

// Every method of Qdrant's services, and REST, reaches the database with the caller's credentials
// alone, and so do the requests for rescoring its searches: never with the store's own, and never
// with another caller's.
func TestQdrantCredentials(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	h := &hop{as: metadata.Pairs("api-key", key), forward: func(string) bool { return true }}
	rest := startRESTHop(t, h, db.REST)
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20, latency_budget: 10s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, startHop(t, h, db.Address), rest))
	if own := h.take(); len(own) == 0 || !slices.Equal(own[0].key, []string{key}) {
		t.Errorf("of its own it asks with %v", own)
	}
	conn := connect(t, at.Proxy.GRPC)
	n := h.each(t, conn, qdrant.File_points_service_proto, qdrant.File_collections_service_proto, qdrant.File_snapshots_service_proto, qdrant.File_qdrant_proto)
	if n < 40 {
		t.Errorf("%d methods", n)
	}
	t.Logf("reliability row=30 figure=all %d methods of Qdrant's services: the caller's credentials, and no others", n)
	points := qdrant.NewPointsClient(conn)
	search := &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 5}
	one := &qdrant.QueryPoints{CollectionName: "routed", Query: qdrant.NewQueryDense(query)}
	for name, call := range map[string]func(context.Context, ...grpc.CallOption) error{
		"search": func(ctx context.Context, o ...grpc.CallOption) error {
			_, err := points.Search(ctx, search, o...)
			return err
		},
		"query": func(ctx context.Context, o ...grpc.CallOption) error {
			_, err := points.Query(ctx, one, o...)
			return err
		},
		"search batch": func(ctx context.Context, o ...grpc.CallOption) error {
			_, err := points.SearchBatch(ctx, &qdrant.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*qdrant.SearchPoints{search, search}}, o...)
			return err
		},
		"query batch": func(ctx context.Context, o ...grpc.CallOption) error {
			_, err := points.QueryBatch(ctx, &qdrant.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*qdrant.QueryPoints{one, one}}, o...)
			return err
		},
	} {
		var trailer metadata.MD
		err := call(caller(7).context(t.Context()), grpc.Trailer(&trailer))
		if s := strings.Join(trailer.Get("likeness-status"), ""); err != nil || !strings.HasPrefix(s, "rescored;") {
			t.Errorf("%s: %q, %v", name, s, err)
		}
		if problem := caller(7).its(h.take()); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
		h.interleave(t, 40, func(ctx context.Context) error { return call(ctx) })
	}
	h.rest(t, "http://"+at.Proxy.REST)
}

// startRESTHop listens before a database's REST.
func startRESTHop(t *testing.T, h *hop, database string) string {
	t.Helper()
	to, err := url.Parse(database)
	must2(t, err)
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		h.note(seen{r.In.Method + " " + r.In.URL.Path, r.In.Header.Values("Api-Key"), r.In.Header.Values("Authorization")})
		r.SetURL(to)
		r.Out.Header.Del("Authorization")
		r.Out.Header.Set("Api-Key", key)
	}}
	s := httptest.NewServer(forward)
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	return s.URL
}

// rest asks the paths of Qdrant's REST interface, each as a caller of its own. What is
// rescored asks the database over gRPC.
func (h *hop) rest(t *testing.T, base string) {
	t.Helper()
	const vector = `[1,-2,0.5,3]`
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for n, tc := range []struct{ method, path, body, status string }{
		{"GET", "/", "", ""},
		{"GET", "/telemetry", "", ""},
		{"GET", "/metrics", "", ""},
		{"GET", "/healthz", "", ""},
		{"GET", "/livez", "", ""},
		{"GET", "/readyz", "", ""},
		{"GET", "/locks", "", ""},
		{"GET", "/issues", "", ""},
		{"DELETE", "/issues", "", ""},
		{"GET", "/cluster", "", ""},
		{"POST", "/cluster/recover", "", ""},
		{"DELETE", "/cluster/peer/1", "", ""},
		{"GET", "/collections", "", ""},
		{"GET", "/collections/routed", "", ""},
		{"PUT", "/collections/nothing", `{}`, ""},
		{"PATCH", "/collections/routed", `{}`, ""},
		{"DELETE", "/collections/nothing", "", ""},
		{"GET", "/collections/routed/exists", "", ""},
		{"POST", "/collections/aliases", `{"actions":[]}`, ""},
		{"GET", "/collections/routed/aliases", "", ""},
		{"GET", "/aliases", "", ""},
		{"PUT", "/collections/routed/index", `{"field_name":"n","field_schema":"integer"}`, ""},
		{"DELETE", "/collections/routed/index/n", "", ""},
		{"GET", "/collections/routed/cluster", "", ""},
		{"POST", "/collections/routed/cluster", `{}`, ""},
		{"GET", "/collections/routed/snapshots", "", ""},
		{"DELETE", "/collections/routed/snapshots/none", "", ""},
		{"PUT", "/collections/routed/snapshots/recover", `{}`, ""},
		{"GET", "/snapshots", "", ""},
		{"GET", "/snapshots/none", "", ""},
		{"GET", "/collections/routed/shards/0/snapshots", "", ""},
		{"PUT", "/collections/routed/shards", `{"shard_key":"a"}`, ""},
		{"POST", "/collections/routed/shards/delete", `{"shard_key":"a"}`, ""},
		{"GET", "/collections/routed/points/3", "", ""},
		{"POST", "/collections/routed/points", `{"ids":[1,2]}`, ""},
		{"PUT", "/collections/routed/points", `{"points":[]}`, ""},
		{"POST", "/collections/routed/points/delete", `{"points":[]}`, ""},
		{"PUT", "/collections/routed/points/vectors", `{"points":[]}`, ""},
		{"POST", "/collections/routed/points/vectors/delete", `{"points":[],"vector":["x"]}`, ""},
		{"POST", "/collections/routed/points/payload", `{"points":[1],"payload":{"a":1}}`, ""},
		{"PUT", "/collections/routed/points/payload", `{"points":[1],"payload":{"n":1}}`, ""},
		{"POST", "/collections/routed/points/payload/delete", `{"points":[1],"keys":["a"]}`, ""},
		{"POST", "/collections/routed/points/payload/clear", `{"points":[]}`, ""},
		{"POST", "/collections/routed/points/batch", `{"operations":[]}`, ""},
		{"POST", "/collections/routed/points/scroll", `{"limit":2}`, ""},
		{"POST", "/collections/routed/points/count", `{}`, ""},
		{"POST", "/collections/routed/facet", `{"key":"n"}`, ""},
		{"POST", "/collections/routed/points/recommend", `{"positive":[1],"limit":2}`, ""},
		{"POST", "/collections/routed/points/recommend/batch", `{"searches":[]}`, ""},
		{"POST", "/collections/routed/points/recommend/groups", `{}`, ""},
		{"POST", "/collections/routed/points/discover", `{"context":[],"limit":1}`, ""},
		{"POST", "/collections/routed/points/discover/batch", `{"searches":[]}`, ""},
		{"POST", "/collections/routed/points/search/groups", `{"vector":` + vector + `,"limit":1,"group_size":1,"group_by":"n"}`, ""},
		{"POST", "/collections/routed/points/search/matrix/pairs", `{"sample":2,"limit":1}`, ""},
		{"POST", "/collections/routed/points/search/matrix/offsets", `{"sample":2,"limit":1}`, ""},
		{"POST", "/collections/routed/points/query/groups", `{"query":` + vector + `,"group_by":"n"}`, ""},
		{"POST", "/collections/routed/points/search", `{"vector":` + vector + `,"limit":3}`, "rescored;"},
		{"POST", "/collections/routed/points/search/batch", `{"searches":[{"vector":` + vector + `,"limit":3}]}`, "rescored;"},
		{"POST", "/collections/routed/points/query", `{"query":` + vector + `}`, "rescored;"},
		{"POST", "/collections/routed/points/query/batch", `{"searches":[{"query":` + vector + `}]}`, "rescored;"},
		{"POST", "/collections/plain/points/search", `{"vector":` + vector + `,"limit":3}`, ""},
		{"GET", "/of/tomorrow", "", ""},
	} {
		c := caller(n)
		r, err := http.NewRequestWithContext(t.Context(), tc.method, base+tc.path, strings.NewReader(tc.body))
		must2(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", c.key())
		r.Header.Set("Authorization", c.authorization())
		answer, err := (&http.Client{Transport: transport}).Do(r)
		must2(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if state := answer.Header.Get("Likeness-Status"); !strings.HasPrefix(state, tc.status) {
			t.Errorf("%s: %q", tc.path, state)
		}
		if problem := c.its(h.take()); problem != "" {
			t.Errorf("%s %s: %s", tc.method, tc.path, problem)
		}
	}
}

// The same holds for every method of Milvus's service, including streams.
func TestMilvusCredentials(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address}, client.WithConsistencyLevel(entity.ClStrong))
	answered := []string{"Search", "Query", "DescribeCollection", "HasCollection", "Connect", "GetVersion", "DescribeIndex", "GetLoadState", "ShowCollections", "GetCollectionStatistics"}
	h := &hop{forward: func(method string) bool {
		return slices.Contains(answered, method[strings.LastIndexByte(method, '/')+1:])
	}}
	password := filepath.Join(t.TempDir(), "password")
	must2(t, os.WriteFile(password, []byte(key), 0o600))
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: milvus, address: %q, username: root, password_file: %q}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, depth: 30, latency_budget: 10s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, startHop(t, h, db.Address), password))
	for _, own := range h.take() {
		if !slices.Equal(own.authorization, []string{ownMilvus}) {
			t.Errorf("of its own it asks with %v", own)
		}
	}
	conn := connect(t, at.Proxy.GRPC)
	n := h.each(t, conn, milvuspb.File_milvus_proto)
	if n < 90 {
		t.Errorf("%d methods", n)
	}
	t.Logf("reliability row=30 figure=all %d methods of Milvus's service: the caller's credentials, and no others", n)
	search := func(ctx context.Context, o ...grpc.CallOption) error {
		r, err := milvuspb.NewMilvusServiceClient(conn).Search(ctx, milvusSearch("routed", [][]float32{query}, 5, 0, "", "name"), o...)
		if err == nil && r.GetStatus().GetCode() != 0 {
			err = status.Error(2, r.GetStatus().GetReason())
		}
		return err
	}
	var trailer metadata.MD
	err := search(caller(7).context(t.Context()), grpc.Trailer(&trailer))
	if s := strings.Join(trailer.Get("likeness-status"), ""); err != nil || !strings.HasPrefix(s, "rescored;") {
		t.Errorf("%q, %v", s, err)
	}
	if problem := caller(7).its(h.take()); problem != "" {
		t.Error(problem)
	}
	h.interleave(t, 40, func(ctx context.Context) error { return search(ctx) })
}
