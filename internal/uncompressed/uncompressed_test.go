package uncompressed_test

import (
	"context"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/likenessdb/likeness/internal/uncompressed"
)

// server tells what the last call accepts.
type server struct {
	grpc_health_v1.UnimplementedHealthServer
	accepted []string
}

func (s *server) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	var err error
	s.accepted, err = grpc.ClientSupportedCompressors(ctx)
	return &grpc_health_v1.HealthCheckResponse{}, err
}

func TestAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, at := &server{}, grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(at, s)
	go func() { _ = at.Serve(listener) }()
	defer at.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, options := range map[string][]grpc.CallOption{
		"plain": nil, "uncompressed": {uncompressed.Answers()}, "of a compressed request": {uncompressed.Answers(), grpc.UseCompressor("likeness-none")},
	} {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "s"}, options...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := slices.Contains(s.accepted, gzip.Name), options == nil; got != want {
			t.Errorf("%s: the call accepts %q", name, s.accepted)
		}
	}
}
