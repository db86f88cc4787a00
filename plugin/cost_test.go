package plugin

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
)

// verbatim is a codec that sends bytes as they are.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }
func (verbatim) Name() string                         { return "proto" }

// A request of more items than are decoded is refused with the limit, and is not decoded.
func TestRequestOfEmptyItems(t *testing.T) {
	s := newServer(nil)
	pluginv1.RegisterScorerServiceServer(s, newScorerService(Description{}, function{Description{Version: "1"}, func(context.Context, Query, []Item) ([]float32, error) {
		panic("nothing is scored")
	}}, nil))
	listener := bufconn.Listen(1 << 20)
	go func() { _ = s.Serve(listener) }()
	defer s.Stop()
	conn, err := grpc.NewClient("passthrough:///scorer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	empty := bytes.Repeat([]byte{0x12, 0}, 1<<17+1)
	if err := conn.Invoke(t.Context(), pluginv1.ScorerService_Score_FullMethodName, empty, new([]byte), grpc.ForceCodecV2(verbatim{})); err == nil || !strings.Contains(err.Error(), "131072 messages") {
		t.Error(err)
	}
}
