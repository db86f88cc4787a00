package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // registers gzip, with which callers may compress
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/wirecount"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// asStreams describes a service of unary calls as a service of streams that carry one message each
// way, which is the same on the wire. gRPC itself would read the message of a unary call, and
// answer INTERNAL without details if the message cannot be decoded or the answer is too large. In a
// stream both are ordinary errors.
func asStreams(desc grpc.ServiceDesc, unary grpc.UnaryServerInterceptor, maxBytes int) *grpc.ServiceDesc {
	streams := append([]grpc.StreamDesc(nil), desc.Streams...)
	for _, m := range desc.Methods {
		streams = append(streams, grpc.StreamDesc{
			StreamName:    m.MethodName,
			ServerStreams: true, // gRPC calls no interceptor for a method that is marked as streaming in neither direction
			Handler: func(srv any, stream grpc.ServerStream) error {
				receive := func(v any) error { return receive(stream, v) }
				response, err := m.Handler(srv, stream.Context(), receive, unary)
				if err != nil {
					return err
				}
				return send(stream, response, maxBytes)
			},
		})
	}
	desc.Methods, desc.Streams = nil, streams
	return &desc
}

// receive reads a call's message into v, a proto.Message.
func receive(stream grpc.ServerStream, v any) error {
	m := v.(proto.Message)
	r := received{message: m}
	if err := stream.RecvMsg(&r); err != nil {
		return err
	}
	switch {
	case errors.Is(r.err, errMessageSize):
		return r.err
	case errors.Is(r.err, wirecount.ErrLimit):
		return fmt.Errorf("%w: %w; split the batch, or send fewer items at a time", errMessageSize, r.err)
	}
	if r.err != nil {
		return fmt.Errorf("%w: the bytes are not a %s", errMessage, m.ProtoReflect().Descriptor().FullName())
	}
	return nil
}

// send sends v, a proto.Message, unless it is longer than maxBytes.
func send(stream grpc.ServerStream, v any, maxBytes int) error {
	m := v.(proto.Message)
	if size := proto.Size(m); size > maxBytes {
		return fmt.Errorf("%w: the response has %d bytes, limits.max_message_bytes is %d; ask for fewer items, "+
			"fewer payload fields or no explanation, or raise it", errMessageSize, size, maxBytes)
	}
	return stream.SendMsg(m)
}

// received is a decoded message, or the error of decoding it.
type received struct {
	message proto.Message
	err     error
}

// requestLimits limits the contents of a request, so that decoding it takes at most some twenty
// megabytes. The rules of the API allow fewer items and searches in one call.
var requestLimits = wirecount.Limits{Messages: 1 << 16, Fields: 1 << 18, Depth: 16}

// tolerant is the server's protobuf codec. It returns a decoding error as a value, which receive
// turns into the call's error.
type tolerant struct {
	wirecount.Codec
	gzip *gate.Gunzip
}

func newCodec(gzip *gate.Gunzip) tolerant {
	return tolerant{wirecount.NewCodec(requestLimits), gzip}
}

func (c tolerant) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*received)
	switch {
	case !ok:
		return c.Codec.Unmarshal(data, v)
	case c.gzip.IsTooLarge(data):
		r.err = fmt.Errorf("%w: %s", errMessageSize, c.gzip.Problem())
	default:
		r.err = c.Codec.Unmarshal(data, r.message)
	}
	return nil
}

// checked validates a request by the rules of its proto definition.
func (s *services) checked(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.validate(r.(proto.Message)); err != nil {
		return nil, err
	}
	return handler(ctx, r)
}
