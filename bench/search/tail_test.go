package main

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"runtime/trace"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestTail traces a real gRPC server. Each call collects garbage, so that other calls and the
// collector run in its place.
func TestTail(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const calls = 120
	client := serveHealth(t)
	var recorded bytes.Buffer
	if err := trace.Start(&recorded); err != nil {
		t.Skip("another trace runs:", err)
	}
	done := make(chan error)
	for range calls {
		go func() {
			_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			done <- err
		}()
	}
	for range calls {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	trace.Stop()
	got, err := readTail(&recorded)
	if err != nil {
		t.Fatal(err)
	}
	if got.Calls != calls {
		t.Errorf("%d calls in the trace, %d were made", got.Calls, calls)
	}
	if got.All.Work <= 0 || got.All.Collector <= 0 || got.All.Calls <= 0 || got.All.Transport <= 0 {
		t.Errorf("a part is missing: %+v", got.All)
	}
	if got.Slowest.sum() < got.P99 || got.P99 < got.P50 {
		t.Errorf("the slowest take %v ms, p99 %v, p50 %v", got.Slowest.sum(), got.P99, got.P50)
	}
	if _, err := readTail(bytes.NewReader([]byte("no trace"))); err == nil {
		t.Error("text was read as a trace")
	}
}

// serveHealth starts a gRPC server whose handler collects garbage, and returns a client.
func serveHealth(t *testing.T) grpc_health_v1.HealthClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		runtime.GC()
		return next(ctx, in)
	}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return grpc_health_v1.NewHealthClient(conn)
}
