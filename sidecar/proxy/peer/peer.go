// Package peer deals with the peers of the proxy's gRPC and REST servers: it accepts the
// connections of clients, notices that a peer has vanished, and lets a request outlive its
// client.
package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

const (
	// Outlives is how long a request goes on after its client went away.
	Outlives = time.Second
	// retryInterval is the time between a failure to accept a connection and the next try.
	retryInterval = 10 * time.Millisecond
)

// KeepAlive returns settings that detect a vanished peer within half a minute.
func KeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// Accept hands the connections of a listener to serve, one after the other, until draining
// is closed. It returns an error only if the listener was closed before that.
func Accept(listener net.Listener, draining <-chan struct{}, log *slog.Logger, serve func(net.Conn)) error {
	for !IsClosed(draining) {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetKeepAliveConfig(KeepAlive())
			}
			serve(conn)
		case IsClosed(draining):
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			log.Warn("accepting a connection failed", "error", err)
			select { // the usual cause is too many open files
			case <-time.After(retryInterval):
			case <-draining:
			}
		}
	}
	return nil
}

// IsClosed reports whether a channel on which nothing is sent is closed.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Outlive returns a context with the values of ctx that is cancelled one second after ctx.
func Outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(Outlives, cancel) })
	return own, func() {
		stop()
		cancel()
	}
}
