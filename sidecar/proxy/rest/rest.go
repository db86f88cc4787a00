// Package rest forwards HTTP requests to a database's REST API as they came: paths, queries,
// header lines and bodies are not interpreted. An Interceptor may answer some of them.
//
// Requests of HTTP/1.1 are read and written here, in one goroutine for each connection: a
// search costs two writes and two reads, and little else. Requests of HTTP/2 are turned into
// such of HTTP/1.1 by net/http.
package rest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

// maxBuffered limits the bodies that are read for an interceptor; longer ones are streamed. It is
// Qdrant's own limit.
const maxBuffered = 32 << 20

// ErrURL reports an address that is not the URL of a REST API.
var ErrURL = errors.New("not the URL of a REST API")

// Options configure a Server. Only Upstream is required.
type Options struct {
	// Upstream is the base URL of the database, http or https, without a path.
	Upstream string
	// ServerTLS, if not nil, is the configuration of the listener; UpstreamTLS is the one towards
	// the database.
	ServerTLS, UpstreamTLS *tls.Config
	Logger                 *slog.Logger
	// Gate, if set, receives the bodies that are read for the interceptor.
	Gate *gate.Gate
	// Intercept, if not nil, sees each request for which Wants returns true before it is forwarded.
	Intercept Interceptor
	// Wants reports whether Intercept may answer or follow requests with that method and target,
	// the latter as the client wrote it. It is required with Intercept.
	Wants func(method, target string) bool
}

// Server forwards every request it gets. It is safe for concurrent use.
type Server struct {
	database  *database
	secure    *tls.Config // configuration of the listener; nil: without TLS
	http2     *http2Server
	log       *slog.Logger
	gate      *gate.Gate
	maxBody   int64 // longest body that is read for the interceptor
	intercept Interceptor
	wants     func(method, target string) bool
	draining  chan struct{} // closed by Drain, with mu held

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	ended    sync.WaitGroup // running conns
}

// NewServer returns a server. It makes no connection. It returns ErrURL.
func NewServer(o Options) (*Server, error) {
	upstream, err := url.Parse(o.Upstream)
	if err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" || strings.Trim(upstream.Path, "/") != "" {
		return nil, fmt.Errorf("%w; write http://host:port, or https, without a path", ErrURL)
	}
	most, _ := o.Gate.MaxMessageBytes(maxBuffered)
	s := &Server{
		database: newDatabase(upstream, o.UpstreamTLS, o.Gate), secure: o.ServerTLS, log: o.Logger, gate: o.Gate, maxBody: int64(most),
		intercept: o.Intercept, wants: o.Wants, draining: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.http2 = newHTTP2Server(s)
	return s, nil
}

// Check requests the root of the database's API, which Qdrant serves without credentials. It
// returns ErrURL if the address does not speak HTTP (such as a gRPC port), or the network's error
// if nothing answers.
func (s *Server) Check(ctx context.Context) error { return s.database.check(ctx) }

// EscapedPath returns the path of a request as it is forwarded, byte for byte.
func EscapedPath(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath()
}

// unreachable returns the body of an answer with status 502, in the form of the database's errors,
// that says that the database at this host does not answer.
func unreachable(host string) []byte {
	return errorBody("the database at " + host + " does not answer")
}

func errorBody(problem string) []byte {
	var body struct {
		Status struct {
			Error string `json:"error"`
		} `json:"status"`
		Time float64 `json:"time"`
	}
	body.Status.Error = "likeness: " + problem
	b, _ := json.Marshal(body) // strings and numbers always encode
	return append(b, '\n')
}

// Serve answers requests until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	s.mu.Lock()
	s.listener = listener
	if !s.isDraining() {
		s.ended.Go(s.http2.serve)
	}
	s.mu.Unlock()
	if err := peer.Accept(listener, s.draining, s.log, s.take); err != nil {
		return fmt.Errorf("REST on %s: %w", listener.Addr(), err)
	}
	return nil
}

func (s *Server) isDraining() bool { return peer.IsClosed(s.draining) }

// take starts to serve a connection that was accepted.
func (s *Server) take(raw net.Conn) {
	client := raw
	if s.secure != nil {
		client = tls.Server(raw, s.secure)
	}
	c := newConn(s, raw, client)
	s.start(c)
}

// start serves a connection, or closes it if the server drains.
func (s *Server) start(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.isDraining() {
		c.close()
		return
	}
	s.conns[c] = struct{}{}
	s.ended.Go(func() { s.run(c) })
}

// run serves a connection to its end, or hands it to the HTTP/2 server.
func (s *Server) run(c *conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	if secure, ok := c.client.(*tls.Conn); ok {
		soon, cancel := context.WithTimeout(c.ctx, 2*dialTimeout)
		err := secure.HandshakeContext(soon)
		cancel()
		if err != nil {
			s.log.Debug("TLS handshake with a client failed", "address", c.raw.RemoteAddr(), "error", err)
			c.close()
			return
		}
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			c.cut()
			s.http2.take(secure)
			return
		}
	}
	if isHTTP2 := c.serve(); isHTTP2 {
		c.cut()
		first, _ := c.in.Peek(c.in.Buffered())
		s.http2.take(&begunConn{Conn: c.client, first: first})
	}
}

// Drain accepts no more connections, closes each after its current request, and waits for that.
// When ctx ends, it cuts the requests and returns true.
func (s *Server) Drain(ctx context.Context) (cut bool) {
	s.mu.Lock()
	if !s.isDraining() {
		close(s.draining)
	}
	for c := range s.conns {
		if !c.isInMemory && c.isIdle.CompareAndSwap(true, false) {
			c.close()
		}
	}
	if s.listener != nil {
		_ = s.listener.Close() // last, because refused connections show that all clients were told
	}
	s.mu.Unlock()
	defer s.database.close()
	done := make(chan bool, 1)
	go func() {
		cut := s.http2.drain(ctx)
		s.ended.Wait()
		done <- cut
	}()
	select {
	case cut = <-done:
		return cut
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.close()
	}
	s.mu.Unlock()
	<-done
	return true
}
