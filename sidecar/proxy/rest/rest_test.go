package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is a peer that handles every connection by a function, on plain bytes.
type database struct {
	listener net.Listener
	group    sync.WaitGroup
}

func newDatabase(t testing.TB, answer func(net.Conn)) *database {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &database{listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.group.Go(func() {
				defer conn.Close()
				answer(conn)
			})
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		d.group.Wait()
	})
	return d
}

func (d *database) address() string { return d.listener.Addr().String() }

// start runs a proxy in front of an address.
func start(t testing.TB, upstream string) (address string) {
	t.Helper()
	_, address = serve(t, rest.Options{Upstream: "http://" + upstream, Gate: gate.New(gate.Options{ReceivedBytes: 64 << 20})})
	return address
}

// serve runs a proxy until the test ends.
func serve(t testing.TB, o rest.Options) (s *rest.Server, address string) {
	t.Helper()
	s, err := rest.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Drain(ctx)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, listener.Addr().String()
}

// echo answers each request on a connection with its request line, its end-to-end headers sorted by
// name, and its body.
func echo(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		seen, err := readRequest(in)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Seen: yes\r\n\r\n%s", len(seen), seen); err != nil {
			return
		}
	}
}

func readRequest(in *bufio.Reader) (seen string, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	var raw strings.Builder
	raw.WriteString(line)
	var headers []string
	for {
		h, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		raw.WriteString(h)
		if h == "\r\n" {
			break
		}
		name, value, _ := strings.Cut(strings.TrimSpace(h), ":")
		switch name = strings.ToLower(name); name {
		case "connection", "transfer-encoding", "content-length", "host", "expect", "user-agent":
		default:
			headers = append(headers, name+":"+value)
		}
	}
	slices.Sort(headers)
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(raw.String()), in)))
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r.Body)
	return line + strings.Join(headers, "\n") + "\n\n" + string(body), err
}

// ask sends plain bytes and returns the answer's status and body.
func ask(t testing.TB, address, request string) (status int, body string, header http.Header) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil { // fuzzing would run out of ports
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b), r.Header
}

func TestRequestsCrossUnchanged(t *testing.T) {
	d := newDatabase(t, echo)
	address := start(t, d.address())
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET //collections HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /collections/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /a/../b/./c?x=1;y=%zz&&= HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /collections/a%2Fb%20c/%C3%A9|{}?q=a|b HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /x? HTTP/1.1\r\nHost: h\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		"PURGE /odd/method HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /b HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br, gzip\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\nApi-Key: k\r\nX: 1\r\nX: 2\r\n\r\n",
		"POST /no/type HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n\x00\xff{}!",
		"POST /empty HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		"POST /chunked HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n3\r\n{ }\r\n0\r\n\r\n",
		"GET /with/body HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
		"DELETE /with/body HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nxx",
		"PUT /waits HTTP/1.1\r\nHost: h\r\nIdempotency-Key: mine\r\nContent-Length: 2\r\n\r\nab",
	} {
		status, got, header := ask(t, address, request)
		_, want, _ := ask(t, d.address(), request)
		if status != http.StatusOK || got != want {
			t.Errorf("%q: the database saw\n%q, want\n%q", request, got, want)
		}
		if header.Get("X-Seen") == "" || header["Content-Type"] != nil || header["Date"] != nil {
			t.Errorf("%q: answer's header %v", request, header)
		}
	}
}

func TestAnswersCrossUnchanged(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nMust",
		"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Type: application/json\r\nX: 1\r\nX: 2\r\nContent-Length: 3\r\n\r\n\x01\x02\x03",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
		"HTTP/1.1 499 Odd\r\nContent-Length: 1\r\nDate: yesterday\r\n\r\nx",
		"HTTP/1.1 204 No Content\r\n\r\n",
	} {
		d := newDatabase(t, func(conn net.Conn) {
			for in := bufio.NewReader(conn); ; {
				if _, err := readRequest(in); err != nil {
					return
				}
				if _, err := io.WriteString(conn, answer); err != nil {
					return
				}
			}
		})
		const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		status, body, header := ask(t, start(t, d.address()), request)
		wantStatus, wantBody, wantHeader := ask(t, d.address(), request)
		if status != wantStatus || body != wantBody || fmt.Sprint(header) != fmt.Sprint(wantHeader) {
			t.Errorf("%q came as %d %q %v, want %v", answer, status, body, header, wantHeader)
		}
	}
}

// After some answers Qdrant closes the connection without notice; the next request on it is
// repeated.
func TestConnectionsThatCloseSilently(t *testing.T) {
	d := newDatabase(t, func(conn net.Conn) {
		if _, err := readRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	address := start(t, d.address())
	for i := range 200 {
		status, body, _ := ask(t, address, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab")
		if status != http.StatusOK || body != "ok" {
			t.Fatalf("request %d: %d %q", i, status, body)
		}
	}
}

// An upload and a download are forwarded in both directions before they end.
func TestStreamsAreNotHeldBack(t *testing.T) {
	got := make(chan string)
	next := make(chan string)
	d := newDatabase(t, func(conn net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		part := make([]byte, 5)
		for range 2 {
			if _, err := io.ReadFull(r.Body, part); err != nil {
				return
			}
			got <- string(part)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for s := range next {
			_, _ = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(s), s)
		}
		_, _ = io.WriteString(conn, "0\r\n\r\n")
	})
	conn, err := net.Dial("tcp", start(t, d.address()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /snapshots/upload HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, part := range []string{"first", "other"} {
		_, _ = fmt.Fprintf(conn, "5\r\n%s\r\n", part)
		if s := <-got; s != part {
			t.Errorf("the database got %q", s)
		}
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	next <- "one"
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b := make([]byte, 3)
	for _, want := range []string{"one", "two"} {
		if _, err := io.ReadFull(r.Body, b); err != nil || string(b) != want {
			t.Errorf("the client got %q, %v", b, err)
		}
		if want == "one" {
			next <- "two"
		}
	}
	close(next)
	if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 {
		t.Errorf("end %q, %v", rest, err)
	}
}

func TestUpgrade(t *testing.T) {
	d := newDatabase(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, in)
	})
	conn, err := net.Dial("tcp", start(t, d.address()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", r, err)
	}
	r.Body.Close()
	_, _ = io.WriteString(conn, "hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(in, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestCancellationReachesTheDatabase(t *testing.T) {
	arrived, gone := make(chan bool), make(chan error)
	d := newDatabase(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		if _, err := readRequest(in); err != nil {
			return
		}
		arrived <- true
		_, err := in.ReadByte()
		gone <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	address := start(t, d.address())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ended := make(chan error)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/", strings.NewReader("{}"))
		if err == nil {
			var answer *http.Response
			if answer, err = client.Do(r); err == nil {
				answer.Body.Close()
			}
		}
		ended <- err
	}()
	<-arrived
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-gone; err == nil {
		t.Error("the database still has its connection")
	}
}

func TestDatabaseThatIsDown(t *testing.T) {
	status, body, _ := ask(t, start(t, "127.0.0.1:1"), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if status != http.StatusBadGateway || !strings.Contains(body, `"error":"likeness: the database at 127.0.0.1:1 does not answer"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	address := start(t, newDatabase(t, echo).address())
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	for _, target := range []string{"//a%2Fb?c", "/a|b/{}%2f?d=|"} {
		overHTTP2(t, transport, address, target)
	}
}

// overHTTP2 sends a request of HTTP/2, which the database gets with that target.
func overHTTP2(t *testing.T, transport *http.Transport, address, target string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/", bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	r.URL.Opaque, r.URL.RawQuery = path, query
	if strings.HasPrefix(path, "//") {
		r.URL.Opaque, r.URL.Path, r.URL.RawPath = "", "//a/b", path
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.ProtoMajor != 2 || !strings.HasPrefix(string(body), "POST "+target+" HTTP/1.1\r\n") || !strings.HasSuffix(string(body), "\n\n{}") {
		t.Errorf("HTTP/%d, %q, %v", answer.ProtoMajor, body, err)
	}
}

func TestUpstreamThatIsNoURL(t *testing.T) {
	for _, upstream := range []string{"", "127.0.0.1:6333", "ftp://h", "http://", "http://h/path"} {
		if _, err := rest.NewServer(rest.Options{Upstream: upstream}); !errors.Is(err, rest.ErrURL) {
			t.Errorf("%q: %v", upstream, err)
		}
	}
}

func isTarget(s string) bool {
	_, err := url.ParseRequestURI(s)
	return err == nil
}

// FuzzRequest sends any path, query and body directly and through the proxy.
// What breaks RFC 9112 it answers itself, with 400.
func FuzzRequest(f *testing.F) {
	d := newDatabase(f, echo)
	address := start(f, d.address())
	f.Add("collections/a/points/search", "timeout=1", []byte(`{"vector":[1]}`))
	f.Add("/../%2e/%", "?;&%zz", []byte{0, 0xff})
	f.Add("0", "#", []byte("0"))
	f.Add("0", "a#b?c", []byte("0"))
	f.Fuzz(func(t *testing.T, path, query string, body []byte) {
		if strings.ContainsFunc(path+query, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.ContainsAny(path, "?#") {
			t.Skip("not a request line")
		}
		if kept, _, _ := strings.Cut("/"+path+"?"+query, "#"); !isTarget(kept) {
			t.Skip("this database cannot read it")
		}
		request := fmt.Sprintf("POST /%s?%s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, query, len(body), body)
		status, got, _ := ask(t, address, request)
		if status == http.StatusBadRequest {
			return
		}
		kept, _, _ := strings.Cut(query, "#") // the proxy cuts a fragment, which is no part of a request
		direct := fmt.Sprintf("POST /%s?%s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, kept, len(body), body)
		if _, want, _ := ask(t, d.address(), direct); got != want {
			t.Errorf("the database saw\n%q, want\n%q", got, want)
		}
	})
}

func newReader(from io.Reader) *bufio.Reader { return bufio.NewReader(from) }
