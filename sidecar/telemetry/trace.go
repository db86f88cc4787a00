package telemetry

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// TraceOptions say where traces go; see config.Trace.
type TraceOptions struct {
	Endpoint    string // host:port; if empty, no traces are sent
	Insecure    bool
	SampleRatio float64
	Version     string
	Logger      *slog.Logger // logs that spans could not be sent
}

// NewTracerProvider returns a provider that sends spans to a collector in the background. The
// caller shuts it down. Without an endpoint it returns nil.
func NewTracerProvider(ctx context.Context, o TraceOptions) (*trace.TracerProvider, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(o.Endpoint)}
	if o.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("traces to %s: %w", o.Endpoint, err)
	}
	return trace.NewTracerProvider(
		trace.WithBatcher(logged{exporter, o.Logger}),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(o.SampleRatio))),
		trace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "likeness"), attribute.String("service.version", o.Version))),
	), nil
}

// logged logs failed exports. The library would report them to its global error handler, which
// writes to stderr in another format.
type logged struct {
	trace.SpanExporter
	logger *slog.Logger
}

func (l logged) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	if err := l.SpanExporter.ExportSpans(ctx, spans); err != nil {
		l.logger.WarnContext(ctx, "traces not sent", "spans", len(spans), "error", err)
	}
	return nil
}
