package relay

import (
	"context"
	"net"
	"sync"
	"time"
)

// chunk is what is read at once: a full frame of most peers and its header.
const chunk = 16<<10 + frameHeader

// link is a client's connection and the one to the database that belongs to it.
type link struct {
	raw    net.Conn // the client's, below TLS
	client net.Conn
	cancel context.CancelFunc

	mu       sync.Mutex // of what is written to the client, and of what follows
	database net.Conn   // nil before it is there
	frames   frames     // of the database
	leaving  bool
	said     bool // that the client is to go elsewhere
}

// join forwards both ways until both have ended. ctx is done when the link is cut.
func (l *link) join(ctx context.Context, database net.Conn) {
	l.mu.Lock()
	l.database = database
	l.mu.Unlock()
	if ctx.Err() != nil { // cut did not find it
		_ = database.Close()
		return
	}
	var up sync.WaitGroup
	up.Go(l.upload)
	l.download()
	up.Wait()
}

// upload forwards what the client says. Where it ends the link does, as soon as the
// database has heard of it.
func (l *link) upload() {
	b := make([]byte, chunk)
	for {
		n, err := l.client.Read(b)
		if n > 0 {
			if _, err := l.database.Write(b[:n]); err != nil {
				return // the database has ended; download says so
			}
		}
		if err != nil {
			closeWrite(l.database)
			_ = l.database.SetReadDeadline(time.Now().Add(lastWords))
			return
		}
	}
}

// download forwards what the database says. Where it ends the link does, as soon as
// the client has read the last of it.
func (l *link) download() {
	b := make([]byte, chunk)
	for {
		n, err := l.database.Read(b)
		if n > 0 {
			if err := l.say(b[:n]); err != nil {
				l.cut()
				return
			}
		}
		if err != nil {
			closeWrite(l.client)
			_ = l.client.SetReadDeadline(time.Now().Add(lastWords))
			_ = l.database.Close()
			return
		}
	}
}

// say writes what the database said to the client.
func (l *link) say(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.frames.advance(b)
	if !l.leaving || l.said || end < 0 {
		_, err := l.client.Write(b)
		return err
	}
	if _, err := l.client.Write(b[:end]); err != nil {
		return err
	}
	if err := l.goAway(); err != nil || end == len(b) {
		return err
	}
	_, err := l.client.Write(b[end:])
	return err
}

// leave tells the client to go elsewhere, now or behind the frame that is under way.
func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	if !l.said && l.frames.between() {
		_ = l.goAway()
	}
}

// goAway writes the frame; the caller holds mu. All that the client has begun is still
// answered, so the last stream is the last that there can be (RFC 9113, section 6.8).
func (l *link) goAway() error {
	l.said = true
	_, err := l.client.Write([]byte{0, 0, 8, typeGoAway, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	return err
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
	_ = l.raw.Close() // first: who writes to it holds mu
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
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
