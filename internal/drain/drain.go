// Package drain ends a gRPC server within a bounded time, whatever its clients do.
package drain

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// Listener knows its connections. gRPC waits for a connection on which nothing came
// yet as long as for a handshake, and Stop does not close it.
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

// closeConns closes all connections, or those on which nothing came yet.
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

// conn notes whether anything came.
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

// Server takes no more calls and waits for those in flight until ctx is done; then it
// cuts them, and every connection. It reports whether it had to. Without a Listener
// connections in their handshake may hold it up.
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
