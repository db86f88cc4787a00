package relay

import (
	"context"
	"net"
	"sync"
)

// link is a client's connection with its own connection to the database.
type link struct {
	raw    net.Conn // the client's, below TLS
	client net.Conn
	cancel context.CancelFunc

	mu       sync.Mutex
	database net.Conn // nil while there is no connection
}

// attach sets the connection to the database. If ctx is done, the link was cut: attach
// then closes the connection and returns false.
func (l *link) attach(ctx context.Context, database net.Conn) bool {
	l.mu.Lock()
	l.database = database
	l.mu.Unlock()
	if ctx.Err() != nil { // cut may have run before database was set
		_ = database.Close()
		return false
	}
	return true
}

// refuse resets the client's connection, as a port without a listener would.
func (l *link) refuse() {
	if tcp, ok := l.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.raw.Close()
}

// cut closes both connections at once.
func (l *link) cut() {
	_ = l.raw.Close() // first: this ends a write that may hold mu
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// drop closes both connections. The caller holds mu.
func (l *link) drop() {
	l.cancel()
	_ = l.raw.Close()
	if l.database != nil {
		_ = l.database.Close()
	}
}

// closeWrite half-closes c, or closes it if it cannot be half-closed.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		_ = c.Close()
	}
}
