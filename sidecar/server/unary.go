package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// asStreams describes a service of unary calls as one of streams that carry one
// message each way, which is the same on the wire. gRPC reads the message of a
// unary call before any interceptor sees the call; so errors about its size and
// its encoding could not name the setting, nor carry details.
func asStreams(desc grpc.ServiceDesc, unary grpc.UnaryServerInterceptor, maxBytes int) *grpc.ServiceDesc {
	for _, m := range desc.Methods {
		desc.Streams = append(desc.Streams[:len(desc.Streams):len(desc.Streams)], grpc.StreamDesc{
			StreamName:    m.MethodName,
			ServerStreams: true, // gRPC calls no interceptor of a stream that streams nothing
			Handler: func(srv any, stream grpc.ServerStream) error {
				response, err := m.Handler(srv, stream.Context(), func(v any) error {
					return receiveError(stream.RecvMsg(v), v, maxBytes)
				}, unary)
				if err != nil {
					return err
				}
				return sendError(stream.SendMsg(response), maxBytes)
			},
		})
	}
	desc.Methods = nil
	return &desc
}

// receiveError words gRPC's own errors about a request.
func receiveError(err error, v any, maxBytes int) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.ResourceExhausted:
		return fmt.Errorf("%w: the request is larger than limits.max_message_bytes, which is %d; send less, or raise it",
			errMessageSize, maxBytes)
	case codes.Internal:
		name := "request"
		if m, ok := v.(proto.Message); ok {
			name = string(m.ProtoReflect().Descriptor().FullName())
		}
		return fmt.Errorf("%w: the bytes are not a %s", errMessage, name)
	default:
		return err
	}
}

// sendError words gRPC's own errors about a response.
func sendError(err error, maxBytes int) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.ResourceExhausted:
		return fmt.Errorf("%w: the response is larger than limits.max_message_bytes, which is %d; ask for fewer items, "+
			"fewer payload fields or no explanation, or raise it", errMessageSize, maxBytes)
	case codes.Internal:
		return fmt.Errorf("%w: %w", errNotResponding, err)
	default:
		return err
	}
}

// checked validates a request by the rules of its proto definition.
func (s *services) checked(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	m, ok := r.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%w: a %T is not a message", errMessage, r)
	}
	if err := s.validate(m); err != nil {
		return nil, err
	}
	return handler(ctx, r)
}
