package rest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// http2Server serves HTTP/2 connections. It converts each request to HTTP/1.1, on a connection in
// memory that a Server serves like a client's connection.
type http2Server struct {
	server    *Server
	http      *http.Server
	transport *http.Transport
	handed    chan net.Conn // connections of clients
	closed    chan struct{} // closed by Close
	closeOnce sync.Once

	mu      sync.Mutex
	drained bool // no more requests are in flight
}

var _ net.Listener = (*http2Server)(nil)

// maxHTTP2Streams limits the concurrent requests of one connection.
const maxHTTP2Streams = 250

func newHTTP2Server(s *Server) *http2Server {
	h := &http2Server{server: s, handed: make(chan net.Conn), closed: make(chan struct{})}
	h.transport = &http.Transport{
		DialContext:         h.dial,
		DisableCompression:  true, // the client sets Accept-Encoding
		MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTime,
	}
	log := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug) // reports clients that left
	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: h.transport, ErrorLog: log}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // adds no headers to the database's
			proxy.ServeHTTP(w, r)
		}),
		Protocols: protocols, DisableGeneralOptionsHandler: true, ErrorLog: log,
		ReadHeaderTimeout: headTime, IdleTimeout: clientIdleTime, MaxHeaderBytes: maxHeadBytes,
		HTTP2: gate.HTTP2(maxHTTP2Streams),
	}
	return h
}

// rewrite restores the client's request as HTTP/1.1. ReverseProxy has removed the fields that
// belong to one connection, but also others, which rewrite adds again.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "database", p.In.Host
	p.Out.URL.RawQuery, p.Out.URL.ForceQuery = p.In.URL.RawQuery, p.In.URL.ForceQuery
	if path, _, _ := strings.Cut(p.In.RequestURI, "?"); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
		p.Out.URL.Opaque = path // prevents a second escaping
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
}

// dial opens a connection in memory.
func (h *http2Server) dial(context.Context, string, string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.drained {
		return nil, net.ErrClosed
	}
	ours, theirs := net.Pipe()
	c := newConn(h.server, theirs, theirs)
	c.isInMemory = true
	h.server.start(c)
	return ours, nil
}

// serve answers requests until drain.
func (h *http2Server) serve() { _ = h.http.Serve(h) } // returns only after drain

// take serves a connection of a client.
func (h *http2Server) take(conn net.Conn) {
	select {
	case h.handed <- conn:
	case <-h.closed:
		_ = conn.Close()
	}
}

// Accept implements net.Listener for connections that another listener has accepted.
func (h *http2Server) Accept() (net.Conn, error) {
	select {
	case conn := <-h.handed:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *http2Server) Close() error {
	h.closeOnce.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener. Nobody can connect to the address.
func (h *http2Server) Addr() net.Addr { return &net.UnixAddr{Name: "rest", Net: "unix"} }

// drain accepts no more requests and waits for those in flight. When ctx ends, it cuts them and
// returns true.
func (h *http2Server) drain(ctx context.Context) (cut bool) {
	_ = h.Close()
	defer func() {
		h.mu.Lock()
		h.drained = true
		h.mu.Unlock()
		h.transport.CloseIdleConnections()
	}()
	if err := h.http.Shutdown(ctx); err == nil {
		return false
	}
	_ = h.http.Close() // the listeners are closed already
	return true
}

// begunConn is a connection with its first bytes already read.
type begunConn struct {
	net.Conn

	first []byte
}

// Read implements net.Conn.
func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
