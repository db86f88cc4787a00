// Package loglimit limits the log lines that callers cause, so that no caller can fill the log or
// crowd out the lines of others.
package loglimit

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/time/rate"
)

// maxCallers is how many callers a Limiter remembers. If there are more, it forgets all of them;
// the limit of all callers together still holds.
const maxCallers = 4096

// Limiter limits the lines of each caller, and of all callers together. It is safe for concurrent
// use.
type Limiter struct {
	perCaller rate.Limit
	burst     int

	mu      sync.Mutex
	all     *rate.Limiter
	callers map[string]*rate.Limiter
	leftOut int64
}

// New returns a limiter for the given number of a caller's lines in a second, and at once after a
// pause. All callers together may cause ten times as many.
func New(perSecond float64, burst int) *Limiter {
	return &Limiter{
		perCaller: rate.Limit(perSecond), burst: burst,
		all: rate.NewLimiter(rate.Limit(10*perSecond), 10*burst), callers: map[string]*rate.Limiter{},
	}
}

// Allow reports whether to write a line that the caller causes. leftOut is how many of the caller's
// lines were not written since the last one that was.
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

// handler is a slog.Handler that limits warnings and errors.
type handler struct {
	slog.Handler
	lines  *Limiter
	caller func(context.Context) string
}

// Logger returns a logger that writes to another logger. It limits how often a caller causes the
// same warning or error: once a second, and five times at once after a pause. caller returns the
// name of the caller in a context. The next such line that is written says in left_out how many
// were not.
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
