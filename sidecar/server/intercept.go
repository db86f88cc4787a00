package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/likenessdb/likeness/internal/traceparent"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// RequestIDHeader carries a request's id. The caller may choose the id.
const RequestIDHeader = telemetry.RequestIDHeader

// Recorder counts calls. It is called concurrently and must not block.
type Recorder interface {
	// CallStarted counts a call. The function that it returns is called once, when the call has
	// ended.
	CallStarted(ctx context.Context, method string) (ended func(code codes.Code))
	// Panicked counts a panic that was caught.
	Panicked()
}

// stream is a ServerStream with another context.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// observe is the interceptor that observes calls. It sends each caller the id of its call.
func (s *services) observe(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.observed(ss.Context(), info.FullMethod, func(ctx context.Context, id string) error {
		err := ss.SetHeader(metadata.Pairs(RequestIDHeader, id))
		if gone := ctx.Err(); gone != nil { // the call is over, so its header cannot be sent either
			return gone
		}
		if err != nil {
			return err
		}
		return handler(srv, stream{ss, ctx})
	})
}

// observed makes a call of a method: it gives the call an id, counts and logs it, and converts its
// error to the error of a status.
func (s *services) observed(ctx context.Context, method string, call func(ctx context.Context, id string) error) error {
	ctx, id := telemetry.WithRequestID(traceparent.FromIncoming(ctx), callerRequestID(ctx))
	ctx = context.WithValue(ctx, whoKey{}, &who{method: method})
	ended := s.recorder.CallStarted(ctx, strings.TrimPrefix(method, "/"))
	start := time.Now()
	err := s.recovered(ctx, func() error { return call(ctx, id) })
	st := statusOf(err)
	ended(st.Code())
	if err != nil {
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("error.type", outcomeOf(err).reason))
		s.failures.log(ctx, st.Code(), err)
	}
	s.log.DebugContext(ctx, "call", "method", method, "code", st.Code().String(), "seconds", time.Since(start).Seconds())
	return st.Err()
}

// callerRequestID returns the request id that the caller sent, or "".
func callerRequestID(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, RequestIDHeader); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// recovered runs f. It converts a panic into errPanic, and logs the panic with its stack.
func (s *services) recovered(ctx context.Context, f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.recorder.Panicked()
			s.log.ErrorContext(ctx, "call panicked", "cause", fmt.Sprintf("%T", cause), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// ending ends the calls of other services than likeness's own, such as a health watch, when the
// server drains: they would never end by themselves.
func (s *services) ending(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/likeness.") {
		return handler(srv, ss)
	}
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	return handler(srv, stream{ss, ctx})
}

// receiving lets messages be received through the gate. It comes after the interceptors that can
// refuse a call without its message.
func (s *Server) receiving() grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		received, end := s.receiver.Stream(ss, info.IsClientStream)
		defer end()
		return handler(srv, received)
	})
}

// arrive asks the gate whether a search call may go on, before its stream exists and its message is
// read, because refusing it later costs many times as much. Health and the other services are
// always answered, and so are methods that do not exist, whose names must not become labels.
func (s *services) arrive(ctx context.Context, in *tap.Info) (context.Context, error) {
	if s.gate == nil || !isSearchMethod(in.FullMethodName) {
		return ctx, nil
	}
	arrived, err := s.gate.Arrive(ctx)
	if err == nil {
		return arrived, nil
	}
	ended := s.recorder.CallStarted(ctx, strings.TrimPrefix(in.FullMethodName, "/"))
	refused := s.refusalOf(err)
	ended(codes.Code(refused.status.GetCode()))
	ctx, id := telemetry.WithRequestID(ctx, strings.Join(in.Header.Get(RequestIDHeader), ""))
	s.log.DebugContext(ctx, "call refused before its message", "method", in.FullMethodName, "error", err)
	return ctx, refused.answer(id)
}

// isSearchMethod reports whether the search service has a method of this full name.
func isSearchMethod(full string) bool {
	d := &likenessv1.SearchService_ServiceDesc
	name, ok := strings.CutPrefix(full, "/"+d.ServiceName+"/")
	return ok && (slices.ContainsFunc(d.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name }) ||
		slices.ContainsFunc(d.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == name }))
}

// refusalOf returns the status for an error of the gate. It converts the same error only once,
// because an overloaded gate returns one error thousands of times a second.
func (s *services) refusalOf(err error) *refusal {
	last := s.refusal.Load()
	if last == nil || last.of != err { //nolint:errorlint // the very same one
		last = &refusal{of: err, status: statusOf(err).Proto()}
		s.refusal.Store(last)
	}
	return last
}

// refusal is an error of the gate with its status.
type refusal struct {
	of     error
	status *spb.Status
}

// answer returns the status with the request's id among its details: gRPC answers such a call
// itself, without a header that could carry the id.
func (r *refusal) answer(id string) error {
	of := &spb.Status{Code: r.status.GetCode(), Message: r.status.GetMessage(), Details: r.status.GetDetails()}
	if named, err := anypb.New(&errdetails.RequestInfo{RequestId: id}); err == nil {
		of.Details = append(slices.Clip(of.GetDetails()), named)
	}
	return status.ErrorProto(of)
}
