package search

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// trace gives the steps of the search spans in the request's trace.
func (s *search) trace(ctx context.Context) context.Context {
	s.scope = s.engine.newScope(s.view.Checked)
	s.scope.Common = []attribute.KeyValue{attribute.String("likeness.route", s.view.Name)}
	return span.With(ctx, s.scope)
}

// newScope returns the settings of the spans of a search on a route.
func (e *Engine) newScope(c *route.Checked) *span.Scope {
	return &span.Scope{Tracer: e.tracer, Store: c.StoreName, System: c.Database.System, Address: c.Database.Address, ErrorType: ErrorType}
}

// failSpan marks a span as failed. The error's text goes to the log, under the same
// trace id.
func failSpan(s trace.Span, err error) {
	if s.IsRecording() {
		s.SetAttributes(attribute.String("error.type", ErrorType(err)))
		s.SetStatus(codes.Error, ErrorType(err))
	}
}

// errorTypes maps errors to their names in traces. The first error that matches counts.
var errorTypes = []struct {
	is   error
	name string
}{
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{route.ErrUnknown, "route_not_found"},
	{ErrNotRewritten, "not_rewritten"},
	{ErrNotExact, "not_exact"},
	{plan.ErrRequest, "request_not_valid"},
	{rerank.ErrQuery, "query_not_valid"},
	{rerank.ErrStrategy, "strategy_not_valid"},
	{adapters.ErrFilter, "filter_not_valid"},
	{adapters.ErrID, "id_not_valid"},
	{adapters.ErrDimension, "dimension_mismatch"},
	{adapters.ErrLimit, "limit_exceeded"},
	{route.ErrSetup, "route_not_servable"},
	{adapters.ErrNotFound, "collection_not_found"},
	{adapters.ErrField, "field_not_found"},
	{adapters.ErrMetric, "metric_not_supported"},
	{adapters.ErrUnsupported, "not_supported"},
	{adapters.ErrRefused, "refused"},
	{adapters.ErrUnavailable, "unavailable"},
	{embed.ErrUnavailable, "embedder_unavailable"},
	{embed.ErrText, "text_not_valid"},
	{embed.ErrAnswer, "embedder_answer_not_valid"},
	{ranker.ErrUnavailable, "ranker_unavailable"},
	{ranker.ErrQuery, "ranker_query_not_valid"},
	{ranker.ErrAnswer, "ranker_answer_not_valid"},
	{failure.ErrDegraded, "not_rescored"},
	{adapters.ErrStore, "store_error"},
}

// ErrorType returns the name of an error's type, in one or two words, for traces and logs. They
// must not get the error's text, which may repeat a filter or a row's content. ErrorType returns ""
// for nil.
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
