//go:build unix

package plugins_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/sidecar/plugins"
)

// busy answers calls, and health checks only while it is told to.
type busy struct {
	pluginv1.UnimplementedScorerServiceServer
	grpc_health_v1.UnimplementedHealthServer
	health atomic.Int32 // a status; negative: no answer
	checks atomic.Int32
}

func (b *busy) DescribeScorer(context.Context, *pluginv1.DescribeScorerRequest) (*pluginv1.DescribeScorerResponse, error) {
	return &pluginv1.DescribeScorerResponse{Version: "1"}, nil
}

func (b *busy) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	b.checks.Add(1)
	status := b.health.Load()
	if status < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_ServingStatus(status)}, nil
}

// serving is a busy plugin at a socket, and a host of it.
func serving(t *testing.T) (*busy, *plugins.Plugin) {
	t.Helper()
	folder, err := os.MkdirTemp("", "s") //nolint:usetesting // the names of t.TempDir are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	socket := filepath.Join(folder, "a")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	b, server := &busy{}, grpc.NewServer()
	b.health.Store(int32(grpc_health_v1.HealthCheckResponse_SERVING))
	pluginv1.RegisterScorerServiceServer(server, b)
	grpc_health_v1.RegisterHealthServer(server, b)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	o := at(t, "unix://"+socket, nil)
	o.HealthInterval, o.HealthTimeout = 10*time.Millisecond, 500*time.Millisecond
	p := start(t, o)
	ready(t, p)
	return b, p
}

func TestAnyAnswerIsASignOfLife(t *testing.T) {
	b, p := serving(t)
	b.health.Store(-1)
	for b.checks.Store(0); b.checks.Load() < 3; {
		if _, err := p.Scorer().Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.State(); s.Status != plugins.Ready || s.Restarts > 0 {
		t.Errorf("one that answers was ended: %+v", s)
	}
	until(t, p, "hung, once nobody asks it any more", ended(plugins.Hung))
}

func TestOneThatSaysItIsNotWell(t *testing.T) {
	b, p := serving(t)
	b.health.Store(int32(grpc_health_v1.HealthCheckResponse_NOT_SERVING))
	if s := until(t, p, "ended", ended(plugins.Hung)); !contains(s.LastError, "NOT_SERVING") {
		t.Errorf("%q", s.LastError)
	}
	b.health.Store(int32(grpc_health_v1.HealthCheckResponse_SERVING))
	ready(t, p)
	if _, err := p.Scorer().Describe(t.Context()); err != nil {
		t.Error(err)
	}
}
