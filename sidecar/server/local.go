package server

import (
	"context"
	"errors"
	"math"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/internal/traceparent"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// Errors of requests that a gateway refuses before they become gRPC calls; see StatusOf.
var (
	// ErrMessage: the body is not a message of the method.
	ErrMessage = errMessage
	// ErrMessageSize: the body is larger than limits.max_message_bytes.
	ErrMessageSize = errMessageSize
	// ErrPath: there is no such path, or no such method on it.
	ErrPath = errors.New("path not found")
	// ErrForeign: the request comes from a page of another site, through a browser.
	ErrForeign = errors.New("not for pages of other sites")
)

// StatusOf returns the status, with details, that a caller gets for an error of the server. It is
// OK for nil.
func StatusOf(err error) *status.Status { return statusOf(err) }

// Local makes a gRPC server of likeness's services and of health for a listener inside this process. It has all
// interceptors and limits except TLS, the limit of streams per connection (a gateway has one
// connection for all its callers), and Options.Gate (a gateway receives its callers' messages
// itself). The caller serves and stops it.
func (s *Server) Local() *grpc.Server {
	options := append(append([]grpc.ServerOption(nil), s.options...), grpc.MaxConcurrentStreams(math.MaxUint32))
	to := grpc.NewServer(options...)
	s.register(to)
	s.registerHealth(to)
	return to
}

// Rerank scores documents for a caller who reached another listener of this process: it is
// SearchService.Score without a connection and messages. ctx has the caller's headers as the incoming
// metadata of gRPC. Without a route, the documents are items of the only route that the caller may
// use. It returns the error of a status.
func (s *Server) Rerank(ctx context.Context, r search.ScoreRequest) (answer search.ScoreAnswer, err error) {
	ctx, span := s.shared.tracer.Start(traceparent.FromIncoming(ctx), "likeness.v1.SearchService/Score", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	err = s.shared.observed(ctx, likenessv1.SearchService_Score_FullMethodName, func(ctx context.Context, _ string) error {
		ctx, err := s.shared.authenticated(ctx)
		if err != nil {
			return err
		}
		if r.Route == "" {
			if r.Route, err = s.shared.onlyRoute(ctx); err != nil {
				return err
			}
		}
		answer, err = s.shared.scoreItems(ctx, r)
		return err
	})
	return answer, err
}

// onlyRoute returns the only route that the caller may use.
func (s *services) onlyRoute(ctx context.Context) (string, error) {
	routes := s.allowed(ctx)
	if len(routes) == 1 {
		return routes[0].Name, nil
	}
	return "", fieldError("model", "it is empty, and there are %d routes; give the name of one as model, or call /v1/routes/ROUTE/rerank", len(routes))
}

// Authenticate returns the name of the caller whose token these authorization headers have, or "" if there is no tokens file.
// It returns an error, for StatusOf, unless their call may be served.
func (s *Server) Authenticate(authorization []string) (caller string, err error) {
	tokens := s.shared.tokens.Load()
	if tokens == nil {
		return "", nil
	}
	c, err := tokens.get().caller(authorization)
	if err != nil {
		return "", err
	}
	return c.Name, nil
}

// RequestID returns the id that the caller sent if it is short and printable, or a new id.
func RequestID(given string) string { return telemetry.RequestID(given) }
