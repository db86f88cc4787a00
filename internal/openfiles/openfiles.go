// Package openfiles says in the log when a listener cannot take connections because the
// process has as many open files as it may.
package openfiles

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// warnEvery is the least time between two lines of one listener, which retries many
// times a second.
const warnEvery = 10 * time.Second

// Listener warns when Accept fails for want of files. Servers retry then, and say so
// where nobody looks.
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
