// Package span traces the steps of a search. Attributes are sizes and names, never
// vectors, ids or payloads.
package span

import (
	"context"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

type scopeKey struct{}

// Scope holds the settings that the spans of one search share.
type Scope struct {
	Tracer trace.Tracer
	// Store is the configured name of the route's store, System its kind, and Address its host:port,
	// empty if the store is in this process.
	Store, System, Address string
	// Common are the attributes that every span has.
	Common []attribute.KeyValue
	// ErrorType names an error's type in one or two words. The error's text may repeat a request or
	// a row's content.
	ErrorType func(error) string
}

// With returns a context under which steps are traced in the scope.
func With(ctx context.Context, s *Scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, s)
}

func scopeOf(ctx context.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}

// Step begins the span of a step.
func Step(ctx context.Context, step string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	s := scopeOf(ctx)
	if s == nil {
		return ctx, noop.Span{}
	}
	ctx, span := s.Tracer.Start(ctx, "likeness."+step)
	if span.IsRecording() {
		span.SetAttributes(s.Common...)
		span.SetAttributes(attrs...)
	}
	return ctx, span
}

// StoreCall begins the span of a call to the store, with the attributes of
// OpenTelemetry's conventions for databases.
func StoreCall(ctx context.Context, step, operation, collection string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	s := scopeOf(ctx)
	if s == nil {
		return ctx, noop.Span{}
	}
	kind := trace.SpanKindClient
	if s.Address == "" {
		kind = trace.SpanKindInternal
	}
	ctx, span := s.Tracer.Start(ctx, "likeness."+step, trace.WithSpanKind(kind))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(
		attribute.String("db.system.name", s.System),
		attribute.String("db.collection.name", collection),
		attribute.String("db.operation.name", operation),
		attribute.String("likeness.store", s.Store),
	)
	if host, port, err := net.SplitHostPort(s.Address); err == nil {
		span.SetAttributes(attribute.String("server.address", host))
		if n, err := strconv.Atoi(port); err == nil {
			span.SetAttributes(attribute.Int("server.port", n))
		}
	}
	span.SetAttributes(s.Common...)
	span.SetAttributes(attrs...)
	return ctx, span
}

// Fail marks a span as failed, unless err is nil. The error's text goes to the log, under the same
// trace id.
func Fail(ctx context.Context, span trace.Span, err error) {
	if s := scopeOf(ctx); err != nil && s != nil && span.IsRecording() {
		name := s.ErrorType(err)
		span.SetAttributes(attribute.String("error.type", name))
		span.SetStatus(codes.Error, name)
	}
}
