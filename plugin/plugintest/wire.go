package plugintest

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

func health(ctx context.Context, k *kit) error {
	r, err := grpc_health_v1.NewHealthClient(k.options.Conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	if err == nil && r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("it says %s", r.GetStatus())
	}
	return err
}

func malformed(ctx context.Context, k *kit) error {
	client := pluginv1.NewScorerServiceClient(k.options.Conn)
	query := &likenessv1.Query{Vector: k.query.Vector, Text: k.query.Text}
	ids := []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: 1}}, {Id: &likenessv1.ItemId_Number{Number: 2}}}
	for name, r := range map[string]*pluginv1.ScoreRequest{
		"one payload for two ids":      {Query: query, Ids: ids, Payloads: []string{"{}"}},
		"vectors that are no float32s": {Query: query, Ids: ids, Vectors: make([]byte, 7)},
		"an id that is empty":          {Query: query, Ids: []*likenessv1.ItemId{{}}},
	} {
		if _, err := client.Score(ctx, r); status.Code(err) != codes.InvalidArgument {
			return fmt.Errorf("%s: the code %s (%w)", name, status.Code(err), orNone(err))
		}
	}
	err := k.options.Conn.Invoke(ctx, pluginv1.ScorerService_Score_FullMethodName, []byte("\xff\xff\xff no message"), new([]byte), grpc.ForceCodecV2(raw{}))
	if err == nil {
		return errors.New("bytes that are no message were answered")
	}
	return nil
}

// raw is a codec that passes bytes through unchanged.
type raw struct{}

var _ encoding.CodecV2 = raw{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("a %T is not bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a %T is not for bytes", v)
	}
	*b = make([]byte, data.Len())
	data.CopyTo(*b)
	return nil
}
