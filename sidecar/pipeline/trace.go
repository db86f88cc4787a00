package pipeline

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// span begins the span of a step. Attributes are sizes and names, never vectors,
// ids or payloads.
func (s *search) span(ctx context.Context, step string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	ctx, span := s.tracer.Start(ctx, "likeness."+step)
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(attribute.String("likeness.route", s.Name), attribute.String("likeness.strategy", string(s.r.Strategy)))
	span.SetAttributes(attrs...)
	switch step {
	case "retrieve":
		span.SetAttributes(s.database(s.searched(), "search")...)
	case "fallback":
		span.SetAttributes(s.database(s.Collection, "search")...)
	case "payload":
		span.SetAttributes(s.database(s.Collection, "fetch")...)
	}
	return ctx, span
}

// database are the attributes of a call to the store, named as OpenTelemetry's
// conventions for databases name them.
func (o *opened) database(collection, operation string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("db.system.name", o.StoreName),
		attribute.String("db.collection.name", collection),
		attribute.String("db.operation.name", operation),
	}
}

func fail(span trace.Span, err error) {
	if span.IsRecording() {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}
