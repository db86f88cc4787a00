package relay

import (
	"context"
	"net"
	"sync"
)

// link is a client's connection and the one to the database that belongs to it.
type link struct {
	raw    net.Conn // the client's, below TLS
	client net.Conn
	cancel context.CancelFunc

	mu       sync.Mutex
	database net.Conn // nil before it is there
}

// attach gives a link its connection to the database, unless ctx is done: then the link
// was cut.
func (l *link) attach(ctx context.Context, database net.Conn) bool {
	l.mu.Lock()
	l.database = database
	l.mu.Unlock()
	if ctx.Err() != nil { // cut did not find it
		_ = database.Close()
		return false
	}
	return true
}

// refuse ends the client's connection as a port that nobody listens on would.
func (l *link) refuse() {
	if tcp, ok := l.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.raw.Close()
}

// cut ends both connections at once.
func (l *link) cut() {
	_ = l.raw.Close() // first: who writes to it may hold mu
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// drop ends what is left; the caller holds mu.
func (l *link) drop() {
	l.cancel()
	_ = l.raw.Close()
	if l.database != nil {
		_ = l.database.Close()
	}
}

// closeWrite tells a peer that nothing more comes.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		_ = c.Close()
	}
}
