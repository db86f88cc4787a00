package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/likenessdb/likeness/sidecar/proxy/relay"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// serveHTTP runs a relay of REST until the test ends.
func serveHTTP(t testing.TB, upstream string) (s *relay.Server, address string) {
	t.Helper()
	calls, err := rest.NewServer(rest.Options{Upstream: "http://" + upstream})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	s = relay.NewHTTPServer(calls, nil)
	run(t, s, l)
	return s, l.Addr().String()
}

// talk is a connection of a client, and the one that the database got for it.
type talk struct {
	t                testing.TB
	server           *relay.Server
	address          string
	client, database *net.TCPConn
	listener         net.Listener // the database's
}

// dialHTTP has a client begin to speak to a database through a relay.
func dialHTTP(t testing.TB, first string) *talk {
	t.Helper()
	database := listen(t)
	s, address := serveHTTP(t, database.Addr().String())
	client := dialTCP(t, address)
	k := &talk{t: t, server: s, address: address, client: client, listener: database}
	k.send(client, first)
	k.accept(first)
	return k
}

// accept has the database get another connection, on which this is said first.
func (k *talk) accept(first string) {
	k.t.Helper()
	upstream, err := k.listener.Accept()
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = upstream.Close() })
	k.database = upstream.(*net.TCPConn)
	k.expect(k.database, first)
}

func dialTCP(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func (k *talk) send(to io.Writer, s string) {
	k.t.Helper()
	if _, err := io.WriteString(to, s); err != nil {
		k.t.Fatal(err)
	}
}

// expect reads exactly this.
func (k *talk) expect(from io.Reader, want string) {
	k.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(from, got); err != nil || string(got) != want {
		k.t.Fatalf("%.200q came, want %.200q: %v", got[:n], want, err)
	}
}

// ends reads the end, and no more than these words before it.
func (k *talk) ends(from io.Reader, words string) {
	k.t.Helper()
	if got, err := io.ReadAll(from); err != nil || string(got) != words {
		k.t.Fatalf("%.200q came, want %.200q and the end: %v", got, words, err)
	}
}

// drain begins to drain, and returns when every connection knows it. ended is whether
// one had to be cut.
func (k *talk) drain(ctx context.Context) (ended chan bool) {
	k.t.Helper()
	ended = make(chan bool, 1)
	go func() { ended <- k.server.Drain(ctx) }()
	for {
		conn, err := net.Dial("tcp", k.address)
		if err != nil {
			return ended
		}
		_ = conn.Close()
	}
}

// said is what one side says; the other hears it as it is.
type said struct {
	database bool
	words    string
}

func asks(s string) said  { return said{false, s} }
func tells(s string) said { return said{true, s} }

const (
	get    = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	ok     = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	okSoon = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
)

// conversations are such of HTTP/1.1, behind which nothing is owed, and others.
var conversations = []struct {
	name   string
	opaque bool // the relay can't know where a message ends
	lines  []said
}{
	{"several", false, []said{asks(get), tells(ok), asks("POST //\"?0 HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"), tells(ok), asks("\r\n" + get), tells("HTTP/1.0 404 \r\nContent-Length:0\r\n\r\n")}},
	{"chunked, with trailers", false, []said{
		asks("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\nA;x=\"y\"\r\n0123456789\r\n00\r\nX: 1\r\n\r\n"),
		tells("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Y\r\n\r\n1\r\n\n\r\n0\r\nY: 2\r\nZ: 3\r\n\r\n"),
	}},
	{"no body", false, []said{
		asks("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"), tells("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
		asks("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"), tells("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
		asks(get), tells("HTTP/1.1 204 No Content\r\n\r\n"), asks(get), tells("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
		asks("PURGE / HTTP/1.1\r\nHost: h\r\n\r\n"), tells(ok),
	}},
	{"to be continued", false, []said{
		asks("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"), tells("HTTP/1.1 100 Continue\r\n\r\n"),
		asks("abc"), tells("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok),
	}},
	{"pipelined", false, []said{asks(get + "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + get + "\r\n" + get), tells(ok + "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + ok), tells(ok)}},
	{"answered before its end", false, []said{asks("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na"), tells("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"), asks("bc" + get), tells(ok)}},
	{"twice the same length", false, []said{asks("PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length:1\r\n\r\n."), tells(ok)}},
	{"a giant head", false, []said{asks("GET /" + strings.Repeat("x", 2<<20) + " HTTP/1.1\r\nX: " + strings.Repeat("y", 2<<20) + "\r\n\r\n"), tells("HTTP/1.1 200 OK\r\n" + strings.Repeat("Z: z\r\n", 1<<18) + "Content-Length: 0\r\n\r\n")}},
	{"a giant body", false, []said{asks("PUT / HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n" + strings.Repeat("\r\n\r\n", 1<<20)), tells(ok)}},
	{"an upgrade", true, []said{asks("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: e\r\n\r\n"), tells("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: e\r\n\r\n\x00"), asks("\xff" + get), tells("HTTP")}},
	{"a tunnel", true, []said{asks("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"), tells("HTTP/1.1 200 OK\r\n\r\n"), asks("\x16\x03"), tells("\x16")}},
	{"until its end", true, []said{asks(get), tells("HTTP/1.1 200 OK\r\n\r\nabc"), tells(ok)}},
	{"no request", true, []said{asks("\x16\x03\x01 what\r\n"), tells("?")}},
	{"no answer", true, []said{asks(get), tells("HTTP/2 200\r\n"), asks(get)}},
	{"an answer to nobody", true, []said{asks(get), tells(ok + "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")}},
	{"an answer before there is a request", true, []said{asks("GET"), tells("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"), asks(" / HTTP/1.1\r\n\r\n")}},
	{"a line that goes on", true, []said{asks("GET / HTTP/1.1\r\nX: 1\r\n 2\r\n\r\n"), tells(ok)}},
	{"two lengths", true, []said{asks("PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12"), tells(ok)}},
	{"another encoding", true, []said{asks("PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), tells(ok)}},
	{"no chunk", true, []said{asks("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"), tells(ok)}},
	{"a chunk that is longer", true, []said{asks("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"), tells(ok)}},
}

// Every conversation crosses as it is, and the relay knows whether it may end it there.
func TestConversationsCross(t *testing.T) {
	for _, c := range conversations {
		for _, slow := range []bool{false, true} {
			if slow && len(c.lines[0].words) > 1<<20 {
				continue
			}
			t.Run(fmt.Sprintf("%s, slow=%t", c.name, slow), func(t *testing.T) {
				k := hold(t, c.lines, slow)
				ctx, cancel := context.WithCancel(t.Context())
				if c.opaque {
					cancel()
				}
				defer cancel()
				if cut := k.server.Drain(ctx); cut != c.opaque {
					t.Errorf("cut: %t, want %t", cut, c.opaque)
				}
			})
		}
	}
}

// hold has both sides say their lines, as they are or byte by byte.
func hold(t *testing.T, lines []said, slow bool) *talk {
	t.Helper()
	first := lines[0].words
	k := dialHTTP(t, first[:2]) // one may be the beginning of HTTP/2
	lines = append([]said{asks(first[2:])}, lines[1:]...)
	for _, l := range lines {
		from, to := k.client, k.database
		if l.database {
			from, to = to, from
		}
		if !slow {
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				k.send(from, l.words)
			}()
			k.expect(to, l.words)
			<-sent
			continue
		}
		for _, c := range []byte(l.words) {
			k.send(from, string([]byte{c}))
			k.expect(to, string([]byte{c}))
		}
	}
	return k
}

// At the end, a client has what it waits for, and is told to go where that can be said.
func TestDrainHTTP(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []said
		last          string // of the database, as the client hears it
	}{
		"idle":                         {before: []said{asks(get), tells(ok)}},
		"behind a request":             {before: []said{asks(get)}, after: []said{tells(ok)}, last: okSoon},
		"in a request's first line":    {before: []said{asks("GE")}, after: []said{asks("T / HTTP/1.1\r\n\r\n"), tells(ok)}, last: okSoon},
		"in a request's body":          {before: []said{asks("PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\na")}, after: []said{asks("b"), tells(ok)}, last: okSoon},
		"before it goes on":            {before: []said{asks("PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")}, after: []said{tells("HTTP/1.1 100 Continue\r\n\r\n"), asks("ab"), tells(ok)}, last: okSoon},
		"in an answer's first line":    {before: []said{asks(get), tells(ok[:9])}, after: []said{tells(ok[9:])}, last: "200 OK\r\nConnection: close" + ok[15:]},
		"in an answer's head":          {before: []said{asks(get), tells(ok[:20])}, after: []said{tells(ok[20:])}, last: ok[20:]},
		"in an answer's body":          {before: []said{asks(get), tells(ok[:len(ok)-1])}, after: []said{tells("k")}, last: "k"},
		"before an answer without one": {before: []said{asks(get)}, after: []said{tells("HTTP/1.1 204 No Content\r\n\r\n")}, last: "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"},
		"before the second of two":     {before: []said{asks(get + get), tells(ok)}, after: []said{tells(ok)}, last: okSoon},
		"before two":                   {before: []said{asks(get + get)}, after: []said{tells(ok + ok)}, last: ok + okSoon},
		"with more to be sent":         {before: []said{asks("PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\na"), tells(ok)}, after: []said{asks("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			k := hold(t, test.before, false)
			ended := k.drain(t.Context())
			for i, l := range test.after {
				switch {
				case !l.database:
					k.send(k.client, l.words)
					k.expect(k.database, l.words)
				case i < len(test.after)-1:
					k.send(k.database, l.words)
					k.expect(k.client, l.words)
				default:
					k.send(k.database, l.words)
				}
			}
			k.ends(k.client, test.last)
			k.ends(k.database, "")
			_ = k.client.Close()
			if <-ended {
				t.Error("drain had to cut")
			}
		})
	}
}

// A request that comes behind the last answer is not forwarded: nobody would answer it.
func TestDrainHTTPTakesNoMore(t *testing.T) {
	k := dialHTTP(t, get)
	ended := k.drain(t.Context())
	told := strings.Index(okSoon, "ok")
	k.send(k.database, strings.Replace(okSoon[:told], "Connection: close\r\n", "", 1))
	k.expect(k.client, okSoon[:told])
	k.send(k.client, "DELETE /all HTTP/1.1\r\n\r\n")
	for _, c := range okSoon[told:] { // as a rule, the request is there by the end
		k.send(k.database, string(c))
		k.expect(k.client, string(c))
	}
	k.ends(k.client, "")
	k.ends(k.database, "")
	_ = k.client.Close()
	if <-ended {
		t.Error("drain had to cut")
	}
}

// A connection on which nothing was said has nothing to lose.
func TestDrainHTTPThatSaidNothing(t *testing.T) {
	s, address := serveHTTP(t, "127.0.0.1:1")
	k := &talk{t: t, server: s, address: address, client: dialTCP(t, address)}
	if <-k.drain(t.Context()) {
		t.Error("drain had to cut")
	}
	k.ends(k.client, "")
}

func TestDrainHTTPCuts(t *testing.T) {
	k := dialHTTP(t, get)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !k.server.Drain(ctx) {
		t.Error("nothing was cut")
	}
	k.ends(k.client, "")
	k.ends(k.database, "")
}

// The database's end is the client's, behind all that it said.
func TestDatabaseEndsHTTP(t *testing.T) {
	for name, lines := range map[string][]said{
		"bidden to":      {asks("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), tells(ok)},
		"as it said":     {asks(get), tells(okSoon)},
		"as of old":      {asks("GET / HTTP/1.0\r\n\r\n"), tells(ok)},
		"until its end":  {asks(get), tells("HTTP/1.1 200 OK\r\n\r\nabc")},
		"in an answer":   {asks(get), tells(ok[:30])},
		"in a request":   {asks("PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"), tells(ok)},
		"in a head":      {asks("PUT")},
		"in the answers": {asks(get + get), tells(ok)},
		"in an upgrade":  {asks(get), tells("HTTP/1.1 101 Switching Protocols\r\n\r\n"), asks("x")},
		"not understood": {asks("\x00\n")},
	} {
		t.Run(name, func(t *testing.T) {
			k := hold(t, lines, false)
			if err := k.database.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			k.ends(k.client, "")
			_ = k.client.Close()
			k.ends(k.database, "")
		})
	}
}

// An answer without a length that is broken off does not look whole.
func TestDatabaseBreaksOffHTTP(t *testing.T) {
	k := hold(t, []said{asks(get), tells("HTTP/1.1 200 OK\r\n\r\nabc")}, false)
	if err := errors.Join(k.database.SetLinger(0), k.database.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// A client that has ended its side has what it asked for; one that is gone takes the
// database's connection with it.
func TestClientEndsHTTP(t *testing.T) {
	k := dialHTTP(t, get)
	if err := k.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	k.ends(k.database, "")
	k.send(k.database, ok)
	_ = k.database.Close()
	k.ends(k.client, ok)

	k = hold(t, []said{asks(get), tells(ok)}, false)
	_ = k.client.Close()
	k.ends(k.database, "")

	k = dialHTTP(t, get)
	if err := errors.Join(k.client.SetLinger(0), k.client.Close()); err != nil {
		t.Fatal(err)
	}
	k.ends(k.database, "")
}

// Without a database, a client's first request is answered as call by call.
func TestHTTPDatabaseThatIsDown(t *testing.T) {
	body := string(rest.Unreachable("127.0.0.1:1"))
	answer := fmt.Sprintf("HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(body))
	for request, want := range map[string]string{
		get: answer + body, "HEAD" + get[3:]: answer,
		"POST / HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n" + strings.Repeat("x", 8<<20): answer + body,
	} {
		_, address := serveHTTP(t, "127.0.0.1:1")
		k := &talk{t: t, client: dialTCP(t, address)}
		k.send(k.client, request[:5])
		k.send(k.client, request[5:])
		k.ends(k.client, want)
	}
	_, address := serveHTTP(t, "127.0.0.1:1")
	k := &talk{t: t, client: dialTCP(t, address)}
	k.send(k.client, "what\r\n")
	if _, err := k.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// So it is where the database ends before it has said anything.
func TestHTTPDatabaseThatDies(t *testing.T) {
	for name, linger := range map[string]int{"with a word": -1, "without": 0} {
		t.Run(name, func(t *testing.T) {
			k := dialHTTP(t, get)
			if err := errors.Join(k.database.SetLinger(linger), k.database.Close()); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(k.client)
			if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 502 ")) || !bytes.Contains(got, []byte("does not answer")) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// What is sent while the other side sends waits for nobody.
func TestHTTPBothWaysAtOnce(t *testing.T) {
	const size = 16 << 20
	k := dialHTTP(t, fmt.Sprintf("PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n", size))
	k.send(k.database, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
	sent := make(chan error, 2)
	for _, conn := range []*net.TCPConn{k.client, k.database} {
		go func() {
			_, err := conn.Write(make([]byte, size)) // far more than the system keeps: the other side reads first
			sent <- err
		}()
	}
	if _, err := io.CopyN(io.Discard, k.database, size); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(io.LimitReader(iotest.HalfReader(k.client), size)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-sent, <-sent); err != nil {
		t.Error(err)
	}
	_ = k.client.SetDeadline(time.Time{})
}
