package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
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
