package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/likenessdb/likeness/internal/loglimit"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// How many failed calls of one caller are logged in a second, and at once. A store that is down, or
// a caller that guesses tokens, makes every call fail; the metrics count them all. A failure of the
// sidecar itself is looked up by the id that its caller was told, so most of these get a line.
const (
	failureLines, failureBurst   = 1, 5
	internalLines, internalBurst = 10, 50
)

// failures logs failed calls. It is safe for concurrent use.
type failures struct {
	to              *slog.Logger
	maximum         func() int // limits.max_message_bytes
	lines, internal *loglimit.Limiter
}

func newFailures(to *slog.Logger, maximum func() int) *failures {
	return &failures{
		to: to, maximum: maximum,
		lines: loglimit.New(failureLines, failureBurst), internal: loglimit.New(internalLines, internalBurst),
	}
}

// log logs a failed call, with the details that its caller is not told. A caller's own mistake is
// logged for debugging only.
func (f *failures) log(ctx context.Context, code codes.Code, err error) {
	level, more, lines := slog.LevelDebug, []slog.Attr(nil), f.lines
	switch code {
	case codes.Internal, codes.Unknown:
		level, lines = slog.LevelError, f.internal
	case codes.FailedPrecondition:
		level = slog.LevelError
	case codes.Unavailable, codes.PermissionDenied, codes.Unauthenticated:
		level = slog.LevelWarn
	case codes.ResourceExhausted:
		if !errors.Is(err, gate.ErrOverload) { // the metrics count refusals; a line for each would add to the load
			level = slog.LevelWarn
			more = append(more, slog.Int("limits.max_message_bytes", f.maximum())) // gRPC's own text does not name the setting
		}
	}
	if level > slog.LevelDebug {
		ok, leftOut := lines.Allow(callerKey(ctx))
		if !ok {
			return
		}
		if leftOut > 0 {
			more = append(more, slog.Int64("left_out", leftOut))
		}
	}
	f.write(ctx, level, code, err, more...)
}

func (f *failures) write(ctx context.Context, level slog.Level, code codes.Code, err error, more ...slog.Attr) {
	if !f.to.Enabled(ctx, level) {
		return
	}
	attrs := append([]slog.Attr{slog.String("code", code.String()), slog.Any("error", err)}, identity(ctx)...)
	f.to.LogAttrs(ctx, level, "call failed", append(attrs, more...)...)
}

// LogRefused writes the line of a request of this id that did not become a call, as of a call that failed.
func (s *Server) LogRefused(r *http.Request, id string, err error) {
	from := &peer.Peer{Addr: remote(r.RemoteAddr)}
	if r.TLS != nil {
		from.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	ctx, _ := telemetry.WithRequestID(peer.NewContext(r.Context(), from), id)
	s.shared.failures.log(ctx, statusOf(err).Code(), err)
}

// remote is the address of an HTTP client.
type remote string

func (remote) Network() string  { return "tcp" }
func (r remote) String() string { return string(r) }

// who describes the caller and the method of a call, as far as they are known.
type who struct {
	method string
	caller *Caller
}

type whoKey struct{}

// callerOf returns the caller to whom a call's token belongs, or nil if no tokens are asked for.
func callerOf(ctx context.Context) *Caller {
	if w, ok := ctx.Value(whoKey{}).(*who); ok {
		return w.caller
	}
	return nil
}

// callerKey names the caller of a call by its token or, without one, by the host that it calls
// from.
func callerKey(ctx context.Context) string {
	if c := callerOf(ctx); c != nil {
		return "token " + c.Name
	}
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(from.Addr.String())
	if err != nil {
		return ""
	}
	return host
}

// identity returns log attributes that say who makes a call: the method, the name of the token, the
// address, and the subject of the client certificate.
func identity(ctx context.Context) []slog.Attr {
	var attrs []slog.Attr
	if w, ok := ctx.Value(whoKey{}).(*who); ok {
		attrs = append(attrs, slog.String("method", w.method))
	}
	if c := callerOf(ctx); c != nil {
		attrs = append(attrs, slog.String("caller", c.Name))
	}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return attrs
	}
	if from.Addr != nil && from.Addr.Network() != "bufconn" { // the gateway's own address, inside this process
		attrs = append(attrs, slog.String("peer", from.Addr.String()))
	}
	if secure, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(secure.State.VerifiedChains) > 0 {
		attrs = append(attrs, slog.String("certificate", secure.State.VerifiedChains[0][0].Subject.String()))
	}
	return attrs
}
