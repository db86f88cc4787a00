// Package relay forwards client connections to the database byte for byte. Each client
// connection has its own connection to the database. The relay decodes no call, so a call
// costs two writes and arrives unchanged. It only finds the ends of HTTP/2 frames and
// HTTP/1.1 messages, because a drain tells clients there to reconnect elsewhere.
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
	// lastBytesTimeout bounds the exchange of the last bytes after one side has closed.
	lastBytesTimeout = 5 * time.Second
)

// keepAlive detects a vanished peer within half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Options configure a Server. Only Upstream is required.
type Options struct {
	// Upstream is the database's host:port.
	Upstream string
	// ServerTLS, if not nil, configures TLS with clients, UpstreamTLS with the database.
	ServerTLS, UpstreamTLS *tls.Config
	Logger                 *slog.Logger
}

// conversation is a link of either protocol.
type conversation interface {
	// run forwards until both sides have closed. ctx is done when the link is cut.
	run(ctx context.Context, s *Server)
	// leave closes the link once no response is outstanding. It does not wait.
	leave()
	// cut closes the link at once.
	cut()
}

// Server forwards every connection that it accepts. It is safe for concurrent use.
type Server struct {
	name     string // the protocol, for errors
	options  Options
	dialer   net.Dialer
	converse func(raw, client net.Conn, cut context.CancelFunc) conversation
	buffers  *buffers
	calls    *rest.Server // serves HTTP/2 connections; nil in a gRPC server
	handover *handover
	leaving  chan struct{} // closed by Drain, under mu

	mu       sync.Mutex
	listener net.Listener
	links    map[conversation]struct{}
	ended    sync.WaitGroup // links
}

// NewServer returns a server for gRPC. It opens no connection.
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

// NewHTTPServer returns a server for HTTP/1.1 without TLS that forwards to the database of
// calls. It hands HTTP/2 connections to calls and drains calls with itself. It opens no
// connection.
func NewHTTPServer(calls *rest.Server, logger *slog.Logger) *Server {
	s := newServer("REST", Options{Upstream: calls.Plain(), Logger: logger}, func(raw, client net.Conn, cut context.CancelFunc) conversation {
		return &httpLink{link: link{raw: raw, client: client, cancel: cut}, nextDatabase: make(chan net.Conn, 1), answers: messages{answers: true}}
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
		s.ended.Go(func() { _ = s.calls.Serve(s.handover) }) // Serve returns only after Drain
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
			s.options.Logger.Warn("accepting a connection failed", "error", err)
			select { // usually too many open files
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

// take starts to forward a connection, or cuts it if the server is draining.
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
			s.options.Logger.Debug("TLS handshake with a client failed", "address", client.RemoteAddr(), "error", err)
			return
		}
	}
	l.run(ctx, s)
}

// unreachable logs that the database cannot be reached.
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

// Drain accepts no more connections, tells connected clients to reconnect elsewhere, and
// waits until they have left. When ctx is done it cuts the connections that are left, and
// returns true.
func (s *Server) Drain(ctx context.Context) (cut bool) {
	s.mu.Lock()
	if !s.isLeaving() {
		close(s.leaving)
	}
	for l := range s.links {
		l.leave()
	}
	if s.listener != nil {
		_ = s.listener.Close() // last: a refused connection shows that every link was told
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
