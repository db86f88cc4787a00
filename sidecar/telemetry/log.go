package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/term"
)

// NewLogger writes records of at least a level (debug, info, warn, error) to w. The format
// is text or json; auto chooses text on a terminal, else JSON. Every record carries the ids
// of its request and trace. A line has at most maxLine bytes.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	lowest := &slog.LevelVar{}
	lowest.Set(least)
	options := &slog.HandlerOptions{Level: lowest}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if format == "text" || format == "auto" && IsTerminal(w) {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(idHandler{Handler: handler, least: lowest, left: maxLine - lineHead}), nil
}

// SetLevel changes the minimum level of a logger from NewLogger and of the loggers derived from it.
// It does nothing to other loggers. It is safe for concurrent use.
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

// IsTerminal reports whether people read on a terminal what is written to w: an *os.File, or a
// writer with the method Fd of the file to which it writes.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

type requestIDKey struct{}

// RequestIDHeader carries a request's id. The caller may choose the id.
const RequestIDHeader = "x-request-id"

// WithRequestID returns a context whose log records carry the id that RequestID returns.
func WithRequestID(ctx context.Context, given string) (of context.Context, id string) {
	id = RequestID(given)
	return context.WithValue(ctx, requestIDKey{}, id), id
}

// RequestID returns the id that the caller sent if it is short and printable, or a new id.
func RequestID(given string) string {
	odd := strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r > '~' })
	if given == "" || len(given) > 128 || odd {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		given = hex.EncodeToString(b[:])
	}
	return given
}

// idHandler adds the ids of the context to every record, and shortens records to fit a
// line.
type idHandler struct {
	slog.Handler
	least *slog.LevelVar
	// left is the room in a line that the attributes of WithAttrs leave. prefix is the room
	// that the names of WithGroup take.
	left, prefix int
}

func (h idHandler) Handle(ctx context.Context, r slog.Record) error {
	l := line{left: h.left, prefix: h.prefix}
	message := shorten(r.Message, max(64, min(maxValue, l.left)))
	l.left -= cost(message)
	out := slog.NewRecord(r.Time, r.Level, message, r.PC)
	var ids []slog.Attr
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		ids = append(ids, slog.String("request_id", id))
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		ids = append(ids, slog.String("trace_id", span.TraceID().String()))
	}
	ids = l.keep(ids) // the ids get their room first
	r.Attrs(func(a slog.Attr) bool {
		if a, ok := l.fit(a); ok {
			out.AddAttrs(a)
		}
		return true
	})
	out.AddAttrs(ids...)
	if l.omitted > 0 {
		out.AddAttrs(slog.Int("attributes_left_out", l.omitted))
	}
	return h.Handler.Handle(ctx, out)
}

func (h idHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	l := line{left: h.left, prefix: h.prefix}
	kept := l.keep(attrs)
	return idHandler{h.Handler.WithAttrs(kept), h.least, l.left, h.prefix}
}

// WithGroup implements slog.Handler. If there is no room for the name it opens no group.
func (h idHandler) WithGroup(name string) slog.Handler {
	name = shorten(name, maxKey)
	left := h.left - cost(name) - 8
	if left < 64 {
		return h
	}
	return idHandler{h.Handler.WithGroup(name), h.least, left, h.prefix + cost(name) + 1}
}
