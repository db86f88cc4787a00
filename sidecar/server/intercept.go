package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/admission"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// RequestIDHeader carries a request's id; a caller may choose it.
const RequestIDHeader = "x-request-id"

// Recorder is told of calls. It is called concurrently and must not block.
type Recorder interface {
	// CallStarted returns what is called once when the call has ended.
	CallStarted(method string) (ended func(code codes.Code))
	// Panicked is told of a panic that was caught.
	Panicked()
}

// stream is a ServerStream with a context of its own.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// observe counts and logs a call, gives it an id, and turns its error into a status.
func (s *services) observe(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ended := s.recorder.CallStarted(strings.TrimPrefix(info.FullMethod, "/"))
	id := requestID(ss.Context())
	ctx := telemetry.WithRequestID(ss.Context(), id)
	start := time.Now()
	err := ss.SetHeader(metadata.Pairs(RequestIDHeader, id))
	if err == nil {
		err = s.recovered(ctx, func() error { return handler(srv, stream{ss, ctx}) })
	}
	st := statusOf(err)
	ended(st.Code())
	if err != nil {
		s.logFailure(ctx, st.Code(), err)
	}
	s.log.DebugContext(ctx, "call", "method", info.FullMethod, "code", st.Code().String(), "seconds", time.Since(start).Seconds())
	return st.Err()
}

// requestID is the caller's id, if it is a short printable one, or a new one.
func requestID(ctx context.Context) string {
	if given := metadata.ValueFromIncomingContext(ctx, RequestIDHeader); len(given) > 0 {
		id := given[0]
		odd := strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
		if id != "" && len(id) <= 128 && !odd {
			return id
		}
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// recovered runs f and turns a panic into errPanic, logged with its stack.
func (s *services) recovered(ctx context.Context, f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.recorder.Panicked()
			s.log.ErrorContext(ctx, "panic", "cause", fmt.Sprintf("%T", cause), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// logFailure writes what the caller is not told, and other failures of ours.
// What the caller did wrong is for debugging only.
func (s *services) logFailure(ctx context.Context, code codes.Code, err error) {
	level := slog.LevelDebug
	switch code {
	case codes.Internal, codes.Unknown, codes.FailedPrecondition:
		level = slog.LevelError
	case codes.Unavailable, codes.PermissionDenied, codes.Unauthenticated:
		level = slog.LevelWarn
	case codes.ResourceExhausted:
		if errors.Is(err, admission.ErrOverload) {
			break // the metrics count them; a line each would make the load worse
		}
		// Of gRPC itself, the text does not name the setting.
		s.log.WarnContext(ctx, "call refused by a limit", "error", err, "limits.max_message_bytes", s.limits.MaxMessageBytes)
		return
	}
	s.log.LogAttrs(ctx, level, "call failed", slog.String("code", code.String()), slog.Any("error", err))
}

// ending ends the calls of others than our own services, as a health watch,
// when the server drains: they would go on for ever.
func (s *services) ending(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/likeness.") {
		return handler(srv, ss)
	}
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	return handler(srv, stream{ss, ctx})
}
