package rest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// wire is a connection that records writes, and reads from unread.
type wire struct {
	net.Conn
	written bytes.Buffer
	unread  strings.Reader
	closed  bool
	until   time.Time // the deadline of reads
}

func (w *wire) Write(b []byte) (int, error) { return w.written.Write(b) }
func (w *wire) Read(b []byte) (int, error)  { return w.unread.Read(b) }
func (w *wire) Close() error                { w.closed = true; return nil }
func (*wire) RemoteAddr() net.Addr          { return &net.TCPAddr{} }

func (w *wire) SetReadDeadline(at time.Time) error {
	w.until = at
	return nil
}

func newWire(unread string) *wire {
	w := &wire{}
	w.unread.Reset(unread)
	return w
}

func newServer() *Server {
	return &Server{log: slog.New(slog.DiscardHandler), draining: make(chan struct{}), conns: map[*conn]struct{}{}}
}

// TestAnswersOfTheProxy: an answer states the length of its body, and has no body if the request is
// HEAD. A refusal for lack of memory says when to try again.
func TestAnswersOfTheProxy(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		err    error
		has    []string
		body   bool
	}{
		"no room":           {http.MethodPost, gate.ErrFull, []string{"HTTP/1.1 429 ", "Retry-After: 1\r\n", "Connection: close\r\n"}, true},
		"no room, for HEAD": {http.MethodHead, gate.ErrFull, []string{"HTTP/1.1 429 ", "Retry-After: 1\r\n"}, false},
		"too slow":          {http.MethodPut, gate.ErrStalled, []string{"HTTP/1.1 408 ", "Connection: close\r\n"}, true},
	} {
		w := newWire("")
		conn := newConn(newServer(), w, w)
		conn.refuse(&request{requestHead: requestHead{method: c.method}}, c.err)
		head, body, found := strings.Cut(w.written.String(), "\r\n\r\n")
		for _, want := range c.has {
			if !strings.Contains(head+"\r\n", want) {
				t.Errorf("%s: no %q in\n%s", name, want, head)
			}
		}
		if !found || (body != "") != c.body || !strings.Contains(head, "Content-Length: ") || strings.Contains(head, "Content-Length: 0") || !w.closed {
			t.Errorf("%s: closed %t, answered\n%s\n%s", name, w.closed, head, body)
		}
		if strings.Contains(head, "Retry-After") != (c.err == gate.ErrFull) { //nolint:errorlint // it is this one
			t.Errorf("%s: whether to come again is wrong in\n%s", name, head)
		}
	}
}

// TestSilentClients: a client that has asked may be silent for longer than one that connects.
func TestSilentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for first, most := range map[bool]time.Duration{true: headTime, false: clientIdleTime} {
			w := newWire("G")
			if c := newConn(newServer(), w, w); !c.awaitRequest(first) || time.Until(w.until) != most {
				t.Errorf("a client whose first request is awaited (%t) may be silent for %s, want %s", first, time.Until(w.until), most)
			}
		}
	})
}

// TestDrainingConnectionsEnd: a request that has arrived is not answered once the drain has begun.
func TestDrainingConnectionsEnd(t *testing.T) {
	s := newServer()
	w := newWire("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
	c := newConn(s, w, w)
	if !c.awaitRequest(true) {
		t.Fatal("the first request is not awaited")
	}
	if close(s.draining); c.awaitRequest(false) || c.in.Buffered() == 0 {
		t.Errorf("a draining server goes on with the %d bytes that are here", c.in.Buffered())
	}
	c.isInMemory = true // its client has announced the drain, and sends what it had accepted before
	if !c.awaitRequest(false) {
		t.Error("a draining server does not answer a stream that HTTP/2 has accepted")
	}
}

// TestARequestWhoseClientLeft: a request that was written, perhaps, to a connection that then ended with its client
// is not sent again, and does not count as one that the database never got.
func TestARequestWhoseClientLeft(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	d := newDatabase(&url.URL{Scheme: "http", Host: listener.Addr().String()}, nil, nil)
	defer d.close()
	used, err := d.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.giveBack(used)
	ctx, leave := context.WithCancel(t.Context())
	tried := 0
	_, err = d.send(ctx, []byte("POST / HTTP/1.1\r\n\r\n"), nil, func(*databaseConn) { tried++; leave() })
	if unsent := (unsentError{}); err == nil || errors.As(err, &unsent) || tried != 1 {
		t.Errorf("sent %d times, error %v", tried, err)
	}
}

// TestAnUnansweredRequestIsLogged: unless its client has left, which is why it has no answer.
func TestAnUnansweredRequestIsLogged(t *testing.T) {
	for _, left := range []bool{false, true} {
		var log strings.Builder
		s := newServer()
		s.log, s.database = slog.New(slog.NewTextHandler(&log, nil)), newDatabase(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		if left {
			cancel()
		}
		a := s.ask(ctx, &requestHead{method: http.MethodGet}, "/a", nil, nil)
		if cancel(); a.Status != http.StatusBadGateway || (log.Len() == 0) != left {
			t.Errorf("the client left %t: status %d, logged %q", left, a.Status, log.String())
		}
	}
}

// TestConnectionsToTheDatabase: they use the operator's server name for TLS, and connections that
// come back after the end are closed.
func TestConnectionsToTheDatabase(t *testing.T) {
	upstream, err := url.Parse("https://db.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		secure *tls.Config
		want   string
	}{{nil, "db.example"}, {&tls.Config{}, "db.example"}, {&tls.Config{ServerName: "other.example"}, "other.example"}} {
		d := newDatabase(upstream, c.secure, nil)
		if d.secure.ServerName != c.want || d.address != "db.example:443" || c.secure != nil && c.secure.NextProtos != nil {
			t.Errorf("%+v: the database at %s is called %q, want %q", c.secure, d.address, d.secure.ServerName, c.want)
		}
	}
	d := newDatabase(upstream, nil, nil)
	early, late := newWire(""), newWire("")
	d.giveBack(&databaseConn{Conn: early})
	if early.closed || len(d.idle) != 1 {
		t.Error("a connection is not kept for the next request")
	}
	d.close()
	if d.giveBack(&databaseConn{Conn: late}); !early.closed || !late.closed || len(d.idle) != 0 {
		t.Errorf("after the end %d connections are kept; closed %t and %t", len(d.idle), early.closed, late.closed)
	}
}

// TestWritesOutliveTheirClient: for a second, if their outcome must be known.
func TestWritesOutliveTheirClient(t *testing.T) {
	ended := func(Ending) {}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			reply    Reply
			outlives bool
		}{{Reply{}, false}, {Reply{Outlives: true}, false}, {Reply{Ended: ended}, false}, {Reply{Ended: ended, Outlives: true}, true}} {
			client, leave := context.WithCancel(t.Context())
			ctx, cancel := c.reply.requestContext(client)
			leave()
			synctest.Wait()
			if goesOn := ctx.Err() == nil; goesOn != c.outlives {
				t.Errorf("%+v: the request goes on after its client left: %t", c.reply, goesOn)
			}
			<-time.After(2 * time.Second) // of the test's clock
			if ctx.Err() == nil {
				t.Errorf("%+v: the request never ends", c.reply)
			}
			cancel()
		}
	})
}

// exchange returns a connection on which a client has sent a request, the request on its way to a database, and
// the database's connection, which holds its answer.
func exchange(t *testing.T, request, answer string) (c *conn, client *wire, p *passing, db *databaseConn) {
	t.Helper()
	s := newServer()
	s.database, s.maxBody = newDatabase(&url.URL{Scheme: "http", Host: "db.example"}, nil, nil), 1<<20
	client = newWire(request)
	c = newConn(s, client, client)
	r, err := c.readRequest()
	if err != nil {
		t.Fatal(err)
	}
	r.ctx, r.cancel = context.WithCancelCause(t.Context())
	r.received.Store(true)
	c.readerEnded <- struct{}{} // nobody reads from the client any more
	w := newWire(answer)
	return c, client, &passing{request: r}, &databaseConn{Conn: w, in: bufio.NewReader(w), stopEnding: func() bool { return true }}
}

// TestEmptyLinesAreNoHead: a client that sends them and no request does not keep its connection for ever.
func TestEmptyLinesAreNoHead(t *testing.T) {
	for unread, isHere := range map[string]bool{"\r\n\r\n": false, "\n\r\n\r\nGET / HTTP/1.1\r\n": false, "\r\nGET / HTTP/1.1\r\n\r\n": true} {
		client := newWire(unread)
		c := newConn(newServer(), client, client)
		_, _ = c.in.Peek(len(unread))
		if got := c.headIsHere(); got != isHere {
			t.Errorf("%q: a head is here: %t, want %t", unread, got, isHere)
		}
	}
}

// TestConnectionsThatServeAgain: a connection to the database serves another request only if the whole request and
// the whole answer have crossed it, and both sides keep it open.
func TestConnectionsThatServeAgain(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		request, answer string
		change          func(*passing)
		again           bool
	}{
		"both are whole":             {"GET / HTTP/1.1", whole, func(*passing) {}, true},
		"the request is not":         {"GET / HTTP/1.1", whole, func(p *passing) { p.isWhole = false }, false},
		"the answer is not":          {"GET / HTTP/1.1", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", func(*passing) {}, false},
		"the answer has no length":   {"GET / HTTP/1.1", "HTTP/1.1 200 OK\r\n\r\nok", func(*passing) {}, false},
		"the database closes it":     {"GET / HTTP/1.1", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", func(*passing) {}, false},
		"the client is of old":       {"GET / HTTP/1.0", whole, func(*passing) {}, false},
		"the client asked to change": {"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x", whole, func(*passing) {}, false},
	} {
		conn, client, p, db := exchange(t, c.request+"\r\n\r\n", c.answer)
		c.change(p)
		if _, err := conn.answer(p, db); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := len(conn.server.database.idle) == 1; again != c.again || again == db.Conn.(*wire).closed {
			t.Errorf("%s: serves again %t, closed %t; want %t", name, again, db.Conn.(*wire).closed, c.again)
		}
		if !strings.HasSuffix(client.written.String(), "ok") {
			t.Errorf("%s: the client got %q", name, client.written.String())
		}
	}
}

// TestInterimAnswers: they go to clients that know of them.
func TestInterimAnswers(t *testing.T) {
	for version, passed := range map[string]bool{"HTTP/1.1": true, "HTTP/1.0": false} {
		c, client, p, db := exchange(t, "GET / "+version+"\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if _, err := c.answer(p, db); err != nil {
			t.Error(err)
		}
		if got := client.written.String(); strings.Contains(got, " 103 ") != passed || !strings.Contains(got, " 200 ") {
			t.Errorf("a client of %s got %q", version, got)
		}
	}
}

// TestEndings: an interceptor is told once how a request ended: with the status of an answer, with an error as soon
// as enough of it has arrived, or that the database did not get the request.
func TestEndings(t *testing.T) {
	of := func(do func(*conn, *passing)) (all []Ending) {
		c, _, p, _ := exchange(t, "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nok", "")
		p.reply.Ended = func(e Ending) { all = append(all, e) }
		do(c, p)
		return all
	}
	full := bytes.Repeat([]byte("x"), maxProblem)
	unfollowed := &passing{status: 400}
	if unfollowed.note(full, true); unfollowed.problem != nil {
		t.Error("an error is kept although nobody waits for its end")
	}
	for name, c := range map[string]struct {
		do   func(*conn, *passing)
		want *Ending
	}{
		"an answer":                  {func(_ *conn, p *passing) { p.answered(&answerHead{status: 200}) }, &Ending{Status: 200}},
		"the head of an error":       {func(_ *conn, p *passing) { p.answered(&answerHead{status: 400}) }, nil},
		"a piece of an error":        {func(_ *conn, p *passing) { p.status = 400; p.note(full[1:], false) }, nil},
		"enough of an error":         {func(_ *conn, p *passing) { p.status = 400; p.note(full, false) }, &Ending{Status: 400, Problem: full}},
		"a whole error":              {func(_ *conn, p *passing) { p.status = 400; p.note(full[:3], true) }, &Ending{Status: 400, Problem: full[:3]}},
		"a database that is down":    {func(c *conn, p *passing) { c.unanswered(p, unsentError{io.EOF}) }, &Ending{Unsent: true}},
		"a database that breaks off": {func(c *conn, p *passing) { c.unanswered(p, io.EOF) }, &Ending{}},
		"half a request":             {func(c *conn, p *passing) { p.uploadErr = io.EOF; c.unanswered(p, io.EOF) }, &Ending{Unsent: true}},
	} {
		got := of(c.do)
		if c.want == nil && len(got) > 0 || c.want != nil && (len(got) != 1 || !reflect.DeepEqual(got[0], *c.want)) {
			t.Errorf("%s: told %+v, want %+v", name, got, c.want)
		}
	}
}

// TestACutAnswerIsCut: an answer that the database broke off, or that its client no longer awaits, is not sent as
// if it were whole.
func TestACutAnswerIsCut(t *testing.T) {
	for _, cut := range []bool{false, true} {
		c, client, p, _ := exchange(t, "GET / HTTP/1.1\r\n\r\n", "")
		goesOn := c.reply(p.request, Reply{Answer: &Answer{Status: 200, Header: http.Header{}, Body: []byte("half"), Cut: cut}})
		if goesOn == cut || client.closed != cut || (client.written.Len() == 0) != cut {
			t.Errorf("cut %t: goes on %t, closed %t, sent %q", cut, goesOn, client.closed, client.written.String())
		}
	}
	c, client, p, _ := exchange(t, "GET / HTTP/1.1\r\n\r\n", "")
	p.cancel(io.EOF)
	if c.reply(p.request, Reply{Answer: &Answer{Status: 200, Header: http.Header{}}}) || !client.closed || client.written.Len() > 0 {
		t.Errorf("a client that left is sent %q", client.written.String())
	}
}

// TestAReceivedBodyHoldsItsBytes: a body of unknown length holds, once it is here, no more of the budget than it has.
func TestAReceivedBodyHoldsItsBytes(t *testing.T) {
	const length = gate.BodyWindowBytes + 1 // one byte more than the gate sees before it lets a body come
	c, _, p, _ := exchange(t, fmt.Sprintf("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", length, strings.Repeat("x", length)), "")
	c.server.gate = gate.New(gate.Options{ReceivedBytes: 8 << 20})
	grant, err := c.receive(p.request)
	if err != nil || len(p.whole) != length || !p.isWhole || c.server.gate.ReceivedBytes() != length {
		t.Errorf("%v: a body of %d bytes holds %d", err, len(p.whole), c.server.gate.ReceivedBytes())
	}
	if grant.Release(); c.server.gate.ReceivedBytes() != 0 {
		t.Errorf("after the request %d bytes are held", c.server.gate.ReceivedBytes())
	}
}

// TestOneStatus: an answer has the proxy's status, or the one that it came with, and not both.
func TestOneStatus(t *testing.T) {
	a, err := parseAnswer([]byte("HTTP/1.1 200 OK\r\nLikeness-Status: theirs\r\nX: y\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]string{"": "Likeness-Status: theirs\r\nX: y\r\n", "ours": "X: y\r\nLikeness-Status: ours\r\n"} {
		if got := string(a.appendTo(nil, status, false)); got != "HTTP/1.1 200 OK\r\n"+want+"\r\n" {
			t.Errorf("with status %q the head is %q", status, got)
		}
	}
}

// TestOwnRequestsAreNotCompressed: a request that the proxy writes itself asks for an answer that the proxy can read,
// whatever the client accepts.
func TestOwnRequestsAreNotCompressed(t *testing.T) {
	r, err := parseRequest([]byte("GET /a HTTP/1.1\r\nAccept-Encoding: br\r\nX: y\r\naccept-encoding: gzip\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	for identity, want := range map[bool]string{
		false: "GET /a HTTP/1.1\r\nHost: db\r\nAccept-Encoding: br\r\nX: y\r\naccept-encoding: gzip\r\n\r\n",
		true:  "GET /a HTTP/1.1\r\nHost: db\r\nX: y\r\nAccept-Encoding: identity\r\n\r\n",
	} {
		if got := string(r.appendTo(nil, asked{host: "db", identity: identity, length: unknownLength})); got != want {
			t.Errorf("identity %t: %q, want %q", identity, got, want)
		}
	}
}

// TestConnectionsOfOwnRequests: a connection is kept after an answer that was read to its end, unless the database
// closes it or sent more.
func TestConnectionsOfOwnRequests(t *testing.T) {
	for answer, kept := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":                      true,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok": false,
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok":                      false,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP":                  false,
	} {
		d, w := newDatabase(&url.URL{Scheme: "http", Host: "db.example"}, nil, nil), newWire(answer)
		d.giveBack(&databaseConn{Conn: w, in: bufio.NewReader(w)})
		a, err := d.ask(t.Context(), http.MethodGet, []byte("GET / HTTP/1.1\r\n\r\n"), nil)
		if err != nil || string(a.Body) != "ok" || (len(d.idle) == 1) != kept || w.closed == kept {
			t.Errorf("%q: %+v, %d connections are kept, closed %t; %v", answer, a, len(d.idle), w.closed, err)
		}
		d.close()
	}
}
