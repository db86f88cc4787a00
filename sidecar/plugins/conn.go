package plugins

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// conn forwards calls to the current session of a plugin, across restarts.
type conn struct{ p *Plugin }

var _ grpc.ClientConnInterface = conn{}

// Invoke implements grpc.ClientConnInterface.
func (c conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	s := c.p.live.Load()
	if s == nil {
		return c.p.unavailable(nil)
	}
	return c.p.translateError(s, ctx.Err, s.conn.Invoke(ctx, method, args, reply, opts...))
}

// NewStream implements grpc.ClientConnInterface.
func (c conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := c.p.live.Load()
	if s == nil {
		return nil, c.p.unavailable(nil)
	}
	inner, err := s.conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, c.p.translateError(s, ctx.Err, err)
	}
	return &stream{inner, c.p, s, ctx.Err}, nil
}

// stream is a stream of one session.
type stream struct {
	grpc.ClientStream
	p      *Plugin
	s      *session
	caller func() error // error of the caller's context; the stream's own context ends with the stream
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	return s.p.translateError(s.s, s.caller, s.ClientStream.RecvMsg(m))
}

// translateError processes the outcome of a call. A success counts as a sign of life. An error that
// the plugin's end caused is replaced by a clearer one, unless the caller has ended the
// call.
func (p *Plugin) translateError(s *session, caller func() error, err error) error {
	if err == nil {
		s.answers.Add(1)
		return nil
	}
	callStatus, ok := status.FromError(err)
	if !ok || caller() != nil {
		return err
	}
	switch {
	case callStatus.Code() == codes.Unavailable || callStatus.Code() == codes.Canceled && p.live.Load() != s:
		return p.unavailable(fmt.Errorf("the call was cut off: %s", callStatus.Message()))
	case callStatus.Code() == codes.ResourceExhausted && strings.Contains(callStatus.Message(), "larger than max"):
		return status.Errorf(codes.ResourceExhausted, "plugin %q: %s: send less at once, or raise its max_message_bytes, which is %d",
			p.options.Name, callStatus.Message(), p.options.MaxMessageBytes)
	default:
		return err
	}
}
