package client

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestErrorsOfStatuses: every status becomes a sentinel error with the status's details.
func TestErrorsOfStatuses(t *testing.T) {
	for _, c := range []struct {
		code      codes.Code
		reason    string
		is        []error
		temporary bool
	}{
		{codes.InvalidArgument, "x", []error{ErrInvalid}, false},
		{codes.OutOfRange, "x", []error{ErrInvalid}, false},
		{codes.NotFound, "x", []error{ErrNotFound}, false},
		{codes.Unauthenticated, "x", []error{ErrUnauthenticated}, false},
		{codes.PermissionDenied, "x", []error{ErrForbidden}, false},
		{codes.ResourceExhausted, "", []error{ErrTooLarge}, false},
		{codes.ResourceExhausted, "MESSAGE_TOO_LARGE", []error{ErrTooLarge}, false},
		{codes.ResourceExhausted, "OVERLOADED", []error{ErrOverloaded}, true},
		{codes.FailedPrecondition, "x", []error{ErrNotServable}, false},
		{codes.Unimplemented, "x", []error{ErrNotServable}, false},
		{codes.Unavailable, "x", []error{ErrUnavailable}, true},
		{codes.DeadlineExceeded, "x", []error{ErrDeadline, context.DeadlineExceeded}, false},
		{codes.Canceled, "x", []error{ErrCanceled, context.Canceled}, false},
		{codes.Internal, "x", []error{ErrInternal}, false},
		{codes.DataLoss, "x", []error{ErrInternal}, false},
	} {
		st, err := status.New(c.code, "text").WithDetails(
			&errdetails.ErrorInfo{Reason: c.reason}, &errdetails.RequestInfo{RequestId: "theirs"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)},
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "k", Description: "too small"}}})
		if err != nil {
			t.Fatal(err)
		}
		var e *Error
		if !errors.As(fromStatus(st.Err(), "ours"), &e) {
			t.Fatalf("%s is no Error", c.code)
		}
		for _, is := range c.is {
			if !errors.Is(e, is) {
				t.Errorf("%s (%s) is not %v", c.code, c.reason, is)
			}
		}
		if e.Temporary() != c.temporary || e.Reason != c.reason || e.RequestID != "theirs" || e.RetryAfter != 3*time.Second || !slices.Equal(e.Fields, []Field{{"k", "too small"}}) || e.Message != "text" {
			t.Errorf("%s (%s): %+v", c.code, c.reason, e)
		}
	}
	if fromStatus(nil, "ours") != nil {
		t.Error("no error is one")
	}
	batch := &Error{is: sentinels(codes.ResourceExhausted, "batch")}
	if !errors.Is(batch, ErrOverloaded) {
		t.Error("an overload in a batch is not ErrOverloaded")
	}
}

// TestTokensStayAtHome: a token crosses no network in plain text.
func TestTokensStayAtHome(t *testing.T) {
	for target, plain := range map[string]bool{
		"localhost:7600": true, "127.0.0.1:7600": true, "[::1]:7600": true, "unix:/run/likeness": true, "localhost:1, 127.0.0.1:2": true,
		"10.0.0.1:7600": false, "likeness:7600": false, "127.0.0.1:7600,10.0.0.1:7600": false, "[2001:db8::1]:7600": false,
		"localhost.example.com:7600": false, "10.0.0.1:7600,localhost:1": false,
	} {
		for allowed, want := range map[bool]bool{false: plain, true: true} {
			_, err := Options{Token: StaticToken("t"), AllowPlainToken: allowed}.dialOptions(target)
			if (err == nil) != want || err != nil && !errors.Is(err, ErrOptions) {
				t.Errorf("%s, allowed %t: %v", target, allowed, err)
			}
		}
	}
	md, err := bearer{StaticToken("t")}.GetRequestMetadata(t.Context())
	if err != nil || md["authorization"] != "Bearer t" {
		t.Errorf("%v, %v", md, err)
	}
	if _, err := (bearer{func(context.Context) (string, error) { return "", errors.New("expired") }}).GetRequestMetadata(t.Context()); err == nil {
		t.Error("a token that cannot be had is left out")
	}
}

// TestEachAddressHasItsName: a sidecar shows the certificate of its own name, also as one of several.
func TestEachAddressHasItsName(t *testing.T) {
	want := []resolver.Address{{Addr: "a.example:1", ServerName: "a.example"}, {Addr: "[::1]:2", ServerName: "::1"}}
	if got := addresses("a.example:1, [::1]:2"); !slices.EqualFunc(got, want, resolver.Address.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, target := range []string{"a.example:1", "dns:///a.example:1", "likeness://a.example:1,b.example:2"} {
		if got := addresses(target); got != nil {
			t.Errorf("%s is taken for the list %v", target, got)
		}
	}
}

// TestWordsOfAnAnswer: what a caller decides by.
func TestWordsOfAnAnswer(t *testing.T) {
	for status, exact := range map[string]bool{"exact": true, "calibrated": false, "unknown": false, "": false} {
		if got := (Certificate{Status: status}).Exact(); got != exact {
			t.Errorf("%q is exact: %t", status, got)
		}
	}
	for word, open := range map[string]bool{"fail_open": true, "fail_closed": false, "": false} {
		if got := fromRoute(&likenessv1.Route{Failure: word}); got.FailOpen != open {
			t.Errorf("%q fails open: %t", word, got.FailOpen)
		}
	}
	for n, want := range map[int]int32{5: 5, math.MaxInt: math.MaxInt32, math.MinInt: math.MinInt32} {
		if got := small(n); got != want {
			t.Errorf("%d is sent as %d", n, got)
		}
	}
	for _, s := range []Search{{Payload: true}, {PayloadFields: []string{"n"}}} {
		if s.proto().GetPayload() == nil {
			t.Errorf("%+v asks for no payload", s)
		}
	}
	if (&Search{}).proto().GetPayload() != nil || (&Search{}).proto().GetTimeout() != nil {
		t.Error("a search asks for what nobody asked")
	}
}
