// Package relay forwards the connections of clients as they are: for each of theirs it
// opens one to the database, and what is said on the one is said on the other, byte for
// byte. It reads no call, so a call costs two writes, and nothing of it can be lost on
// the way. It knows where frames of HTTP/2, and messages of HTTP/1.1, end, and with that
// how to tell a client to go elsewhere.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

const (
	dialTimeout = 5 * time.Second
	// lastWords is how long a client may take to read what the database said last.
	lastWords = 5 * time.Second
)

// keepAlive finds a peer that is gone without a word within half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Options are what a Server needs. Only Upstream must be given.
type Options struct {
	// Upstream is the database's host:port.
	Upstream string
	// ServerTLS, if not nil, is the listener's; UpstreamTLS that towards the database.
	ServerTLS, UpstreamTLS *tls.Config
	Logger                 *slog.Logger
}

// conversation is a link by the protocol that is spoken on it.
type conversation interface {
	// run forwards until both sides have ended. ctx is done when the link is cut.
	run(ctx context.Context, s *Server)
	// leave has the link end as soon as no answer is owed on it. It does not wait.
	leave()
	// cut ends it at once.
	cut()
}

// Server forwards every connection that it gets. It is safe for concurrent use.
type Server struct {
	name     string // of the protocol
	options  Options
	dialer   net.Dialer
	converse func(raw, client net.Conn, cut context.CancelFunc) conversation
	buffers  *buffers
	calls    *rest.Server // takes what is not HTTP/1.1; nil for gRPC
	handover *handover
	leaving  chan struct{} // closed by Drain, under mu

	mu       sync.Mutex
	listener net.Listener
	links    map[conversation]struct{}
	ended    sync.WaitGroup // links
}

// NewServer makes a server for gRPC; it calls nothing.
func NewServer(o Options) *Server {
	if o.UpstreamTLS != nil {
		o.UpstreamTLS = o.UpstreamTLS.Clone()
		o.UpstreamTLS.NextProtos = []string{"h2"}
		if o.UpstreamTLS.ServerName == "" {
			o.UpstreamTLS.ServerName, _, _ = net.SplitHostPort(o.Upstream)
		}
	}
	return newServer("gRPC", o, func(raw, client net.Conn, cut context.CancelFunc) conversation {
		return &grpcLink{link: link{raw: raw, client: client, cancel: cut}}
	})
}

// NewHTTPServer makes a server for HTTP/1.1 without TLS, before the database of calls,
// which serves the connections that speak HTTP/2 and is drained with it; it calls nothing.
func NewHTTPServer(calls *rest.Server, logger *slog.Logger) *Server {
	s := newServer("REST", Options{Upstream: calls.Plain(), Logger: logger}, func(raw, client net.Conn, cut context.CancelFunc) conversation {
		return &httpLink{link: link{raw: raw, client: client, cancel: cut}, next: make(chan net.Conn, 1), answers: messages{answers: true}}
	})
	s.calls, s.buffers = calls, newBuffers()
	return s
}

func newServer(name string, o Options, converse func(raw, client net.Conn, cut context.CancelFunc) conversation) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		name: name, options: o, dialer: net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive},
		converse: converse, links: map[conversation]struct{}{}, handover: newHandover(), leaving: make(chan struct{}),
	}
}

// Serve forwards connections until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	s.mu.Lock()
	s.listener = listener
	if s.calls != nil && !s.isLeaving() {
		s.ended.Go(func() { _ = s.calls.Serve(s.handover) }) // until Drain, whatever comes
	}
	s.mu.Unlock()
	for !s.isLeaving() {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			s.take(conn)
		case s.isLeaving():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("%s on %s: %w", s.name, listener.Addr(), err)
		default:
			s.options.Logger.Warn("a connection was not taken", "error", err)
			select { // too many files, as a rule
			case <-time.After(10 * time.Millisecond):
			case <-s.leaving:
			}
		}
	}
	return nil
}

func (s *Server) isLeaving() bool {
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}

// take forwards a connection, unless the server is leaving.
func (s *Server) take(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	client := conn
	if s.options.ServerTLS != nil {
		client = tls.Server(conn, s.options.ServerTLS)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := s.converse(conn, client, cancel)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLeaving() {
		l.cut()
		return
	}
	s.links[l] = struct{}{}
	s.ended.Go(func() { s.forward(ctx, l, client) })
}

// forward runs a link to its end. ctx is done when the link is cut.
func (s *Server) forward(ctx context.Context, l conversation, client net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.links, l)
		s.mu.Unlock()
		l.cut()
	}()
	if secure, ok := client.(*tls.Conn); ok {
		soon, cancel := context.WithTimeout(ctx, 2*dialTimeout)
		defer cancel()
		if err := secure.HandshakeContext(soon); err != nil {
			s.options.Logger.Debug("no handshake with a client", "address", client.RemoteAddr(), "error", err)
			return
		}
	}
	l.run(ctx, s)
}

// unreachable logs that there is nobody to forward to.
func (s *Server) unreachable(err error) {
	s.options.Logger.Warn("the database does not answer", "address", s.options.Upstream, "error", err)
}

// dial connects to the database.
func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	if s.options.UpstreamTLS == nil {
		return s.dialer.DialContext(ctx, "tcp", s.options.Upstream)
	}
	d := tls.Dialer{NetDialer: &s.dialer, Config: s.options.UpstreamTLS}
	return d.DialContext(ctx, "tcp", s.options.Upstream)
}

// Drain takes no more connections, tells the clients of those that are open to go
// elsewhere, and waits until they have or ctx is done; then it cuts them. It reports
// whether it had to.
func (s *Server) Drain(ctx context.Context) (cut bool) {
	s.mu.Lock()
	if !s.isLeaving() {
		close(s.leaving)
	}
	for l := range s.links {
		l.leave()
	}
	if s.listener != nil {
		_ = s.listener.Close() // last: who is refused knows that the others were told
	}
	s.mu.Unlock()
	done := make(chan bool, 1)
	go func() {
		cut := s.calls != nil && s.calls.Drain(ctx)
		s.ended.Wait()
		done <- cut
	}()
	select {
	case cut = <-done:
		return cut
	case <-ctx.Done():
		s.mu.Lock()
		for l := range s.links {
			l.cut()
		}
		s.mu.Unlock()
		<-done
		return true
	}
}
