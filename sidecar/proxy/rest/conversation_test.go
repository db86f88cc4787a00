package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// patience limits the wait for bytes that must arrive.
const patience = 20 * time.Second

// talk is a client's connection to a proxy, together with the database's side.
type talk struct {
	t        testing.TB
	server   *rest.Server
	address  string
	client   *net.TCPConn
	listener net.Listener // the database's
	database *net.TCPConn // the last connection that the database accepted
}

// newTalk connects a client to a proxy whose database is played by the test.
func newTalk(t testing.TB, o rest.Options) *talk {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	o.Upstream = "http://" + listener.Addr().String()
	k := &talk{t: t, listener: listener}
	k.server, k.address = serve(t, o)
	k.client = dialTCP(t, k.address)
	return k
}

func dialTCP(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// accept accepts a connection as the database.
func (k *talk) accept() {
	k.t.Helper()
	conn, err := k.listener.Accept()
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	k.database = conn.(*net.TCPConn)
}

func (k *talk) send(to io.Writer, s string) {
	k.t.Helper()
	if _, err := io.WriteString(to, s); err != nil {
		k.t.Fatal(err)
	}
}

// expect reads exactly want.
func (k *talk) expect(from io.Reader, want string) {
	k.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(from, got); err != nil || string(got) != want {
		k.t.Fatalf("%.300q came, want %.300q: %v", got[:n], want, err)
	}
}

// expectEnd reads want and then the end of the connection.
func (k *talk) expectEnd(from io.Reader, want string) {
	k.t.Helper()
	if got, err := io.ReadAll(from); err != nil || string(got) != want {
		k.t.Fatalf("%.300q came, want %.300q and the end: %v", got, want, err)
	}
}

// asDatabase returns a request as the database gets it: its Host is the database's, and comes
// first.
func (k *talk) asDatabase(request string) string {
	line, rest, _ := strings.Cut(request, "\r\n")
	return line + "\r\nHost: " + k.listener.Addr().String() + "\r\n" + strings.Replace(rest, "Host: h\r\n", "", 1)
}

// drain starts a drain and returns when every connection knows of it. ended receives whether a
// connection had to be cut.
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

const (
	get      = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	put      = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
	ok       = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	okLast   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	noAnswer = "HTTP/1.1 502 Bad Gateway\r\n"
)

// TestConversations: requests reach the database and answers the client, on connections that stay
// open.
func TestConversations(t *testing.T) {
	type step struct {
		request, atDatabase string // atDatabase empty: as the client sent it
		answer, atClient    string // atClient empty: as the database sent it
	}
	for name, steps := range map[string][]step{
		"several":                    {{request: get, answer: ok}, {request: put + "{}", answer: ok}, {request: "\r\n" + get, atDatabase: get, answer: "HTTP/1.1 404 \r\nX:  y\r\nContent-Length:0\r\n\r\n"}},
		"lines that end in LF":       {{request: "GET / HTTP/1.1\nHost: h\nX: y\n\n", atDatabase: "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n", answer: "HTTP/1.1 200 OK\nContent-Length: 1\n\n.", atClient: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n."}},
		"without a body":             {{request: "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"}, {request: "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}, {request: get, answer: "HTTP/1.1 204 No Content\r\n\r\n"}, {request: get, answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"}, {request: get, answer: ok}},
		"interim answers":            {{request: get, answer: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok}},
		"chunks of the client's":     {{request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\nA;x=\"y\"\r\n0123456789\r\n00\r\nX: 1\r\n\r\n", atDatabase: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\na\r\n0123456789\r\n0\r\nX: 1\r\n\r\n", answer: ok}},
		"chunks of the database's":   {{request: get, answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\n\r\n\r\n0\r\nY: 2\r\nZ: 3\r\n\r\n", atClient: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\r\n\r\n0\r\nY: 2\r\nZ: 3\r\n\r\n"}, {request: get, answer: ok}},
		"lines of one connection":    {{request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nX: 1\r\n\r\n", atDatabase: "GET / HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n", answer: "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nContent-Length: 0\r\n\r\n", atClient: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}},
		"a database that closes":     {{request: get, answer: okLast, atClient: ok}, {request: put + "{}", answer: ok}},
		"the same length twice":      {{request: "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length:2\r\n\r\n{}", atDatabase: put + "{}", answer: ok}},
		"a target with a fragment":   {{request: "GET /a?b#c?d HTTP/1.1\r\nHost: h\r\n\r\n", atDatabase: "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n", answer: ok}},
		"a long head":                {{request: "GET /" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("y", 100<<10) + "\r\n\r\n", answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("Z: z\r\n", 500) + "Content-Length: 0\r\n\r\n"}},
		"long bodies":                {{request: "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4194304\r\n\r\n" + strings.Repeat("\r\n\r\n", 1<<20), answer: "HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n" + strings.Repeat("\n\n\n\n", 1<<20)}, {request: get, answer: ok}},
		"a header of an older proxy": {{request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: a\r\nForwarded: b\r\n\r\n", answer: ok}},
	} {
		for _, piece := range []int{1, 1 << 30} {
			if piece == 1 && strings.Contains(name, "long") {
				continue
			}
			t.Run(fmt.Sprintf("%s, pieces of %d", name, piece), func(t *testing.T) {
				k := newTalk(t, rest.Options{})
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					for i, s := range steps {
						if i == 0 || strings.Contains(steps[i-1].answer, "close") || len(steps[i-1].request) > 1<<20 { // which was streamed
							k.accept()
						}
						want := s.request
						if s.atDatabase != "" {
							want = s.atDatabase
						}
						k.expect(k.database, k.asDatabase(want))
						sendPieces(k.database, s.answer, piece)
					}
				}()
				for _, s := range steps {
					go sendPieces(k.client, s.request, piece)
					want := s.answer
					if s.atClient != "" {
						want = s.atClient
					}
					k.expect(k.client, want)
				}
				<-answered
			})
		}
	}
}

func sendPieces(to io.Writer, s string, piece int) {
	for s != "" {
		n := min(piece, len(s))
		if _, err := io.WriteString(to, s[:n]); err != nil {
			return
		}
		s = s[n:]
	}
}

// TestMalformedRequests: a request whose end is ambiguous is refused, and the bytes after it are
// not read as another request.
func TestMalformedRequests(t *testing.T) {
	for request, status := range map[string]int{
		"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n":                            400,
		"PUT / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n":                                              400,
		"PUT / HTTP/1.1\r\nContent-Length: +1\r\n\r\n":                                                400,
		"PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n":                                                400,
		"PUT / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n":                              400,
		"PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n":                   400,
		"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n":                                        400,
		"PUT / HTTP/1.1\r\nContent-Length: 1\r\nConnection: x, content-length\r\n\r\n":                400,
		"PUT / HTTP/1.1\r\nConnection: Transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n":       400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n":                                  501,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n":          501,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n":                                    400,
		"GET / HTTP/1.1\r\nX: 1\r\n 2\r\n\r\n":                                                        400,
		"GET / HTTP/1.1\r\nContent-Length : 2\r\n\r\n":                                                400,
		"GET / HTTP/1.1\r\nX\r\n\r\n":                                                                 400,
		"GET / HTTP/1.1\r\n: x\r\n\r\n":                                                               400,
		"GET / HTTP/1.1\r\nX: a\rContent-Length: 2\r\n\r\n":                                           400,
		"GET / HTTP/1.1\r\nX: \x00\r\n\r\n":                                                           400,
		"GET  / HTTP/1.1\r\n\r\n":                                                                     400,
		"GET / x HTTP/1.1\r\n\r\n":                                                                    505,
		"GET /\x7f HTTP/1.1\r\n\r\n":                                                                  400,
		"G(T / HTTP/1.1\r\n\r\n":                                                                      400,
		"\x16\x03\x01 what\r\n\r\n":                                                                   400,
		"GET / HTTP/2.0\r\n\r\n":                                                                      505,
		"GET / HTTP/1.1 \r\n\r\n":                                                                     505,
		"CONNECT h:1 HTTP/1.1\r\n\r\n":                                                                405,
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 256<<10) + "\r\n\r\n":                           431,
		"GET / HTTP/1.1\r\n" + strings.Repeat("X: x\r\n", 513) + "\r\n":                               431,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n":                                   400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n":                                  400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\nab\r\n0\r\n\r\n":                      400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n":                    400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n":                   400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : 1\r\n\r\n":                      400,
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
	} {
		for _, isAsked := range []bool{false, true} {
			d := newDatabase(t, func(conn net.Conn) {
				if heard, _ := io.ReadAll(conn); bytes.Contains(heard, []byte("/hidden")) {
					t.Errorf("%q: the database heard %q", request, heard)
				}
			})
			_, address := serve(t, rest.Options{
				Upstream: "http://" + d.address(), Wants: func(string, string) bool { return isAsked },
				Intercept: func(r *http.Request, _ []byte, _ rest.Forward) rest.Reply {
					t.Errorf("%q: the interceptor was asked", request)
					return rest.Reply{}
				},
			})
			got, _, _ := ask(t, address, request+"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n")
			if got != status {
				t.Errorf("%.100q, asked %t: %d, want %d", request, isAsked, got, status)
			}
		}
	}
}

// TestPipelinedRequests are answered in their order.
func TestPipelinedRequests(t *testing.T) {
	k := newTalk(t, rest.Options{})
	k.send(k.client, get+"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"+put+"ab\r\n"+get)
	k.accept()
	for _, s := range [][2]string{{get, ok}, {"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"}, {put + "ab", ok}, {get, ok}} {
		k.expect(k.database, k.asDatabase(s[0]))
		k.send(k.database, s[1])
		k.expect(k.client, s[1])
	}
}

// TestLastAnswers: the client's connection closes after these answers.
func TestLastAnswers(t *testing.T) {
	for name, s := range map[string]struct{ request, atDatabase, answer, atClient string }{
		"asked for":              {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", get, ok, okLast},
		"of the older HTTP":      {"GET / HTTP/1.0\r\nHost: h\r\n\r\n", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", okLast},
		"until the end":          {get, get, "HTTP/1.1 200 OK\r\n\r\nabc", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"},
		"before the body's end":  {put + "a", "", "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		"another protocol is no": {"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: e\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: e\r\n\r\n", ok, okLast},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t, rest.Options{})
			request := s.request
			if s.atDatabase == "" { // a body that is streamed
				request = strings.Replace(request, "Content-Length: 2\r\n", "Content-Type: multipart/x\r\nContent-Length: 2\r\n", 1)
				s.atDatabase = request
			}
			k.send(k.client, request)
			k.accept()
			k.expect(k.database, k.asDatabase(s.atDatabase))
			k.send(k.database, s.answer)
			_ = k.database.CloseWrite()
			k.expectEnd(k.client, s.atClient)
			_ = k.client.Close()
			k.expectEnd(k.database, "")
		})
	}
}

// TestExpectContinue: the database decides whether the client may send the body, unless an
// interceptor reads it first.
func TestExpectContinue(t *testing.T) {
	const request = "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
	k := newTalk(t, rest.Options{})
	k.send(k.client, request)
	k.accept()
	k.expect(k.database, k.asDatabase(request))
	k.send(k.database, "HTTP/1.1 100 Continue\r\n\r\n")
	k.expect(k.client, "HTTP/1.1 100 Continue\r\n\r\n")
	k.send(k.client, "ab")
	k.expect(k.database, "ab")
	k.send(k.database, ok)
	k.expect(k.client, ok)

	k = newTalk(t, rest.Options{
		Wants:     func(string, string) bool { return true },
		Intercept: func(*http.Request, []byte, rest.Forward) rest.Reply { return rest.Reply{Status: "passed"} },
	})
	k.send(k.client, request)
	k.expect(k.client, "HTTP/1.1 100 Continue\r\n\r\n")
	k.send(k.client, "ab")
	k.accept()
	k.expect(k.database, k.asDatabase(put+"ab"))
	k.send(k.database, ok)
	k.expect(k.client, strings.Replace(ok, "\r\n\r\n", "\r\nLikeness-Status: passed\r\n\r\n", 1))
}

// TestDrain: a client gets its answer, and is told to reconnect.
func TestDrain(t *testing.T) {
	const upload = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/x\r\nContent-Length: 2\r\n\r\na"
	for name, s := range map[string]struct{ before, atDatabase, after, answer, last string }{
		"in a body":                {upload, upload, "b", ok, okLast},
		"behind a request":         {get, get, "", ok, okLast},
		"before the second of two": {get + get, get, "", ok, okLast},
		"before an empty answer":   {get, get, "", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t, rest.Options{})
			k.send(k.client, s.before)
			k.accept()
			k.expect(k.database, k.asDatabase(s.atDatabase))
			ended := k.drain(t.Context())
			k.send(k.client, s.after)
			k.expect(k.database, s.after)
			k.send(k.database, s.answer)
			k.expectEnd(k.client, s.last)
			_ = k.client.Close()
			if <-ended {
				t.Error("drain had to cut")
			}
			k.expectEnd(k.database, "")
		})
	}
}

// TestDrainClosesIdleConnections: no answer is lost with them.
func TestDrainClosesIdleConnections(t *testing.T) {
	k := newTalk(t, rest.Options{})
	silent := dialTCP(t, k.address)
	k.send(k.client, get)
	k.accept()
	k.expect(k.database, k.asDatabase(get))
	k.send(k.database, ok)
	k.expect(k.client, ok)
	if <-k.drain(t.Context()) {
		t.Error("drain had to cut")
	}
	k.expectEnd(k.client, "")
	k.expectEnd(silent, "")
	k.expectEnd(k.database, "")
}

func TestDrainCuts(t *testing.T) {
	k := newTalk(t, rest.Options{})
	k.send(k.client, get)
	k.accept()
	k.expect(k.database, k.asDatabase(get))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !k.server.Drain(ctx) {
		t.Error("nothing was cut")
	}
	_, _ = io.ReadAll(k.client)
	k.expectEnd(k.database, "")
}

// TestDatabaseThatEnds: a broken-off answer does not look complete, and a missing one becomes 502.
func TestDatabaseThatEnds(t *testing.T) {
	for answer, want := range map[string]string{
		"":                     noAnswer,
		"HTTP/1.1 200 OK\r\n":  noAnswer,
		"HTTP/2 200\r\n\r\n":   noAnswer,
		ok[:len(ok)-1]:         ok[:len(ok)-1],
		ok[:len(ok)-2] + "ok.": ok,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": noAnswer,
	} {
		k := newTalk(t, rest.Options{})
		k.send(k.client, get)
		k.accept()
		k.expect(k.database, k.asDatabase(get))
		k.send(k.database, answer)
		_ = k.database.CloseWrite()
		if want != ok {
			got, err := io.ReadAll(k.client)
			if err != nil || !strings.HasPrefix(string(got), want) || want != noAnswer && string(got) != want {
				t.Errorf("%q came as %q, %v", answer, got, err)
			}
			continue
		}
		k.expect(k.client, want) // and no answer that no client asked for
		k.send(k.client, get)
		k.accept()
		k.expect(k.database, k.asDatabase(get))
		k.send(k.database, ok)
		k.expect(k.client, ok)
	}
}

// TestDatabaseThatBreaksOff: an answer without a length that ends with an error is no answer.
func TestDatabaseThatBreaksOff(t *testing.T) {
	k := newTalk(t, rest.Options{})
	k.send(k.client, get)
	k.accept()
	k.expect(k.database, k.asDatabase(get))
	k.send(k.database, "HTTP/1.1 200 OK\r\n\r\nabc")
	k.expect(k.client, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
	if err := errors.Join(k.database.SetLinger(0), k.database.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// TestIdleDatabaseConnectionsThatEnd: a request on a connection that the database has closed is
// sent once more.
func TestIdleDatabaseConnectionsThatEnd(t *testing.T) {
	for name, linger := range map[string]int{"with a word": -1, "without": 0} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t, rest.Options{})
			end := func() {
				t.Helper()
				if err := errors.Join(k.database.SetLinger(linger), k.database.Close()); err != nil {
					t.Fatal(err)
				}
			}
			k.send(k.client, get)
			k.accept()
			k.expect(k.database, k.asDatabase(get))
			k.send(k.database, ok)
			k.expect(k.client, ok)
			end() // before the request
			k.send(k.client, put+"ab")
			k.accept()
			k.expect(k.database, k.asDatabase(put+"ab"))
			k.send(k.database, ok)
			k.expect(k.client, ok)
			k.send(k.client, put+"ab")
			k.expect(k.database, k.asDatabase(put+"ab"))
			end() // after it
			k.accept()
			k.expect(k.database, k.asDatabase(put+"ab"))
			end() // a second time
			got, err := io.ReadAll(k.client)
			if err != nil || !strings.HasPrefix(string(got), noAnswer) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestClientThatEndsItsSide gets its answer, unless an interceptor saw the request.
func TestClientThatEndsItsSide(t *testing.T) {
	k := newTalk(t, rest.Options{})
	k.send(k.client, get)
	if err := k.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	k.accept()
	k.expectEnd(k.database, k.asDatabase(get))
	k.send(k.database, ok)
	_ = k.database.Close()
	k.expectEnd(k.client, ok)
}

// TestUploadThatDoesNotEnd: the database sees that the upload was cut.
func TestUploadThatDoesNotEnd(t *testing.T) {
	for _, head := range []string{
		"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		k := newTalk(t, rest.Options{})
		k.send(k.client, head)
		k.accept()
		k.expect(k.database, k.asDatabase(head))
		_ = k.client.Close()
		k.expectEnd(k.database, "")
	}
}

// TestBothWaysAtOnce: each side can send while the other sends.
func TestBothWaysAtOnce(t *testing.T) {
	const size = 16 << 20
	k := newTalk(t, rest.Options{})
	head := fmt.Sprintf("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
	k.send(k.client, head)
	k.accept()
	k.expect(k.database, k.asDatabase(head))
	sent := make(chan error, 2)
	go func() {
		_, err := k.client.Write(make([]byte, size)) // far more than the system keeps
		sent <- err
	}()
	go func() {
		_, err := fmt.Fprintf(k.database, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, make([]byte, size))
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, k.client, size); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, k.database, size); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-sent, <-sent); err != nil {
		t.Error(err)
	}
}

// TestInterceptor: how requests end that an interceptor has seen.
func TestInterceptor(t *testing.T) {
	gated := gate.New(gate.Options{ReceivedBytes: 1 << 20})
	var asked []string
	var ending rest.Ending
	reply := rest.Reply{}
	k := newTalk(t, rest.Options{
		Gate: gated, Wants: func(method, target string) bool { return method == "PUT" && target == "/a?b" },
		Intercept: func(r *http.Request, body []byte, forward rest.Forward) rest.Reply {
			asked = append(asked, fmt.Sprintf("%s %s %s %d", r.Method, rest.EscapedPath(r), r.Header.Get("X"), len(body)))
			out := reply
			if out.Answer != nil {
				a := forward(r.Context(), "/own", []byte("other"))
				a.Body = append(a.Body, '!')
				out.Answer = &a
			}
			if reply.Outlives {
				out.Ended = func(e rest.Ending) { ending = e }
			}
			return out
		},
	})
	exchange := func(request, atDatabase, answer, atClient string) {
		t.Helper()
		go sendPieces(k.client, request, 1<<30)
		if k.database == nil {
			k.accept()
		}
		k.expect(k.database, k.asDatabase(atDatabase))
		k.send(k.database, answer)
		k.expect(k.client, atClient)
	}
	const ab = "PUT /a?b HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 2\r\n\r\nab"
	exchange(get, get, ok, ok)
	exchange(put+"ab", put+"ab", ok, ok)
	if len(asked) > 0 {
		t.Errorf("asked about %q", asked)
	}
	exchange(ab, ab, ok, ok)
	const chunked = "PUT /a?b HTTP/1.1\r\nHost: h\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
	exchange(chunked, ab, ok, ok)
	reply = rest.Reply{Status: "passed; reason=x"}
	exchange(ab, ab, ok, strings.Replace(ok, "\r\n\r\n", "\r\nLikeness-Status: passed; reason=x\r\n\r\n", 1))
	const denied = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
	exchange(ab, ab, denied, denied)
	reply = rest.Reply{Status: "rescored", Answer: &rest.Answer{}}
	exchange(ab, "PUT /own?b HTTP/1.1\r\nHost: h\r\nX: y\r\nAccept-Encoding: identity\r\nContent-Length: 5\r\n\r\nother", ok,
		"HTTP/1.1 200 OK\r\nLikeness-Status: rescored\r\nContent-Length: 3\r\n\r\nok!")
	reply = rest.Reply{Outlives: true}
	identity := strings.Replace(ab, "Content-Length", "Accept-Encoding: identity\r\nContent-Length", 1)
	const wrong = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
	exchange(ab, identity, wrong, wrong)
	if ending.Status != 404 || string(ending.Problem) != "no" || ending.Unsent {
		t.Errorf("ended with %+v", ending)
	}
	if want := "PUT /a y 2"; len(asked) != 6 || asked[0] != want || asked[1] != want {
		t.Errorf("asked %q, want %q each time", asked, want)
	}
	// A body that does not tell that it is longer than what is read is streamed.
	long := strings.Repeat("x", 2<<20)
	asked, reply = nil, rest.Reply{}
	go sendPieces(k.client, fmt.Sprintf("PUT /a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long), 1<<30)
	k.accept()
	r, err := http.ReadRequest(newReader(k.database))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != long {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	k.send(k.database, ok)
	k.expect(k.client, ok)
	if len(asked) != 1 || asked[0] != "PUT /a  0" || gated.ReceivedBytes() != 0 {
		t.Errorf("asked %q, %d bytes are held", asked, gated.ReceivedBytes())
	}
}
