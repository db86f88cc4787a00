// Package traceparent passes traces on from callers and to callees, in the header of W3C
// Trace Context.
package traceparent

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// header adapts gRPC metadata to OpenTelemetry.
type header metadata.MD

func (h header) Get(key string) string {
	if values := metadata.MD(h).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (h header) Set(key, value string) { metadata.MD(h).Set(key, value) }

func (h header) Keys() []string {
	keys := make([]string, 0, len(h))
	for key := range h {
		keys = append(keys, key)
	}
	return keys
}

// DialOptions makes every call on a connection carry the trace of its context, if there is
// one.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(outgoing(ctx), method, request, reply, conn, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(outgoing(ctx), desc, conn, method, options...)
		}),
	}
}

// outgoing sets the trace in the outgoing metadata, replacing any that a caller has set.
func outgoing(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	}
	propagation.TraceContext{}.Inject(ctx, header(md))
	return metadata.NewOutgoingContext(ctx, md)
}

// FromIncoming returns the context of a gRPC call with the trace of its caller, unless the
// context already has a trace.
func FromIncoming(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, "traceparent")) == 0 || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx // most calls: their metadata is not copied
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return propagation.TraceContext{}.Extract(ctx, header(md))
}

// FromHeader is FromIncoming for a call over HTTP.
func FromHeader(ctx context.Context, h http.Header) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))
}

// ToHeader sets the trace of a request's context in its headers.
func ToHeader(r *http.Request) {
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
}
