package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// maxReplayBytes bounds the bytes kept for a replay.
	maxReplayBytes = 64 << 10
	// idleTimeout bounds the wait for a client's next request after the database has closed.
	idleTimeout = 2 * time.Minute
)

// recordReplay adds b to the replay buffer while a replay is possible. The caller holds mu.
func (l *httpLink) recordReplay(b []byte) {
	if !l.replayComplete || l.responseStarted || len(l.replayBuffer)+len(b) > maxReplayBytes {
		l.replayBuffer, l.replayComplete = nil, false
		return
	}
	l.replayBuffer = append(l.replayBuffer, b...)
}

// canReplay reports whether the batch may be sent to the database a second time: its
// connection had answered before, so it was probably closed as idle, and has sent no byte
// for this batch. The caller holds mu.
func (l *httpLink) canReplay() bool {
	return l.databaseAnswered && l.replayComplete && !l.responseStarted && !l.replayed && !l.opaque
}

// databaseEnded handles a closed database connection. It returns a new connection if no
// request is in flight or the requests can be replayed. Otherwise it ends the link and
// returns nil; a client whose complete request got no response byte is answered with 502.
func (l *httpLink) databaseEnded(ctx context.Context, s *Server, database net.Conn, err error) net.Conn {
	if ctx.Err() == nil {
		_ = database.Close() // unblocks forward
		if next, goesOn := l.reconnect(ctx, s); goesOn {
			return next
		}
	}
	l.mu.Lock()
	idle, unanswered := l.idle(), !l.responseStarted && !l.clientClosed && !l.opaque && l.requests.headsRead > l.headsBefore
	endless := l.answers.state == untilClose
	l.mu.Unlock()
	switch {
	case ctx.Err() != nil: // the link was cut
	case idle:
		l.cut()
	case unanswered:
		s.unreachable(err)
		l.answerUnreachable(s)
	case endless && !errors.Is(err, io.EOF):
		l.refuse() // an orderly close would look like the end of the response
	default:
		l.closeGently(lastBytesTimeout)
	}
	return nil
}

// reconnect returns the database's next connection: at the client's next request if the
// link is idle, or at once with the batch replayed on it. It reports whether it handled
// the close; next may then still be nil, if the link ended meanwhile.
func (l *httpLink) reconnect(ctx context.Context, s *Server) (next net.Conn, goesOn bool) {
	l.uploadMu.Lock()
	l.mu.Lock()
	keepsClient := l.idle() && !l.leaving && !l.clientClosed && !l.requests.closesConnection && !l.answers.closesConnection
	replays := !l.idle() && l.canReplay()
	switch {
	case keepsClient:
		l.database, l.databaseAnswered = nil, false
	case replays:
		l.replayed, l.databaseAnswered = true, false
	}
	l.mu.Unlock()
	if keepsClient {
		l.uploadMu.Unlock()
		return l.awaitReconnect(ctx), true
	}
	defer l.uploadMu.Unlock()
	if !replays {
		return nil, false
	}
	next, err := s.dial(ctx)
	if err != nil || !l.attach(ctx, next) {
		return nil, false
	}
	if _, err := next.Write(l.replayBuffer); err != nil {
		_ = next.Close()
	}
	return next, true
}

// awaitReconnect waits for the client's next request, for which forward opens a connection
// to the database. It returns nil if the link ends first.
func (l *httpLink) awaitReconnect(ctx context.Context) net.Conn {
	select {
	case next := <-l.nextDatabase:
		return next
	case <-ctx.Done():
	case <-time.After(idleTimeout):
		l.cut()
	}
	return nil
}
