package device

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/rerank"
)

// codesOf maps errors to the status codes by which they are sent.
var codesOf = []struct {
	err  error
	code codes.Code
}{
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{ErrNotLoaded, codes.FailedPrecondition},
	{ErrLoaded, codes.AlreadyExists},
	{ErrRequest, codes.InvalidArgument},
	{rerank.ErrQuery, codes.InvalidArgument},
	{ErrMemory, codes.ResourceExhausted},
	{ErrBusy, codes.Aborted},
	{ErrUnavailable, codes.Unavailable},
}

// statusOf returns the status by which an error is sent to the caller.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range codesOf {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	if s, ok := status.FromError(err); ok { // an error of the connection itself
		return s.Err()
	}
	return status.Error(codes.Internal, err.Error())
}

// errorOf converts a status back to a sentinel error, or to the context's error if the
// context has ended.
func errorOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	s, ok := status.FromError(err)
	if !ok {
		return err // a connection that fails early returns an error without a status
	}
	for _, c := range codesOf {
		if s.Code() == c.code {
			return fmt.Errorf("%w: %s", c.err, s.Message())
		}
	}
	return fmt.Errorf("%w: %s: %s", ErrFailed, s.Code(), s.Message())
}
