// Package drain stops a gRPC server within a limited time, whatever its clients do.
package drain

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// Listener keeps track of its connections. That is necessary because a graceful stop waits
// for connections that have sent nothing yet, for as long as a handshake may take.
type Listener struct {
	net.Listener

	mu    sync.Mutex
	conns map[*conn]bool
}

// Listen wraps a listener.
func Listen(l net.Listener) *Listener { return &Listener{Listener: l, conns: map[*conn]bool{}} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
	return c, nil
}

// closeConns closes all connections, or only those that have sent nothing yet.
func (l *Listener) closeConns(all bool) {
	l.mu.Lock()
	var chosen []*conn
	for c := range l.conns {
		if all || !c.spoke.Load() {
			chosen = append(chosen, c)
		}
	}
	l.mu.Unlock()
	for _, c := range chosen {
		_ = c.Close()
	}
}

// conn records whether the client has sent anything.
type conn struct {
	net.Conn
	of    *Listener
	spoke atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Server stops accepting calls and waits for running calls until ctx is done. Then it cuts
// them off and closes all connections. It reports whether that was necessary. Without a
// Listener, connections that are still in their handshake can delay the stop.
func Server(ctx context.Context, s *grpc.Server, l *Listener) (cut bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.GracefulStop()
	}()
	if l != nil {
		l.closeConns(false)
	}
	select {
	case <-done:
		return false
	case <-ctx.Done():
	}
	if l != nil {
		l.closeConns(true)
	}
	s.Stop()
	<-done
	return true
}
