// Package loglimit bounds the log lines that callers cause, so that none of them fills the
// log, nor takes the lines of the others.
package loglimit

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/time/rate"
)

// maxCallers bounds the callers that a Limiter remembers. When there are more, it forgets
// all of them: the bound of all callers together holds meanwhile.
const maxCallers = 4096

// Limiter bounds the lines of each caller, and of all callers together. It is safe for
// concurrent use.
type Limiter struct {
	perCaller rate.Limit
	burst     int

	mu      sync.Mutex
	all     *rate.Limiter
	callers map[string]*rate.Limiter
	leftOut int64
}

// New returns a limiter for so many lines of a caller in a second, and so many at once
// after a pause. All callers together have ten times as many.
func New(perSecond float64, burst int) *Limiter {
	return &Limiter{
		perCaller: rate.Limit(perSecond), burst: burst,
		all: rate.NewLimiter(rate.Limit(10*perSecond), 10*burst), callers: map[string]*rate.Limiter{},
	}
}

// Allow reports whether a line that the caller causes is written. leftOut is how many lines
// were not since the last one that was.
func (l *Limiter) Allow(caller string) (ok bool, leftOut int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.callers[caller]
	if own == nil {
		if len(l.callers) == maxCallers {
			clear(l.callers)
		}
		own = rate.NewLimiter(l.perCaller, l.burst)
		l.callers[caller] = own
	}
	if !own.Allow() || !l.all.Allow() {
		l.leftOut++
		return false, 0
	}
	leftOut, l.leftOut = l.leftOut, 0
	return true, leftOut
}

// handler is a slog.Handler that bounds the lines of warnings and errors.
type handler struct {
	slog.Handler
	lines  *Limiter
	caller func(context.Context) string
}

// Logger returns a logger that writes to another one, and bounds how often a caller causes
// the same warning or error: once a second, and five times at once. caller names the caller
// that a context belongs to. The next such line says in left_out how many were not written.
func Logger(to *slog.Logger, caller func(context.Context) string) *slog.Logger {
	return slog.New(handler{to.Handler(), New(1, 5), caller})
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	ok, leftOut := h.lines.Allow(r.Message + "\x00" + h.caller(ctx))
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.lines, h.caller}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.lines, h.caller}
}
