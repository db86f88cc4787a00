package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sentinel errors of a Scorer. The wrapping text says what failed, the value against the
// limit, and the remedy. On a connection they are sent as status codes.
var (
	// ErrUnavailable: the scorer is down, starting, or unreachable (UNAVAILABLE).
	ErrUnavailable = errors.New("ranker unavailable")
	// ErrTooLarge: the call has more items or bytes than the scorer accepts at once. A
	// smaller call may work (RESOURCE_EXHAUSTED).
	ErrTooLarge = errors.New("too much for the ranker at once")
	// ErrQuery: the scorer cannot read this query (INVALID_ARGUMENT).
	ErrQuery = errors.New("query does not fit the ranker")
	// ErrAnswer: the scorer failed or gave an invalid answer, such as a wrong number of
	// scores (any other code).
	ErrAnswer = errors.New("answer of the ranker not valid")
	// ErrVersion: host and plugin have no protocol version in common.
	ErrVersion = errors.New("no protocol version in common")
)

// statusOf returns the status by which an error is sent to the host.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	code := codes.Internal
	switch {
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, ErrTooLarge):
		code = codes.ResourceExhausted
	case errors.Is(err, ErrQuery):
		code = codes.InvalidArgument
	case errors.Is(err, ErrUnavailable):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// errorOf converts a status back to a sentinel error, or to the context's error if the
// context has ended.
func errorOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	switch s, ok := status.FromError(err); {
	case err == nil:
		return nil
	case !ok:
		return err // a connection that fails early returns an error without a status
	case s.Code() == codes.Unavailable:
		return fmt.Errorf("%w: %s", ErrUnavailable, s.Message())
	case s.Code() == codes.ResourceExhausted:
		return fmt.Errorf("%w: %s", ErrTooLarge, s.Message())
	case s.Code() == codes.InvalidArgument:
		return fmt.Errorf("%w: %s", ErrQuery, s.Message())
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case s.Code() == codes.Canceled:
		return fmt.Errorf("%w: %s", context.Canceled, s.Message())
	default:
		return fmt.Errorf("%w: %s: %s", ErrAnswer, s.Code(), s.Message())
	}
}
