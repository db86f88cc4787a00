package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kinds of error, for errors.Is. The error of a call whose deadline passed or that was
// cancelled is also context.DeadlineExceeded or context.Canceled.
var (
	// ErrInvalid means that the request is invalid. Error.Fields says where. Repeating
	// the request does not help.
	ErrInvalid = errors.New("likeness: the request is not valid")
	// ErrNotFound means that the route or model does not exist.
	ErrNotFound = errors.New("likeness: not found")
	// ErrUnauthenticated means that the token is missing or unknown.
	ErrUnauthenticated = errors.New("likeness: no valid token")
	// ErrForbidden means that the token does not permit the call.
	ErrForbidden = errors.New("likeness: forbidden")
	// ErrOverloaded means that the sidecar gets more calls than it can answer in time.
	// Retry after Error.RetryAfter, not at once.
	ErrOverloaded = errors.New("likeness: overloaded")
	// ErrTooLarge means that a message exceeds a size limit.
	ErrTooLarge = errors.New("likeness: message too large")
	// ErrNotServable means that the route contradicts its collection or model, which
	// its operator must repair, or that it cannot give the exact answer that
	// Search.RequireExact asks for.
	ErrNotServable = errors.New("likeness: the route cannot be served")
	// ErrUnavailable means that the sidecar or its store cannot answer at present.
	// Retry after Error.RetryAfter.
	ErrUnavailable = errors.New("likeness: unavailable")
	// ErrDeadline means that no answer came in time.
	ErrDeadline = errors.New("likeness: deadline exceeded")
	// ErrCanceled means that the caller cancelled the call.
	ErrCanceled = errors.New("likeness: cancelled")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("likeness: the client is closed")
	// ErrInternal means a fault of the sidecar, whose log describes it under
	// Error.RequestID.
	ErrInternal = errors.New("likeness: internal error")
)

// Error is the error of a call, or of one search of a batch.
type Error struct {
	// Reason is one of the reasons in docs/reference/errors.md. It is empty if the
	// sidecar was not reached, and in a batch.
	Reason  string
	Message string
	// Fields lists the invalid fields.
	Fields []Field
	// RetryAfter is how long to wait before a retry, 0 if the sidecar gave no time.
	RetryAfter time.Duration
	// RequestID is the call's id in the sidecar's log. It is empty if the sidecar was
	// not reached.
	RequestID string

	is []error
}

// Field names a field of a request and its problem.
type Field struct{ Name, Problem string }

// Error returns the message, in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", e.is[0], e.Message)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	return b.String()
}

// Unwrap returns the errors of this package and of context that describe the error.
func (e *Error) Unwrap() []error { return e.is }

// Temporary reports whether the same request can succeed later.
func (e *Error) Temporary() bool {
	return errors.Is(e, ErrOverloaded) || errors.Is(e, ErrUnavailable)
}

// fromStatus converts the error of a call to an *Error.
func fromStatus(err error, requestID string) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	e := &Error{Message: st.Message(), RequestID: requestID}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = d.GetReason()
		case *errdetails.RequestInfo: // a call rejected before it was read has no header, only this detail
			e.RequestID = d.GetRequestId()
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, f := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, Field{Name: f.GetField(), Problem: f.GetDescription()})
			}
		}
	}
	e.is = sentinels(st.Code(), e.Reason)
	if st.Code() == codes.Canceled && strings.Contains(st.Message(), "client connection is closing") {
		e.is = []error{ErrClosed}
	}
	return e
}

func sentinels(code codes.Code, reason string) []error {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return []error{ErrInvalid}
	case codes.NotFound:
		return []error{ErrNotFound}
	case codes.Unauthenticated:
		return []error{ErrUnauthenticated}
	case codes.PermissionDenied:
		return []error{ErrForbidden}
	case codes.ResourceExhausted:
		if reason == "" || reason == "MESSAGE_TOO_LARGE" { // gRPC's own size limit gives no reason
			return []error{ErrTooLarge}
		}
		return []error{ErrOverloaded}
	case codes.FailedPrecondition, codes.Unimplemented:
		return []error{ErrNotServable}
	case codes.Unavailable:
		return []error{ErrUnavailable}
	case codes.DeadlineExceeded:
		return []error{ErrDeadline, context.DeadlineExceeded}
	case codes.Canceled:
		return []error{ErrCanceled, context.Canceled}
	}
	return []error{ErrInternal}
}
