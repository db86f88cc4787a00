package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// maxKept is how much of a request is kept in case that nobody hears it.
	maxKept = 64 << 10
	// parked is how long a client may say nothing after the database has ended.
	parked = 2 * time.Minute
)

// keep keeps what may have to be said again; the caller holds mu.
func (l *httpLink) keep(b []byte) {
	if !l.whole || l.heard || len(l.kept)+len(b) > maxKept {
		l.kept, l.whole = nil, false
		return
	}
	l.kept = append(l.kept, b...)
}

// mayRepeat reports whether what the client said can be said to the database again; the
// caller holds mu.
func (l *httpLink) mayRepeat() bool {
	return l.used && l.whole && !l.heard && !l.again && !l.opaque
}

// lose goes on after the database has ended: on another connection where nothing is
// owed or nothing was heard, which it returns, and else to the end of the link. A client
// that has sent a request and heard nothing at all is told so.
func (l *httpLink) lose(ctx context.Context, s *Server, database net.Conn, err error) net.Conn {
	if ctx.Err() == nil {
		_ = database.Close() // whoever writes to it lets go
		if next, goesOn := l.replace(ctx, s); goesOn {
			return next
		}
	}
	l.mu.Lock()
	idle, unanswered := l.idle(), !l.heard && !l.silent && !l.opaque && l.requests.heads > l.heads
	endless := l.answers.state == untilClose
	l.mu.Unlock()
	switch {
	case ctx.Err() != nil: // the link was cut
	case idle:
		l.cut()
	case unanswered:
		s.unreachable(err)
		l.answerDown(s)
	case endless && !errors.Is(err, io.EOF):
		l.refuse() // its end would look like that of the answer
	default:
		l.bid(lastWords)
	}
	return nil
}

// replace finds the database's next connection. It reports whether the link goes on, with
// none where it has ended meanwhile.
func (l *httpLink) replace(ctx context.Context, s *Server) (next net.Conn, goesOn bool) {
	l.up.Lock()
	l.mu.Lock()
	stays := l.idle() && !l.leaving && !l.silent && !l.requests.closing && !l.answers.closing
	repeats := !l.idle() && l.mayRepeat()
	switch {
	case stays:
		l.database, l.used = nil, false
	case repeats:
		l.again, l.used = true, false
	}
	l.mu.Unlock()
	if stays {
		l.up.Unlock()
		return l.park(ctx), true
	}
	defer l.up.Unlock()
	if !repeats {
		return nil, false
	}
	next, err := s.dial(ctx)
	if err != nil || !l.attach(ctx, next) {
		return nil, false
	}
	if _, err := next.Write(l.kept); err != nil {
		_ = next.Close()
	}
	return next, true
}

// park waits for the client's next words, and the connection that they go to.
func (l *httpLink) park(ctx context.Context) net.Conn {
	select {
	case next := <-l.next:
		return next
	case <-ctx.Done():
	case <-time.After(parked):
		l.cut()
	}
	return nil
}
