package host

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/plugin/internal/hosted"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Search returns the top K items of a route for one query.
//
// Search, SearchBatch, Score and Explain wait while the sidecar restarts, until ctx ends.
// They repeat a request whose process ended before answering. Errors are gRPC statuses
// (docs/reference/errors.md), ErrClosed, or the context's error.
func (s *Sidecar) Search(ctx context.Context, r *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
	return callWithRetry(ctx, s, r, likenessv1.SearchServiceClient.Search)
}

// SearchBatch answers several searches, each with its own result or error.
func (s *Sidecar) SearchBatch(ctx context.Context, r *likenessv1.SearchBatchRequest) (*likenessv1.SearchBatchResponse, error) {
	return callWithRetry(ctx, s, r, likenessv1.SearchServiceClient.SearchBatch)
}

// Score returns the similarity of items that the caller provides.
func (s *Sidecar) Score(ctx context.Context, r *likenessv1.ScoreRequest) (*likenessv1.ScoreResponse, error) {
	return callWithRetry(ctx, s, r, likenessv1.SearchServiceClient.Score)
}

// Explain breaks the scores of items down.
func (s *Sidecar) Explain(ctx context.Context, r *likenessv1.ExplainRequest) (*likenessv1.ExplainResponse, error) {
	return callWithRetry(ctx, s, r, likenessv1.SearchServiceClient.Explain)
}

// Conn returns a connection for all services of likeness.v1 and for health checks. Its
// calls wait while the sidecar restarts. A call that was in progress when the sidecar ended
// fails with UNAVAILABLE.
func (s *Sidecar) Conn() grpc.ClientConnInterface { return connection{s} }

// callWithRetry calls a method and repeats the call if the process ended. That is safe
// because a search changes nothing.
func callWithRetry[Q, A any](ctx context.Context, s *Sidecar, r Q, method func(likenessv1.SearchServiceClient, context.Context, Q, ...grpc.CallOption) (A, error)) (A, error) {
	for {
		var none A
		p, err := s.running(ctx)
		if err != nil {
			return none, err
		}
		var header metadata.MD
		answer, err := method(likenessv1.NewSearchServiceClient(p.Conn), ctx, r, grpc.Header(&header))
		if err == nil || !isConnectionLost(p, err, header) {
			return answer, err
		}
		select {
		case <-p.Done:
		case <-s.closed:
			return none, ErrClosed
		case <-ctx.Done():
			return none, err
		}
	}
}

// isConnectionLost reports whether the call failed because the connection broke, or was
// closed because the process ended. An answer of the sidecar would carry a request id.
func isConnectionLost(p *hosted.Process, err error, header metadata.MD) bool {
	return isConnectionClosed(p, err) ||
		status.Code(err) == codes.Unavailable && (len(header.Get("x-request-id")) == 0 || p.Conn.GetState() != connectivity.Ready)
}

// isConnectionClosed reports whether the call failed because this host had closed the
// connection. gRPC then says CANCELED, as if the caller had given up.
func isConnectionClosed(p *hosted.Process, err error) bool {
	return status.Code(err) == codes.Canceled && p.Conn.GetState() == connectivity.Shutdown
}

// connection forwards calls to the process that is currently running.
type connection struct{ sidecar *Sidecar }

var _ grpc.ClientConnInterface = connection{}

func (c connection) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	p, err := c.sidecar.running(ctx)
	if err != nil {
		return err
	}
	return endedError(p, p.Conn.Invoke(ctx, method, args, reply, options...))
}

func (c connection) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := c.sidecar.running(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := p.Conn.NewStream(ctx, desc, method, options...)
	return stream, endedError(p, err)
}

// endedError turns the error of a connection that this host closed into UNAVAILABLE.
func endedError(p *hosted.Process, err error) error {
	if isConnectionClosed(p, err) {
		return status.Error(codes.Unavailable, "the sidecar ended")
	}
	return err
}
