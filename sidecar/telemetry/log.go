package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/term"
)

// NewLogger writes records of at least a level (debug, info, warn, error) to w,
// as text or json; format auto is text on a terminal and JSON elsewhere. Every
// record carries the ids of its request and trace.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	lowest := &slog.LevelVar{}
	lowest.Set(least)
	options := &slog.HandlerOptions{Level: lowest}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if format == "text" || format == "auto" && isTerminal(w) {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(idHandler{handler, lowest}), nil
}

// SetLevel changes the least level that a logger of NewLogger, and all that were made
// of it, write; of another logger it changes nothing. It is safe for concurrent use.
func SetLevel(log *slog.Logger, level string) error {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("log level: %w", err)
	}
	if h, ok := log.Handler().(idHandler); ok {
		h.least.Set(least)
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type requestIDKey struct{}

// RequestIDHeader carries a request's id; a caller may choose it.
const RequestIDHeader = "x-request-id"

// WithRequestID returns a context whose log records carry the id of a request, as
// RequestID makes it.
func WithRequestID(ctx context.Context, given string) (of context.Context, id string) {
	id = RequestID(given)
	return context.WithValue(ctx, requestIDKey{}, id), id
}

// RequestID is the id that a caller gave its request, if it is a short printable one,
// or a new one.
func RequestID(given string) string {
	odd := strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r > '~' })
	if given == "" || len(given) > 128 || odd {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		given = hex.EncodeToString(b[:])
	}
	return given
}

// idHandler adds the ids of the context to every record.
type idHandler struct {
	slog.Handler
	least *slog.LevelVar
}

func (h idHandler) Handle(ctx context.Context, r slog.Record) error {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		r.AddAttrs(slog.String("request_id", id))
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h idHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return idHandler{h.Handler.WithAttrs(attrs), h.least}
}
func (h idHandler) WithGroup(name string) slog.Handler {
	return idHandler{h.Handler.WithGroup(name), h.least}
}
