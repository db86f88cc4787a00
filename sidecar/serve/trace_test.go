package serve_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// spans is a collector that keeps the names of the spans of each trace.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	names map[string][]string
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id := hex.EncodeToString(span.GetTraceId())
				s.names[id] = append(s.names[id], span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// A call continues its caller's trace, with a span of the call and of its steps.
func TestTraces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, server := &spans{names: map[string][]string{}}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	s := start(t, fmt.Sprintf("trace: {endpoint: %q, insecure: true}\n", listener.Addr())+base, true)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	_, err = likenessv1.NewSearchServiceClient(s.conn).Search(ctx, &likenessv1.SearchRequest{
		Route: "things", Query: &likenessv1.Query{Vector: []float32{1, 2}}, K: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	names := strings.Join(got.names[trace], ", ")
	if !strings.Contains(names, "likeness.v1.SearchService/Search") || len(got.names[trace]) < 2 {
		t.Errorf("spans of the caller's trace: %s; want one of the call and those of its steps (all: %v)", names, got.names)
	}
	t.Log(names)
}
