// Package relay forwards client connections to the database byte for byte. Each client
// connection has its own connection to the database. The relay decodes no call, so a call
// costs two writes and arrives unchanged. It only finds the ends of HTTP/2 frames, because a
// drain tells clients there to reconnect elsewhere.
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

// Server forwards every connection that it accepts. It is safe for concurrent use.
type Server struct {
	options Options
	dialer  net.Dialer
	leaving chan struct{} // closed by Drain, under mu

	mu       sync.Mutex
	listener net.Listener
	links    map[*grpcLink]struct{}
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		options: o, dialer: net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive},
		links: map[*grpcLink]struct{}{}, leaving: make(chan struct{}),
	}
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
	l := &grpcLink{link: link{raw: conn, client: client, cancel: cancel}}
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
func (s *Server) forward(ctx context.Context, l *grpcLink, client net.Conn) {
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
