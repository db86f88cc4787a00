package proxy_test

import (
	"testing"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

// BenchmarkPassedCall compares a small gRPC call direct and proxied, one at a time.
func BenchmarkPassedCall(b *testing.B) {
	s := servers.QdrantForTest(b, servers.QdrantNewest, servers.Options{})
	upstream := proxy.Endpoint{Upstream: s.Address}
	for name, address := range map[string]string{
		"direct": s.Address, "proxied": start(b, proxy.Options{GRPC: upstream}).GRPC,
	} {
		client := qdrant.NewQdrantClient(dial(b, address))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := client.HealthCheck(b.Context(), &qdrant.HealthCheckRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
