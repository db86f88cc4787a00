package server

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// Domain is the domain of every ErrorInfo.
const Domain = "likenessdb.github.io"

// Errors of the server itself.
var (
	errModel        = errors.New("model not found")
	errMessage      = errors.New("message not readable")
	errMessageSize  = errors.New("message too large")
	errPanic        = errors.New("internal error")
	errUnauthorised = errors.New("no valid token")
	errForbidden    = errors.New("the token does not allow this route")
	errAdmin        = errors.New("the caller may not change what is served")
	errBatch        = errors.New("too many searches in a batch")
	errNoEvents     = errors.New("the route keeps no events")
)

// outcome says which status an error becomes.
type outcome struct {
	is     error
	code   codes.Code
	reason string
	// public: the error's text is meant for the caller. The text of other errors stays in the log.
	public bool
	// retry is how long to wait before a retry; 0 if a retry does not help.
	retry time.Duration
	// field is the wrong field of the request, if the error itself does not name one.
	field string
}

const (
	retrySoon  = 100 * time.Millisecond
	retryLater = time.Second
)

// outcomes is the only place where status codes are chosen; the first match counts.
var outcomes = []outcome{
	{is: errUnauthorised, code: codes.Unauthenticated, reason: "TOKEN_INVALID", public: true},
	{is: errForbidden, code: codes.PermissionDenied, reason: "ROUTE_FORBIDDEN", public: true},
	{is: errAdmin, code: codes.PermissionDenied, reason: "ADMIN_FORBIDDEN", public: true},
	{is: errMessage, code: codes.InvalidArgument, reason: "MESSAGE_INVALID", public: true},
	{is: errMessageSize, code: codes.ResourceExhausted, reason: "MESSAGE_TOO_LARGE", public: true},
	{is: ErrPath, code: codes.NotFound, reason: "PATH_NOT_FOUND", public: true},
	{is: ErrForeign, code: codes.PermissionDenied, reason: "CROSS_ORIGIN", public: true},
	{is: gate.ErrOverload, code: codes.ResourceExhausted, reason: "OVERLOADED", public: true, retry: retrySoon},
	{is: gate.ErrTooLarge, code: codes.ResourceExhausted, reason: "MESSAGE_TOO_LARGE", public: true},
	{is: gate.ErrFull, code: codes.ResourceExhausted, reason: "OVERLOADED", public: true, retry: retrySoon},
	{is: gate.ErrStalled, code: codes.DeadlineExceeded, reason: "MESSAGE_STALLED", public: true},
	{is: errBatch, code: codes.InvalidArgument, reason: "LIMIT_EXCEEDED", public: true},
	{is: errNoEvents, code: codes.FailedPrecondition, reason: "EVENTS_OFF", public: true},
	{is: events.ErrFull, code: codes.ResourceExhausted, reason: "OVERLOADED", public: true, retry: retrySoon},
	{is: events.ErrDisk, code: codes.Unavailable, reason: "EVENTS_FAILED", retry: retryLater},
	{is: events.ErrClosed, code: codes.Unavailable, reason: "ENDING", public: true},
	{is: errPanic, code: codes.Internal, reason: "INTERNAL"},
	{is: errModel, code: codes.NotFound, reason: "MODEL_NOT_FOUND", public: true},
	{is: route.ErrUnknown, code: codes.NotFound, reason: "ROUTE_NOT_FOUND", public: true},
	{is: plan.ErrRequest, code: codes.InvalidArgument, reason: "FIELD_INVALID", public: true},
	{is: rerank.ErrQuery, code: codes.InvalidArgument, reason: "QUERY_INVALID", public: true, field: "query"},
	{is: rerank.ErrStrategy, code: codes.InvalidArgument, reason: "STRATEGY_INVALID", public: true, field: "strategy"},
	{is: adapters.ErrFilter, code: codes.InvalidArgument, reason: "FILTER_INVALID", public: true, field: "filter"},
	{is: adapters.ErrID, code: codes.InvalidArgument, reason: "ID_INVALID", public: true},
	{is: adapters.ErrDimension, code: codes.InvalidArgument, reason: "DIMENSION_MISMATCH", public: true},
	{is: adapters.ErrLimit, code: codes.InvalidArgument, reason: "LIMIT_EXCEEDED", public: true},
	{is: search.ErrNotExact, code: codes.FailedPrecondition, reason: "NOT_EXACT", public: true},
	{is: rollout.ErrVersion, code: codes.NotFound, reason: "VERSION_NOT_FOUND", public: true},
	{is: rollout.ErrNotReady, code: codes.FailedPrecondition, reason: "VERSION_NOT_READY", public: true},
	{is: rollout.ErrNoPrevious, code: codes.FailedPrecondition, reason: "NO_PREVIOUS_VERSION", public: true},
	{is: rollout.ErrClosed, code: codes.Unavailable, reason: "ENDING", public: true},
	{is: follow.ErrClosed, code: codes.Unavailable, reason: "ENDING", public: true},
	{is: follow.ErrRoute, code: codes.FailedPrecondition, reason: "ROUTE_NOT_FOLLOWED", public: true},
	{is: config.ErrConfig, code: codes.FailedPrecondition, reason: "CONFIG_INVALID", public: true},
	{is: fs.ErrNotExist, code: codes.FailedPrecondition, reason: "FILE_NOT_FOUND", public: true},
	{is: table.ErrTable, code: codes.FailedPrecondition, reason: "TABLE_INVALID", public: true},
	{is: model.ErrFile, code: codes.FailedPrecondition, reason: "MODEL_INVALID", public: true},
	{is: route.ErrSetup, code: codes.FailedPrecondition, reason: "ROUTE_NOT_SERVABLE", public: true},
	{is: adapters.ErrNotFound, code: codes.FailedPrecondition, reason: "COLLECTION_NOT_FOUND", public: true},
	{is: adapters.ErrField, code: codes.FailedPrecondition, reason: "FIELD_NOT_FOUND", public: true},
	{is: adapters.ErrMetric, code: codes.FailedPrecondition, reason: "METRIC_NOT_SUPPORTED", public: true},
	{is: adapters.ErrUnsupported, code: codes.FailedPrecondition, reason: "NOT_SUPPORTED_BY_STORE", public: true},
	{is: adapters.ErrRefused, code: codes.PermissionDenied, reason: "STORE_REFUSED"},
	{is: embed.ErrText, code: codes.InvalidArgument, reason: "QUERY_INVALID", public: true, field: "query.text"},
	{is: embed.ErrUnavailable, code: codes.Unavailable, reason: "EMBEDDER_UNAVAILABLE", retry: retryLater},
	{is: embed.ErrAnswer, code: codes.Unavailable, reason: "EMBEDDER_FAILED", retry: retryLater},
	{is: ranker.ErrQuery, code: codes.InvalidArgument, reason: "QUERY_INVALID", public: true, field: "query"},
	{is: ranker.ErrUnavailable, code: codes.Unavailable, reason: "RANKER_UNAVAILABLE", retry: retryLater},
	{is: ranker.ErrAnswer, code: codes.Unavailable, reason: "RANKER_FAILED", retry: retryLater},
	{is: adapters.ErrUnavailable, code: codes.Unavailable, reason: "STORE_UNAVAILABLE", retry: retryLater},
	{is: failure.ErrDegraded, code: codes.Unavailable, reason: "NOT_RESCORED", retry: retryLater},
	{is: context.DeadlineExceeded, code: codes.DeadlineExceeded, reason: "DEADLINE_EXCEEDED"},
	{is: context.Canceled, code: codes.Canceled, reason: "CANCELLED"},
	{is: adapters.ErrStore, code: codes.Internal, reason: "STORE_FAILED"},
}

// Texts of errors that are not public.
var privateTexts = map[string]string{
	"STORE_REFUSED":        "the store refused the sidecar's credentials",
	"STORE_UNAVAILABLE":    "the store is unavailable",
	"EMBEDDER_UNAVAILABLE": "the route's embedder is unavailable, and only it can make a vector of text",
	"EMBEDDER_FAILED":      "the route's embedder failed, and only it can make a vector of text",
	"RANKER_UNAVAILABLE":   "the route's ranker is unavailable, and the route has no other answer",
	"RANKER_FAILED":        "the route's ranker failed, and the route has no other answer",
	"NOT_RESCORED":         "no rescored answer could be given, and the route is fail_closed or has no other",
	"DEADLINE_EXCEEDED":    "the deadline passed: the shortest of the call's, the request's timeout and the route's timeout counts",
	"CANCELLED":            "the call was cancelled",
	"STORE_FAILED":         "the store failed",
	"EVENTS_FAILED":        "the sidecar's disk failed, and nothing of the batch may be kept; send it again later",
	"INTERNAL":             "internal error",
}

// outcomeOf returns the outcome of an error.
func outcomeOf(err error) outcome {
	for _, o := range outcomes {
		if errors.Is(err, o.is) {
			return o
		}
	}
	return outcome{code: codes.Internal, reason: "INTERNAL"}
}

// statusOf returns the status of an error, with ErrorInfo and, if they apply, BadRequest and
// RetryInfo. It returns OK for nil. An error that is a status stays as it is.
func statusOf(err error) *status.Status {
	var invalid *protovalidate.ValidationError
	own, ok := err.(interface{ GRPCStatus() *status.Status }) // not errors.As: a status wrapped in an error comes from the store
	switch {
	case err == nil:
		return nil
	case ok:
		return own.GRPCStatus()
	case errors.As(err, &invalid):
		return validationStatus(invalid)
	}
	o := outcomeOf(err)
	if refusal := (*gate.RefusedError)(nil); errors.As(err, &refusal) {
		o.retry = refusal.After
	}
	text := err.Error()
	if !o.public {
		text = privateTexts[o.reason]
	}
	details := []protoadapt.MessageV1{info(o.reason, err)}
	if bad := badRequest(err, o.field); bad != nil {
		details = append(details, bad)
	}
	if o.retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(o.retry)})
	}
	return withDetails(status.New(o.code, utf8(text)), details...)
}

func validationStatus(invalid *protovalidate.ValidationError) *status.Status {
	bad := &errdetails.BadRequest{}
	for _, v := range invalid.Violations {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field:       protovalidate.FieldPathString(v.Proto.GetField()),
			Description: v.Proto.GetMessage(),
			Reason:      v.Proto.GetRuleId(),
		})
	}
	text := "request not valid"
	if len(bad.GetFieldViolations()) > 0 {
		first := bad.GetFieldViolations()[0]
		text += ": " + first.GetField() + ": " + first.GetDescription()
	}
	return withDetails(status.New(codes.InvalidArgument, text), info("FIELD_INVALID", nil), bad)
}

// info returns the ErrorInfo of an error. Its metadata has the name and the values of a limit, or
// the configuration key.
func info(reason string, err error) *errdetails.ErrorInfo {
	i := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	var limit *adapters.LimitError
	if errors.As(err, &limit) {
		i.Metadata = map[string]string{"limit": limit.Limit, "value": itoa(limit.Value), "max": itoa(limit.Max)}
	}
	var refusal *gate.RefusedError
	if errors.As(err, &refusal) && refusal.Setting != "" {
		i.Metadata = map[string]string{"setting": refusal.Setting}
	}
	return i
}

// badRequest names the wrong field: the field that the error names, or else the given one.
func badRequest(err error, name string) *errdetails.BadRequest {
	var field *plan.FieldError
	problem := err.Error()
	if errors.As(err, &field) {
		name, problem = field.Field, field.Problem
	}
	if name == "" {
		return nil
	}
	return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: utf8(name), Description: utf8(problem)},
	}}
}

// withDetails adds details, which always marshal because they are our own messages.
func withDetails(s *status.Status, details ...protoadapt.MessageV1) *status.Status {
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s
}

// utf8 makes a text valid UTF-8, as protobuf strings must be.
func utf8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
