package pipeline

import (
	"context"
	"errors"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// Database is what traces call a store: its kind, and host:port; empty is not known.
type Database struct{ System, Address string }

// span begins the span of a step. Attributes are sizes and names, never vectors,
// ids or payloads.
func (s *search) span(ctx context.Context, step string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	var span trace.Span
	switch step {
	case "retrieve":
		ctx, span = s.storeSpan(ctx, s.tracer, step, s.searched(), "search")
	case "match":
		ctx, span = s.storeSpan(ctx, s.tracer, step, s.Collection, "match")
	case "fallback":
		ctx, span = s.storeSpan(ctx, s.tracer, step, s.Collection, "search")
	case "payload", "confirm":
		ctx, span = s.storeSpan(ctx, s.tracer, step, s.Collection, "fetch")
	default:
		ctx, span = s.tracer.Start(ctx, "likeness."+step)
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.String("likeness.route", s.Name), attribute.String("likeness.strategy", string(s.r.Strategy)))
		span.SetAttributes(attrs...)
	}
	return ctx, span
}

// storeSpan begins the span of a call to the store, named as OpenTelemetry's conventions
// for databases name it.
func (o *opened) storeSpan(ctx context.Context, tracer trace.Tracer, step, collection, operation string) (context.Context, trace.Span) {
	kind := trace.SpanKindClient
	if o.Database.Address == "" {
		kind = trace.SpanKindInternal // the store is in this process
	}
	ctx, span := tracer.Start(ctx, "likeness."+step, trace.WithSpanKind(kind))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(
		attribute.String("db.system.name", o.Database.System),
		attribute.String("db.collection.name", collection),
		attribute.String("db.operation.name", operation),
		attribute.String("likeness.store", o.StoreName),
	)
	if host, port, err := net.SplitHostPort(o.Database.Address); err == nil {
		span.SetAttributes(attribute.String("server.address", host))
		if n, err := strconv.Atoi(port); err == nil {
			span.SetAttributes(attribute.Int("server.port", n))
		}
	}
	return ctx, span
}

// errorTypes are the names of errors in traces; the first that fits counts.
var errorTypes = []struct {
	is   error
	name string
}{
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{ErrRoute, "route_not_found"},
	{ErrRequest, "request_not_valid"},
	{rerank.ErrQuery, "query_not_valid"},
	{rerank.ErrStrategy, "strategy_not_valid"},
	{adapters.ErrFilter, "filter_not_valid"},
	{adapters.ErrID, "id_not_valid"},
	{adapters.ErrDimension, "dimension_mismatch"},
	{adapters.ErrLimit, "limit_exceeded"},
	{ErrSetup, "route_not_servable"},
	{adapters.ErrNotFound, "collection_not_found"},
	{adapters.ErrField, "field_not_found"},
	{adapters.ErrMetric, "metric_not_supported"},
	{adapters.ErrUnsupported, "not_supported"},
	{adapters.ErrRefused, "refused"},
	{adapters.ErrUnavailable, "unavailable"},
	{ranker.ErrUnavailable, "ranker_unavailable"},
	{ranker.ErrQuery, "ranker_query_not_valid"},
	{ranker.ErrAnswer, "ranker_answer_not_valid"},
	{ErrDegraded, "not_rescored"},
	{adapters.ErrStore, "store_error"},
}

// ErrorType is the name of an error, one of few, for traces and logs: the text may
// repeat a filter or what a row holds. It is empty for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.is) {
			return t.name
		}
	}
	return "_OTHER"
}

// fail marks a span as failed. The text of the error is for the log, which has the
// same trace id.
func fail(span trace.Span, err error) {
	if span.IsRecording() {
		span.SetAttributes(attribute.String("error.type", ErrorType(err)))
		span.SetStatus(codes.Error, ErrorType(err))
	}
}
