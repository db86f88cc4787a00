package wirecount

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Codec is gRPC's protobuf codec, restricted to messages within its limits.
type Codec struct {
	encoding.CodecV2
	limits Limits
}

// NewCodec returns a codec with the given limits.
func NewCodec(limits Limits) Codec {
	return Codec{encoding.GetCodecV2(protocodec.Name), limits}
}

// Unmarshal implements encoding.CodecV2. It returns ErrLimit for a message that exceeds the
// limits.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := Check(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), c.limits); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}
