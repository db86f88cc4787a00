package qdrant_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter counts the calls that read or search points.
type counter struct{ calls atomic.Int64 }

func (c *counter) dialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasPrefix(method, "/qdrant.Points/") {
			c.calls.Add(1)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

func open(t testing.TB, o qdrant.Options) *qdrant.Store {
	t.Helper()
	s, err := qdrant.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		t.Run(version, func(t *testing.T) { conformance(t, version) })
	}
}

func conformance(t *testing.T, version string) {
	server := servers.QdrantForTest(t, version, servers.Options{})
	var count counter
	options := qdrant.Options{Address: server.Address, DialOptions: []grpc.DialOption{count.dialOption()}}
	small := options
	small.Limits.MaxMessageBytes = 1 << 20
	adaptertest.Run(t, adaptertest.Kit{
		Store:   "Qdrant",
		Version: version,
		Open: func(t *testing.T) adapters.Store {
			if version == servers.QdrantNewest { // a guard changes nothing
				return guard.New(open(t, options), guard.Options{})
			}
			return open(t, options)
		},
		OpenSmall: func(t *testing.T) adapters.Store { return open(t, small) },
		Calls:     count.calls.Load,
		IDs: []adaptertest.IDSet{
			{Name: "unsigned 64-bit", IDs: []rerank.ID{rerank.UintID(0), rerank.UintID(1<<63 - 1), rerank.UintID(1 << 63), rerank.UintID(1<<64 - 1)}},
			{Name: "UUID", Text: true, IDs: []rerank.ID{rerank.TextID("00000000-0000-0000-0000-000000000000"), rerank.TextID("f47ac10b-58cc-4372-a567-0e02b2c3d479"), rerank.TextID("ffffffff-ffff-ffff-ffff-ffffffffffff")}},
		},
		BadIDs: []adaptertest.BadID{
			{Name: "a negative number", ID: rerank.IntID(-1)},
			{Name: "a text that is no UUID", Text: true, ID: rerank.TextID("seven")},
			{Name: "a UUID in upper case, which would come back in lower", Text: true, ID: rerank.TextID("F47AC10B-58CC-4372-A567-0E02B2C3D479")},
			{Name: "no id", ID: rerank.ID{}},
		},
		Filters:       adaptertest.QdrantFilters(),
		BadFilters:    append(adaptertest.BadQdrantFilters(), `{"must": [{"has_id": [-1]}]}`, `{"must": [{"has_id": ["seven"]}]}`),
		TooManyFields: qdrant.DefaultMaxVectorFields + 1,
		TooDeep:       qdrant.DefaultMaxDepth + 1,
		Large:         version == servers.QdrantNewest,
	})
}
