// Package openfiles logs when a listener cannot accept connections because the process has
// reached its limit of open files.
package openfiles

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// warnEvery is the least time between two warnings of a listener, which retries many times
// a second.
const warnEvery = 10 * time.Second

// Listener returns a listener that logs a warning when Accept fails because of the limit of
// open files. Servers retry silently in this case.
func Listener(l net.Listener, log *slog.Logger) net.Listener {
	return &listener{Listener: l, log: log, lines: rate.NewLimiter(rate.Every(warnEvery), 1)}
}

type listener struct {
	net.Listener
	log   *slog.Logger
	lines *rate.Limiter
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && l.lines.Allow() {
		l.log.Warn("too many open files: new connections wait", "address", l.Addr().String(), "error", err,
			"remedy", "raise LimitNOFILE= of the systemd unit, or `ulimit -n`, or the ulimits of the container")
	}
	return conn, err
}
