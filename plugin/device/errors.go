package device

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/rerank"
)

// codesOf are the codes that errors cross a connection as.
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

// statusOf is the status that carries an error to the caller.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range codesOf {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	if s, ok := status.FromError(err); ok { // the connection's own
		return s.Err()
	}
	return status.Error(codes.Internal, err.Error())
}

// errorOf is the error of a status: a sentinel, or that of the context.
func errorOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	s, ok := status.FromError(err)
	if !ok {
		return err // a connection that fails fast says so in its own words
	}
	for _, c := range codesOf {
		if s.Code() == c.code {
			return fmt.Errorf("%w: %s", c.err, s.Message())
		}
	}
	return fmt.Errorf("%w: %s: %s", ErrFailed, s.Code(), s.Message())
}
