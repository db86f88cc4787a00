package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

const (
	// firstRequestTimeout bounds the wait for the first bytes of a new connection, and for
	// the head of its first request when the database cannot be reached.
	firstRequestTimeout = 30 * time.Second
	// closeTimeout bounds the wait for a client to close after its last response in a drain.
	closeTimeout = 500 * time.Millisecond
	// preface is the start of the HTTP/2 connection preface (RFC 9113, section 3.4). No
	// HTTP/1.1 request begins with it.
	preface     = "PRI * HTTP/2.0\r\n"
	closeHeader = "Connection: close\r\n"
)

// buffers is a pool of read buffers. REST clients open many short connections.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([32 << 10]byte) }}}
}

func (b *buffers) get() []byte { return b.pool.Get().(*[32 << 10]byte)[:] }

func (b *buffers) put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }

// httpLink forwards an HTTP/1.1 connection. It parses messages only to know when no
// request is in flight, because the link can then close without losing a response. On
// bytes that are not HTTP/1.1, or after an upgrade, it forwards until one side closes.
//
// Databases close connections that are idle, or after some responses, without a
// "Connection: close" (Qdrant: after five seconds idle, and after rejecting a request
// whose body it has not read). A client connected directly sees the close before it sends
// again; behind a relay it would lose its request. When the database closes, the link
// therefore keeps the client's connection and opens a new one to the database for the next
// request. A request in flight that received no response byte is replayed there once.
type httpLink struct {
	link

	// nextDatabase hands download the connection that replaces a closed one.
	nextDatabase chan net.Conn
	// uploadMu is held while the database's connection is written to or replaced. It is
	// locked before mu.
	uploadMu sync.Mutex

	// The fields below are guarded by mu.

	requests, answers  messages
	pendingMethods     []method // methods of the requests whose response has not begun
	requestsBegun      uint64
	responsesBegun     uint64
	responsesEnded     uint64 // read from the database, perhaps not yet written to the client
	responsesDelivered uint64 // written to the client
	opaque             bool   // messages are no longer parsed
	leaving            bool   // a drain has begun
	closeSent          bool   // the client was sent "Connection: close"
	clientClosed       bool   // the client has closed its side

	// A batch is the requests sent since none was in flight.

	replayBuffer     []byte // the batch's bytes; also guarded by uploadMu for writes
	replayComplete   bool   // replayBuffer holds the whole batch
	responseStarted  bool   // the database has sent a byte since the batch began
	replayed         bool   // the batch was sent a second time
	headsBefore      int    // request heads read before the batch
	databaseAnswered bool   // the current database connection has completed a response
}

// run forwards in both directions until both sides have closed.
func (l *httpLink) run(ctx context.Context, s *Server) {
	b := s.buffers.get()
	defer s.buffers.put(b)
	first, isHTTP2, err := l.readFirst(b)
	if err != nil {
		return
	}
	if isHTTP2 {
		l.mu.Lock()
		l.opaque = true
		l.mu.Unlock()
		s.handover.serve(l.client, first)
		return
	}
	_, _ = l.trackRequests(first)
	database, err := s.dial(ctx)
	if err != nil {
		s.unreachable(err)
		l.answerWithoutDatabase(s, b)
		return
	}
	if !l.attach(ctx, database) {
		return
	}
	if _, err := database.Write(first); err != nil {
		_ = database.Close() // download reports the failure
	}
	var up sync.WaitGroup
	up.Go(func() { l.upload(ctx, s, b) })
	for database != nil {
		database = l.download(ctx, s, database)
	}
	up.Wait()
}

// readFirst reads the first bytes of a connection, enough to tell HTTP/2 from HTTP/1.1.
func (l *httpLink) readFirst(b []byte) (first []byte, isHTTP2 bool, err error) {
	_ = l.client.SetReadDeadline(time.Now().Add(firstRequestTimeout))
	defer func() { _ = l.client.SetReadDeadline(time.Time{}) }()
	for n := 0; ; {
		read, err := l.client.Read(b[n:])
		n += read
		common := min(n, len(preface))
		switch {
		case string(b[:common]) != preface[:common], err != nil && n > 0: // the next Read returns the error again
			return b[:n], false, nil
		case err != nil:
			return nil, false, err
		case common == len(preface):
			return b[:n], true, nil
		}
	}
}

// upload forwards the client's bytes until the client closes or the link is over. It then
// reads and discards the rest: a client cut off while it sends would lose its response.
func (l *httpLink) upload(ctx context.Context, s *Server, b []byte) {
	for more := !l.hasEnded(); more; {
		n, err := l.client.Read(b)
		if n > 0 {
			more = l.forward(ctx, s, b[:n])
		}
		if err != nil {
			l.clientEnded(err)
			return
		}
	}
	if l.hasEnded() {
		l.closeGently(closeTimeout)
	}
	l.discardRequests(b)
}

// forward sends the client's bytes to the database, over a new connection if the last one
// was closed. It reports whether upload should read more.
func (l *httpLink) forward(ctx context.Context, s *Server, b []byte) (more bool) {
	l.uploadMu.Lock()
	defer l.uploadMu.Unlock()
	n, last := l.trackRequests(b)
	database := l.currentDatabase()
	if database == nil { // it closed while no request was in flight
		if n == 0 {
			return false
		}
		var err error
		if database, err = s.dial(ctx); err != nil {
			s.unreachable(err)
			l.answerUnreachable(s)
			close(l.nextDatabase)
			return false
		}
		if !l.attach(ctx, database) {
			close(l.nextDatabase)
			return false
		}
		l.nextDatabase <- database
	}
	if _, err := database.Write(b[:n]); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.canReplay() {
			return false
		}
		_ = database.Close() // download notices, and replays the batch
	}
	return !last
}

// currentDatabase returns the database's connection, or nil if it has closed.
func (l *httpLink) currentDatabase() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.database
}

// hasEnded reports whether the link can close now.
func (l *httpLink) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over()
}

// discardRequests reads and drops the client's bytes until it closes.
func (l *httpLink) discardRequests(b []byte) {
	for {
		if _, err := l.client.Read(b); err != nil {
			return
		}
	}
}

// trackRequests parses the client's bytes. It returns how many of them to forward, and
// whether they are the last to forward.
func (l *httpLink) trackRequests(b []byte) (n int, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requestsBegun == l.responsesEnded && l.requests.state == betweenMessages { // not responsesDelivered: a client may send as soon as it reads a response
		l.replayBuffer, l.replayComplete, l.responseStarted, l.replayed, l.headsBefore = l.replayBuffer[:0], true, false, false, l.requests.headsRead
	}
	defer func() { l.recordReplay(b[:n]) }()
	for at := 0; at < len(b) && !l.opaque; {
		n, e := l.requests.next(b[at:])
		at += n
		switch e {
		case messageBegins:
			if l.closeSent { // the database's last response was announced
				l.requests.state = betweenMessages
				return at, true
			}
			l.requestsBegun++
		case startLineEnded:
			l.pendingMethods = append(l.pendingMethods, l.requests.method)
		case notHTTP:
			l.opaque = true
		case noEvent, messageEnded:
		}
	}
	return len(b), l.over()
}

// clientEnded handles the end of the client's bytes: a half-close is passed on to the
// database, another error cuts the link.
func (l *httpLink) clientEnded(err error) {
	l.uploadMu.Lock()
	defer l.uploadMu.Unlock()
	l.mu.Lock()
	l.clientClosed = true
	database := l.database
	l.mu.Unlock()
	if errors.Is(err, io.EOF) && database != nil {
		closeWrite(database) // it can still send responses, and closes after them
		return
	}
	l.cut()
}

// download forwards the database's bytes until the database closes, or until a drained
// link has no request in flight. It returns the database's next connection, or nil if the
// link does not continue.
func (l *httpLink) download(ctx context.Context, s *Server, database net.Conn) net.Conn {
	b := s.buffers.get()
	defer s.buffers.put(b)
	for {
		n, err := database.Read(b)
		if n > 0 {
			switch over, err := l.deliver(b[:n]); {
			case err != nil:
				l.cut()
				return nil
			case over:
				l.closeGently(closeTimeout)
				return nil
			}
		}
		if err != nil {
			return l.databaseEnded(ctx, s, database, err)
		}
	}
}

// deliver writes the database's bytes to the client, and adds "Connection: close" to the
// last response of a drain. It reports whether the link is over.
func (l *httpLink) deliver(b []byte) (over bool, err error) {
	l.mu.Lock()
	l.responseStarted = true
	at, done := l.trackResponses(b)
	l.responsesEnded += done
	l.databaseAnswered = l.databaseAnswered || done > 0
	l.mu.Unlock()
	if at >= 0 {
		b = slices.Concat(b[:at], []byte(closeHeader), b[at:])
	}
	if _, err := l.client.Write(b); err != nil || done == 0 {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.responsesDelivered += done
	return l.over(), nil
}

// trackResponses parses the database's bytes. It returns the offset in b at which to insert
// "Connection: close" (-1: do not), and how many final responses end in b. The caller
// holds mu.
func (l *httpLink) trackResponses(b []byte) (last int, done uint64) {
	last = -1
	for at := 0; at < len(b) && !l.opaque; {
		n, e := l.answers.next(b[at:])
		at += n
		switch e {
		case startLineEnded:
			if l.matchRequest() && l.leaving && l.responsesBegun == l.requestsBegun {
				last, l.closeSent = at, true
			}
		case messageEnded:
			if l.answers.status >= 200 {
				done++
			}
		case notHTTP:
			l.opaque = true
		case noEvent, messageBegins:
		}
	}
	return last, done
}

// matchRequest pairs a response that has begun with its request. It reports false for an
// interim response, and where the bytes after it cannot be parsed. The caller holds mu.
func (l *httpLink) matchRequest() bool {
	status := l.answers.status
	if status < 200 {
		l.opaque = status == 101 // an upgrade
		return false
	}
	if len(l.pendingMethods) == 0 {
		l.opaque = true // a response without a complete request: the database usually closes next
		return false
	}
	l.responsesBegun++
	asked := l.pendingMethods[0]
	l.pendingMethods = slices.Delete(l.pendingMethods, 0, 1)
	l.answers.noBody = l.answers.noBody || asked == head
	l.opaque = asked == connect && status < 300
	return !l.opaque
}

// idle reports whether no request or response is in flight. The caller holds mu.
func (l *httpLink) idle() bool {
	return !l.opaque && l.requestsBegun == l.responsesDelivered && l.requests.state == betweenMessages
}

// over reports whether a drained link can close. The caller holds mu.
func (l *httpLink) over() bool { return l.leaving && l.idle() }

// closeGently closes the database's connection and half-closes the client's, which then
// has the given time to close.
func (l *httpLink) closeGently(within time.Duration) {
	closeWrite(l.client)
	_ = l.client.SetReadDeadline(time.Now().Add(within))
	if database := l.currentDatabase(); database != nil {
		_ = database.Close()
	}
}

// answerWithoutDatabase answers a client's first request when the database cannot be
// reached.
func (l *httpLink) answerWithoutDatabase(s *Server, b []byte) {
	_ = l.client.SetReadDeadline(time.Now().Add(firstRequestTimeout))
	for {
		l.mu.Lock()
		opaque, whole := l.opaque, l.requests.headsRead > 0
		l.mu.Unlock()
		if opaque {
			l.refuse()
			return
		}
		if whole {
			break
		}
		n, err := l.client.Read(b)
		if _, _ = l.trackRequests(b[:n]); err != nil {
			return
		}
	}
	l.answerUnreachable(s)
	l.discardRequests(b)
}

// answerUnreachable sends a 502 response and half-closes the client's connection.
func (l *httpLink) answerUnreachable(s *Server) {
	body := rest.Unreachable(s.options.Upstream)
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", len(body), closeHeader)
	l.mu.Lock()
	if len(l.pendingMethods) == 0 || l.pendingMethods[0] != head {
		b.Write(body)
	}
	l.mu.Unlock()
	_, _ = l.client.Write(b.Bytes())
	closeWrite(l.client)
	_ = l.client.SetReadDeadline(time.Now().Add(lastBytesTimeout))
}

// leave closes the link as soon as no request is in flight.
func (l *httpLink) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	if l.idle() {
		l.drop()
	}
}
