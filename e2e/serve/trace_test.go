package serve_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// spans is a collector that keeps the spans of each trace.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	all map[string][]*tracev1.Span
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id := hex.EncodeToString(span.GetTraceId())
				s.all[id] = append(s.all[id], span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect runs a collector of OTLP.
func collect(t *testing.T) (s *spans, address string) {
	t.Helper()
	s = &spans{all: map[string][]*tracev1.Span{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	return s, serveOn(t, server)
}

func serveOn(t *testing.T, server *grpc.Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// attributes returns the attributes, as text, of the first span of that name in a trace.
func (s *spans) attributes(trace, name string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.all[trace] {
		if span.GetName() != name {
			continue
		}
		out := map[string]string{"kind": span.GetKind().String()}
		for _, a := range span.GetAttributes() {
			out[a.GetKey()] = fmt.Sprint(a.GetValue().GetStringValue())
			if v := a.GetValue().GetIntValue(); v != 0 {
				out[a.GetKey()] = fmt.Sprint(v)
			}
		}
		return out
	}
	return nil
}

// text is all that was collected.
func (s *spans) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.all)
}

// heard keeps the traceparents that others were called with.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) add(traceparent string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, traceparent)
}

// of counts the calls that belong to a trace.
func (h *heard) of(trace string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.all {
		if strings.HasPrefix(one, "00-"+trace+"-") {
			n++
		}
	}
	return n
}

const traced = `
trace: {endpoint: %[1]q, insecure: true}
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores:
  files:
    kind: embedded
    collections: {things: {vectors: things.npy, ids: ids.txt, payload: things.jsonl}}
  far: {kind: qdrant, address: %[2]q}
models: {plain: {path: plain.safetensors}}
rankers: {texts: {http: {url: %[3]q, dialect: cohere, model: m, fields: [group]}}}
routes:
  things: {store: files, collection: things, model: plain, placement: stored, exact_search: true, ranker: texts}
  far: {store: far, collection: secretly, model: plain, placement: stored}
`

// A call continues its caller's trace, with a span of the call and one of each step,
// and takes it to the store and to the ranker. No span holds what was searched for.
func TestTraces(t *testing.T) {
	got, at := collect(t)
	var store, ranker heard
	far := serveOn(t, grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		store.add(strings.Join(metadata.ValueFromIncomingContext(s.Context(), "traceparent"), ","))
		return status.Error(codes.Unavailable, "out for lunch")
	})))
	texts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ranker.add(r.Header.Get("Traceparent"))
		_, _ = io.WriteString(w, `{"results": [{"index": 0, "relevance_score": 1}]}`)
	}))
	t.Cleanup(texts.Close)
	s := start(t, fmt.Sprintf(traced, at, far, texts.URL+"/rerank"), true)
	const one, other = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	search := func(trace, route, text string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		_, err := likenessv1.NewSearchServiceClient(s.conn).Search(ctx, &likenessv1.SearchRequest{
			Route: route, Query: &likenessv1.Query{Vector: []float32{0.123456, 2}, Text: text}, K: 2,
			Filter: `{"must":[{"key":"group","match":{"any":["canary-filter","x"]}}]}`,
		})
		return err
	}
	if err := search(one, "things", "canary-text"); err != nil {
		t.Error(err)
	}
	if err := search(other, "far", ""); status.Code(err) != codes.Unavailable {
		t.Errorf("a store that is down: %v", err)
	}
	_, metrics := s.scrape(t, "application/openmetrics-text; version=1.0.0")
	s.stop()
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ trace, span, attributes string }{
		{one, "likeness.v1.SearchService/Search", "kind=SPAN_KIND_SERVER rpc.system.name=grpc rpc.method=likeness.v1.SearchService/Search rpc.response.status_code=OK"},
		{one, "likeness.search", "likeness.route=things"},
		{one, "likeness.probes", "likeness.route=things likeness.strategy=average"},
		{one, "likeness.retrieve", "kind=SPAN_KIND_INTERNAL db.system.name=embedded db.collection.name=things db.operation.name=search likeness.store=files likeness.probes=1"},
		{one, "likeness.score", "likeness.candidates=1"},
		{one, "likeness.certify", "likeness.route=things"},
		{one, "likeness.rank", "likeness.ranker.calls=1"},
		{other, "likeness.v1.SearchService/Search", "rpc.response.status_code=UNAVAILABLE error.type=STORE_UNAVAILABLE"},
		{other, "likeness.search", "error.type=unavailable"},
	} {
		have := got.attributes(want.trace, want.span)
		for pair := range strings.FieldsSeq(want.attributes) {
			key, value, _ := strings.Cut(pair, "=")
			if have[key] != value {
				t.Errorf("span %s has %s=%q, want %q; all: %v", want.span, key, have[key], value, have)
			}
		}
	}
	if store.of(other) == 0 || ranker.of(one) == 0 {
		t.Errorf("the store heard %v, the ranker %v", store.all, ranker.all)
	}
	if text := got.text(); strings.Contains(text, "canary") || strings.Contains(text, "0.123") {
		t.Errorf("a span holds what was searched for: %s", text)
	}
	if !strings.Contains(metrics, `# {trace_id="`+one+`"}`) {
		t.Error("no duration has an exemplar of the trace")
	}
}
