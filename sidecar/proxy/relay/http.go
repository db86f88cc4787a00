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
	// firstWords is how long a client may say nothing on a connection that it has
	// opened, and how long its request's head may take where no database hears it.
	firstWords = 30 * time.Second
	// farewell is how long a client may take to close after its last answer at the end.
	farewell = 500 * time.Millisecond
	// preface is how HTTP/2 begins (RFC 9113, section 3.4), as far as no method does.
	preface = "PRI * HTTP/2.0\r\n"
	goodbye = "Connection: close\r\n"
)

// buffers are what connections of REST clients are read with: many are short.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([32 << 10]byte) }}}
}

func (b *buffers) get() []byte { return b.pool.Get().(*[32 << 10]byte)[:] }

func (b *buffers) put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }

// httpLink is a link on which HTTP/1.1 is spoken. It follows the messages only to know
// when the client waits for nothing, which is when the link can end without harm. Where
// they are no HTTP/1.1, or go on as something else, it forwards until one side ends.
//
// Databases end connections that are idle, or after some answers, without saying so
// (Qdrant: after five seconds, and after an error in a request that it has not read).
// A client that is near hears of that before it speaks again; behind a relay it would
// lose its request. So a client whose database has ended keeps its connection: its next
// request goes to another of the database, and so does, once, one that was under way
// while the database ended without a word in answer.
type httpLink struct {
	link

	next chan net.Conn // to download: the database's connection after the one that ended
	up   sync.Mutex    // held while the database is written to, or changed; before mu

	// Under mu.
	requests, answers messages
	methods           []method // of requests whose answer has not begun
	asked             uint64   // requests begun
	answering         uint64   // answers begun
	finished          uint64   // answers that have ended; the client may not have them yet
	answered          uint64   // answers that the client has
	opaque            bool     // the messages are not followed any more
	leaving           bool     // the client is to go elsewhere
	said              bool     // and knows
	silent            bool     // the client has ended its side
	kept              []byte   // what the client said since it was owed nothing; written under up, too
	whole             bool     // kept is all of it
	heard             bool     // the database has said something since
	again             bool     // kept was sent a second time
	heads             int      // of requests, before
	used              bool     // this connection of the database has answered
}

// run forwards both ways until both have ended.
func (l *httpLink) run(ctx context.Context, s *Server) {
	b := s.buffers.get()
	defer s.buffers.put(b)
	first, isHTTP2, err := l.begin(b)
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
	_, _ = l.ask(first)
	database, err := s.dial(ctx)
	if err != nil {
		s.unreachable(err)
		l.answerAlone(s, b)
		return
	}
	if !l.attach(ctx, database) {
		return
	}
	if _, err := database.Write(first); err != nil {
		_ = database.Close() // download says so
	}
	var up sync.WaitGroup
	up.Go(func() { l.upload(ctx, s, b) })
	for database != nil {
		database = l.download(ctx, s, database)
	}
	up.Wait()
}

// begin reads what a connection begins with.
func (l *httpLink) begin(b []byte) (first []byte, isHTTP2 bool, err error) {
	_ = l.client.SetReadDeadline(time.Now().Add(firstWords))
	defer func() { _ = l.client.SetReadDeadline(time.Time{}) }()
	for n := 0; ; {
		read, err := l.client.Read(b[n:])
		n += read
		common := min(n, len(preface))
		switch {
		case string(b[:common]) != preface[:common], err != nil && n > 0: // an error comes again
			return b[:n], false, nil
		case err != nil:
			return nil, false, err
		case common == len(preface):
			return b[:n], true, nil
		}
	}
}

// upload forwards what the client says until it ends. What the database does not take
// is read all the same: a client that is cut while it sends would lose its answer.
func (l *httpLink) upload(ctx context.Context, s *Server, b []byte) {
	for more := !l.ended(); more; {
		n, err := l.client.Read(b)
		if n > 0 {
			more = l.forward(ctx, s, b[:n])
		}
		if err != nil {
			l.hangUp(err)
			return
		}
	}
	if l.ended() {
		l.bid(farewell)
	}
	l.listen(b)
}

// forward sends the database what the client said. It reports whether more of it is
// wanted.
func (l *httpLink) forward(ctx context.Context, s *Server, b []byte) (more bool) {
	l.up.Lock()
	defer l.up.Unlock()
	n, last := l.ask(b)
	database := l.current()
	if database == nil { // it has ended while nothing was owed
		if n == 0 {
			return false
		}
		var err error
		if database, err = s.dial(ctx); err != nil {
			s.unreachable(err)
			l.answerDown(s)
			close(l.next)
			return false
		}
		if !l.attach(ctx, database) {
			close(l.next)
			return false
		}
		l.next <- database
	}
	if _, err := database.Write(b[:n]); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.mayRepeat() {
			return false
		}
		_ = database.Close() // download hears of it, and repeats what is kept
	}
	return !last
}

// current is the database's connection, nil where it has ended.
func (l *httpLink) current() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.database
}

// ended reports whether the link is over.
func (l *httpLink) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over()
}

// listen reads what the client still says, to no purpose.
func (l *httpLink) listen(b []byte) {
	for {
		if _, err := l.client.Read(b); err != nil {
			return
		}
	}
}

// ask follows what the client says. It returns how much of that goes to the database,
// and whether it is the last.
func (l *httpLink) ask(b []byte) (n int, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == l.finished && l.requests.state == atRest { // a client may speak as soon as it reads an answer
		l.kept, l.whole, l.heard, l.again, l.heads = l.kept[:0], true, false, false, l.requests.heads
	}
	defer func() { l.keep(b[:n]) }()
	for at := 0; at < len(b) && !l.opaque; {
		n, e := l.requests.next(b[at:])
		at += n
		switch e {
		case begins:
			if l.said { // nobody would answer it
				l.requests.state = atRest
				return at, true
			}
			l.asked++
		case started:
			l.methods = append(l.methods, l.requests.method)
		case lost:
			l.opaque = true
		case nothing, ended:
		}
	}
	return len(b), l.over()
}

// hangUp tells the database that the client has ended.
func (l *httpLink) hangUp(err error) {
	l.up.Lock()
	defer l.up.Unlock()
	l.mu.Lock()
	l.silent = true
	database := l.database
	l.mu.Unlock()
	if errors.Is(err, io.EOF) && database != nil {
		closeWrite(database) // it may still have to answer, and ends then
		return
	}
	l.cut()
}

// download forwards what the database says until it ends, or nothing is owed any more
// to a client that is to go. It returns the connection that the link goes on with, nil
// where it does not.
func (l *httpLink) download(ctx context.Context, s *Server, database net.Conn) net.Conn {
	b := s.buffers.get()
	defer s.buffers.put(b)
	for {
		n, err := database.Read(b)
		if n > 0 {
			switch over, err := l.say(b[:n]); {
			case err != nil:
				l.cut()
				return nil
			case over:
				l.bid(farewell)
				return nil
			}
		}
		if err != nil {
			return l.lose(ctx, s, database, err)
		}
	}
}

// say hands the client what the database said. It reports whether the link is over with
// it.
func (l *httpLink) say(b []byte) (over bool, err error) {
	l.mu.Lock()
	l.heard = true
	at, done := l.follow(b)
	l.finished += done
	l.used = l.used || done > 0
	l.mu.Unlock()
	if at >= 0 {
		b = slices.Concat(b[:at], []byte(goodbye), b[at:])
	}
	if _, err := l.client.Write(b); err != nil || done == 0 {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered += done
	return l.over(), nil
}

// follow follows what the database says; the caller holds mu. It returns where in b the
// client is to be told that this answer is the last (-1: nowhere), and how many answers
// end in b.
func (l *httpLink) follow(b []byte) (last int, done uint64) {
	last = -1
	for at := 0; at < len(b) && !l.opaque; {
		n, e := l.answers.next(b[at:])
		at += n
		switch e {
		case started:
			if l.begun() && l.leaving && l.answering == l.asked {
				last, l.said = at, true
			}
		case ended:
			if l.answers.status >= 200 {
				done++
			}
		case lost:
			l.opaque = true
		case nothing, begins:
		}
	}
	return last, done
}

// begun finds the request of an answer that has begun; the caller holds mu. It reports
// whether there is one, and this is its answer.
func (l *httpLink) begun() bool {
	status := l.answers.status
	if status < 200 {
		l.opaque = status == 101 // an upgrade
		return false
	}
	if len(l.methods) == 0 {
		l.opaque = true // to no request, or less than one: the database ends then, as a rule
		return false
	}
	l.answering++
	asked := l.methods[0]
	l.methods = slices.Delete(l.methods, 0, 1)
	l.answers.bodyless = l.answers.bodyless || asked == head
	l.opaque = asked == connect && status < 300
	return !l.opaque
}

// idle reports whether nothing is under way and nothing is owed; the caller holds mu.
func (l *httpLink) idle() bool {
	return !l.opaque && l.asked == l.answered && l.requests.state == atRest
}

// over reports whether the link is to end, and can; the caller holds mu.
func (l *httpLink) over() bool { return l.leaving && l.idle() }

// bid ends the database's connection, and the client's when it has read all.
func (l *httpLink) bid(within time.Duration) {
	closeWrite(l.client)
	_ = l.client.SetReadDeadline(time.Now().Add(within))
	if database := l.current(); database != nil {
		_ = database.Close()
	}
}

// answerAlone answers a client's first request where there is no database.
func (l *httpLink) answerAlone(s *Server, b []byte) {
	_ = l.client.SetReadDeadline(time.Now().Add(firstWords))
	for {
		l.mu.Lock()
		opaque, whole := l.opaque, l.requests.heads > 0
		l.mu.Unlock()
		if opaque {
			l.refuse()
			return
		}
		if whole {
			break
		}
		n, err := l.client.Read(b)
		if _, _ = l.ask(b[:n]); err != nil {
			return
		}
	}
	l.answerDown(s)
	l.listen(b)
}

// answerDown says that the database does not answer, and ends the client's connection
// when it has read that.
func (l *httpLink) answerDown(s *Server) {
	body := rest.Unreachable(s.options.Upstream)
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", len(body), goodbye)
	l.mu.Lock()
	if len(l.methods) == 0 || l.methods[0] != head {
		b.Write(body)
	}
	l.mu.Unlock()
	_, _ = l.client.Write(b.Bytes())
	closeWrite(l.client)
	_ = l.client.SetReadDeadline(time.Now().Add(lastWords))
}

// leave lets the link end as soon as nothing is under way on it.
func (l *httpLink) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	if l.idle() {
		l.drop()
	}
}
