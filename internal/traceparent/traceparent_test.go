package traceparent_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/internal/traceparent"
)

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traced is a context in a trace of its own.
func traced() context.Context {
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
}

const own = "00-01000000000000000000000000000000-0200000000000000-00"

// Calls carry the trace of their context, in the place of one that is passed on with a
// caller's metadata, and are left as they are without one.
func TestOverGRPC(t *testing.T) {
	heard := make(chan string, 1)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		said := ""
		if sc := trace.SpanContextFromContext(traceparent.FromIncoming(ctx)); sc.IsValid() {
			said = sc.TraceID().String()
		}
		heard <- said
		return handle(ctx, request)
	}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), append(traceparent.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		name string
		ctx  context.Context
		want string
	}{
		{"none", t.Context(), ""},
		{"its own", traced(), own[3:35]},
		{"a caller's passes", metadata.AppendToOutgoingContext(t.Context(), "traceparent", caller), caller[3:35]},
		{"its own in a caller's place", metadata.AppendToOutgoingContext(traced(), "traceparent", caller), own[3:35]},
	} {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(c.ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestOverHTTP(t *testing.T) {
	r, err := http.NewRequestWithContext(traced(), http.MethodGet, "http://example.com", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	traceparent.ToHeader(r)
	if got := r.Header.Get("Traceparent"); got != own {
		t.Errorf("%q, want %q", got, own)
	}
	ctx := traceparent.FromHeader(t.Context(), r.Header)
	if got := trace.SpanContextFromContext(ctx).TraceID().String(); got != own[3:35] {
		t.Errorf("%q", got)
	}
}
