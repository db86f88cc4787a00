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

// What an error of a call is, for errors.Is. An error whose call's deadline passed, or
// that was cancelled, is context.DeadlineExceeded or context.Canceled too.
var (
	// ErrInvalid: the request is wrong; Error.Fields says where. It will not become right by itself.
	ErrInvalid = errors.New("likeness: the request is not valid")
	// ErrNotFound: there is no such route or model.
	ErrNotFound = errors.New("likeness: not found")
	// ErrUnauthenticated: the token is missing or not known.
	ErrUnauthenticated = errors.New("likeness: no valid token")
	// ErrForbidden: the token does not allow it.
	ErrForbidden = errors.New("likeness: forbidden")
	// ErrOverloaded: more is asked than is answered in time; try again after Error.RetryAfter, not at once.
	ErrOverloaded = errors.New("likeness: overloaded")
	// ErrTooLarge: a message is larger than a limit.
	ErrTooLarge = errors.New("likeness: message too large")
	// ErrNotServable: the route contradicts its collection or model; its operator must see to it.
	ErrNotServable = errors.New("likeness: the route cannot be served")
	// ErrUnavailable: the sidecar or its store cannot answer at present; try again after Error.RetryAfter.
	ErrUnavailable = errors.New("likeness: unavailable")
	// ErrDeadline: no answer came in time.
	ErrDeadline = errors.New("likeness: deadline exceeded")
	// ErrCanceled: the caller gave up.
	ErrCanceled = errors.New("likeness: cancelled")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("likeness: the client is closed")
	// ErrInternal: a fault of the sidecar; its log has it beside Error.RequestID.
	ErrInternal = errors.New("likeness: internal error")
)

// Error is the error of a call, or of one search of a batch.
type Error struct {
	// Reason is one of docs/reference/errors.md; empty where the sidecar was not reached, and in a batch.
	Reason  string
	Message string
	// Fields are the fields that are wrong.
	Fields []Field
	// RetryAfter is how long to wait before another try; 0: the sidecar named none.
	RetryAfter time.Duration
	// RequestID is the call's id in the sidecar's log; empty where it was not reached.
	RequestID string

	is []error
}

// Field is a field of a request and what is wrong with it.
type Field struct{ Name, Problem string }

// Error is what is wrong, in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", e.is[0], e.Message)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	return b.String()
}

// Unwrap are the errors of this package, and of context, that it is.
func (e *Error) Unwrap() []error { return e.is }

// Temporary reports whether the same request can succeed later.
func (e *Error) Temporary() bool {
	return errors.Is(e, ErrOverloaded) || errors.Is(e, ErrUnavailable)
}

// fromStatus is a call's error in the terms of this package.
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
		case *errdetails.RequestInfo: // of what was refused before it was read, which has no header
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
		if reason == "" || reason == "MESSAGE_TOO_LARGE" { // gRPC's own limit has no reason
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
