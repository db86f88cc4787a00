package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// ended is the stream of a call that is over: no header can be sent.
type ended struct {
	grpc.ServerStream
	ctx context.Context
}

func (e ended) Context() context.Context  { return e.ctx }
func (ended) SetHeader(metadata.MD) error { return errors.New("the stream is done") }

// TestACallThatIsOver: a call whose client went away before its header was sent ends as cancelled, and without its
// handler. Any other code would count as a fault of the server.
func TestACallThatIsOver(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s := &services{recorder: countedCalls{}, log: log, failures: newFailures(log, func() int { return 0 })}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.observe(nil, ended{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: likenessv1.SearchService_Search_FullMethodName},
		func(any, grpc.ServerStream) error { t.Error("the handler is called"); return nil })
	if status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
}

// onePipe is a listener of one connection.
type onePipe struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (p onePipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conn:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p onePipe) Close() error { close(p.closed); return nil }
func (onePipe) Addr() net.Addr { return &net.TCPAddr{} }

// TestHalfOpenLinksAreClosed: a client that answers no ping loses its connection within the 30 seconds that
// docs/reference/reliability.md promises.
func TestHalfOpenLinksAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Gate: gate.New(gate.Options{Limits: gate.Limits{MaxSearches: 1}}), Limits: Limits{MaxMessageBytes: 1 << 10}}
		server := grpc.NewServer((&services{}).options(o, newReceiver(o))...)
		near, far := net.Pipe()
		listener := onePipe{make(chan net.Conn, 1), make(chan struct{})}
		listener.conn <- near
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		begun := time.Now()
		received := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, far); received <- err }()
		if _, err := io.WriteString(far, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := http2.NewFramer(far, nil).WriteSettings(); err != nil {
			t.Fatal(err)
		}
		if err := <-received; err != nil || time.Since(begun) > 30*time.Second {
			t.Errorf("closed after %v, %v; want within 30 s", time.Since(begun), err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
