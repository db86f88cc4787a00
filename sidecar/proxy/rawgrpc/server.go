// Package rawgrpc forwards gRPC calls as the HTTP/2 frames they are: it decodes no message,
// so a service, a method or a field that nobody here knows crosses it unchanged.
//
// The way of a call: link.accept receives its header list and opens a stream to the database,
// on a connection that the client's connection has for itself. From then on each frame of the
// one stream is sent on the other by whoever read it (forward). Only a call whose method has
// an Interceptor is held until its message is here (held); then, unless the interceptor
// ignores the message, one of the server's workers runs the interceptor. Its answer is written
// in the database's stead, or the held bytes go on as if nothing had been. What an interceptor
// asks the database goes over connections that all clients share (Upstream.Call). A call that an
// Interceptor watches is not read; only the end of its first message waits for the interceptor
// (watched).
package rawgrpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

const (
	maxMessageBytes = 1 << 30
	// maxHeaderBytes limits a header list of a client, maxAnswerHeaderBytes one of a database.
	maxHeaderBytes       = 64 << 10
	maxAnswerHeaderBytes = 1 << 20
	// connectionWindow limits the bytes that a peer may send on a connection before they are
	// forwarded.
	connectionWindow = 4 << 20
	// maxStreams limits the concurrent calls of a connection if Options do not.
	maxStreams = 1000
	// startTimeout bounds a TLS handshake.
	startTimeout = 20 * time.Second
)

// Options configure a Server. Only Upstream is required.
type Options struct {
	// Upstream is the database. The caller closes it after Drain.
	Upstream *Upstream
	// TLS is the configuration of the listener. nil means plain text.
	TLS *tls.Config
	// MaxStreams limits the concurrent calls of a connection; 0 means 1,000.
	MaxStreams int
	// MaxUnpacked limits the uncompressed length of a compressed message that an interceptor reads.
	// 0 means the limit for other messages.
	MaxUnpacked int
	// Gate, if set, receives the messages that interceptors read, and counts kept bytes of others.
	Gate *gate.Gate
	// Intercept maps methods to the interceptors that see their requests first. The interceptor of
	// AnyOther is for every method that the map lacks.
	Intercept map[string]Interceptor
	Logger    *slog.Logger
}

// AnyOther is the key of Options.Intercept for the methods without a key of their own.
const AnyOther = ""

// Interceptor may answer the calls of a method in place of the database. It must not change
// requests. The zero Interceptor forwards the calls unread.
type Interceptor struct {
	// Ignores, if set, reports whether a request is forwarded without calling Answer. It must be
	// quick, because the connection is not read meanwhile.
	Ignores func(request []byte) bool
	// MustRead refuses a call whose message is compressed in a way that this server cannot read, instead of
	// forwarding it unread.
	MustRead bool
	// Answer decides about a request. The context is the call's, with its metadata as both incoming
	// and outgoing.
	Answer func(ctx context.Context, request []byte) Reply
	// Watch, if set, replaces Answer. It is called before the database has the first message of a
	// call, or the end of a call without messages. The call is then forwarded as it came, however
	// many messages it has. Only Err, Ended and Outlives of the reply count, and Ended gets the
	// beginning of the answer's frames.
	Watch func(ctx context.Context, method string) Reply
}

// Reply is an interceptor's decision. Without Message and Err the request goes on to the
// database as it came, and Trailer joins the answer's trailer.
type Reply struct {
	Message         []byte
	Err             error
	Header, Trailer metadata.MD
	// Passed, if set, is called with the time that the database took for a forwarded request.
	Passed func(took time.Duration)
	// Ended, if set, is called with the answer to a forwarded request, or its error, as soon as
	// there is one. It owns the answer.
	Ended func(answer []byte, err error)
	// Outlives lets a forwarded request go on for a while when its client leaves, so that Ended
	// gets the database's answer.
	Outlives bool
	// Denies, if set, reports whether an answer without an error refuses the caller, as
	// an error of the codes of Denied does. Such an answer gets no Trailer.
	Denies func(answer []byte) bool
}

// wantsAnswer reports whether the answer to a request that goes on matters to the interceptor.
func (r Reply) wantsAnswer() bool {
	return r.Passed != nil || r.Ended != nil || r.Outlives || r.Denies != nil || len(r.Trailer) > 0
}

// Server forwards every call it gets. It is safe for concurrent use.
type Server struct {
	options  Options
	receiver *gate.Receiver
	leaving  chan struct{} // closed by Drain, with mu held

	mu       sync.Mutex
	listener net.Listener
	links    map[*link]struct{}
	working  sync.WaitGroup // running links
	workers  *workers       // run interceptors
}

// NewServer returns a server without services of its own: every method is the database's, including
// health and reflection.
func NewServer(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TLS != nil && !slices.Contains(o.TLS.NextProtos, "h2") {
		o.TLS = o.TLS.Clone()
		o.TLS.NextProtos = append(o.TLS.NextProtos, "h2")
	}
	o.MaxStreams = cmp.Or(o.MaxStreams, maxStreams)
	gunzip := gate.NewGunzip(o.Gate.MaxMessageBytes(cmp.Or(o.MaxUnpacked, maxMessageBytes)))
	leaving := make(chan struct{})
	return &Server{
		options: o, leaving: leaving, links: map[*link]struct{}{}, workers: newWorkers(leaving),
		receiver: &gate.Receiver{Gate: o.Gate, Gunzip: gunzip, MaxBytes: maxMessageBytes},
	}
}

// Serve forwards calls until Drain. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	s.mu.Lock()
	s.listener = listener
	s.mu.Unlock()
	if err := peer.Accept(listener, s.leaving, s.options.Logger, s.take); err != nil {
		return fmt.Errorf("gRPC on %s: %w", listener.Addr(), err)
	}
	return nil
}

// take serves a connection, or closes it if the server is draining.
func (s *Server) take(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peer.IsClosed(s.leaving) {
		_ = conn.Close()
		return
	}
	l := newLink(s, conn.RemoteAddr().String())
	s.links[l] = struct{}{}
	s.working.Go(func() {
		if err := l.run(conn); err != nil {
			s.options.Logger.Debug("a connection ended", "address", conn.RemoteAddr(), "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.links, l)
	})
}

// secure returns a TLS connection on a client's connection.
func (s *Server) secure(conn net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	t := tls.Server(conn, s.options.TLS)
	return t, t.HandshakeContext(ctx)
}

// Drain accepts no more connections, tells the clients to reconnect elsewhere, and waits for the
// calls in flight. When ctx ends, it cuts them and returns true.
func (s *Server) Drain(ctx context.Context) (cut bool) {
	s.mu.Lock()
	if !peer.IsClosed(s.leaving) {
		close(s.leaving)
	}
	for l := range s.links {
		l.client.Shutdown()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.working.Wait()
		s.workers.wait()
		close(done)
	}()
	select {
	case <-done:
		return false
	case <-ctx.Done():
	}
	s.mu.Lock()
	for l := range s.links {
		cut = cut || l.client.Streams() > 0
		l.client.Close()
	}
	s.mu.Unlock()
	<-done
	return cut
}
