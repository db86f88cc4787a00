// Package relay forwards the connections of gRPC clients as they are: for each of
// theirs it opens one to the database, and what is said on the one is said on the
// other, byte for byte. It reads no call, so a call costs two writes, and nothing of
// it can be lost on the way. It knows where frames of HTTP/2 end, and with that how to
// tell a client to go elsewhere.
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

// Server forwards every connection that it gets. It is safe for concurrent use.
type Server struct {
	options Options
	dialer  net.Dialer
	leaving chan struct{} // closed by Drain, under mu

	mu       sync.Mutex
	listener net.Listener
	links    map[*link]struct{}
	ended    sync.WaitGroup // links
}

// NewServer makes a server; it calls nothing.
func NewServer(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.UpstreamTLS != nil {
		o.UpstreamTLS = o.UpstreamTLS.Clone()
		o.UpstreamTLS.NextProtos = []string{"h2"}
		if o.UpstreamTLS.ServerName == "" {
			o.UpstreamTLS.ServerName, _, _ = net.SplitHostPort(o.Upstream)
		}
	}
	return &Server{options: o, dialer: net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}, links: map[*link]struct{}{}, leaving: make(chan struct{})}
}

// Serve forwards connections until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	s.mu.Lock()
	s.listener = listener
	s.mu.Unlock()
	for !s.isLeaving() {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			s.take(conn)
		case s.isLeaving():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("gRPC on %s: %w", listener.Addr(), err)
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
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{raw: conn, client: conn, cancel: cancel}
	if s.options.ServerTLS != nil {
		l.client = tls.Server(conn, s.options.ServerTLS)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLeaving() {
		l.cut()
		return
	}
	s.links[l] = struct{}{}
	s.ended.Go(func() { s.forward(ctx, l) })
}

// forward runs a link to its end. ctx is done when the link is cut.
func (s *Server) forward(ctx context.Context, l *link) {
	defer func() {
		s.mu.Lock()
		delete(s.links, l)
		s.mu.Unlock()
		l.cut()
	}()
	soon, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	if secure, ok := l.client.(*tls.Conn); ok {
		if err := secure.HandshakeContext(soon); err != nil {
			s.options.Logger.Debug("no handshake with a client", "address", l.raw.RemoteAddr(), "error", err)
			return
		}
	}
	database, err := s.dial(soon)
	if err != nil {
		s.options.Logger.Warn("the database does not answer", "address", s.options.Upstream, "error", err)
		l.refuse()
		return
	}
	l.join(ctx, database)
}

// dial connects to the database.
func (s *Server) dial(ctx context.Context) (net.Conn, error) {
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
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for l := range s.links {
		go l.leave()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended.Wait()
	}()
	select {
	case <-done:
		return false
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
