package drain

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// pair returns a listener and the two ends of a connection that it accepted.
func pair(t *testing.T, l *Listener) (client, accepted net.Conn) {
	t.Helper()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	accepted, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return client, accepted
}

func listen(t *testing.T) *Listener {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inner.Close() })
	return Listen(inner)
}

// TestListener: a listener knows the open connections and forgets closed ones. It closes those that have sent nothing,
// or all.
func TestListener(t *testing.T) {
	l := listen(t)
	_, ended := pair(t, l)
	silent, _ := pair(t, l)
	speaking, heard := pair(t, l)
	if err := ended.Close(); err != nil || len(l.conns) != 2 {
		t.Errorf("%d connections are known, %v", len(l.conns), err)
	}
	if _, err := speaking.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := heard.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	l.closeConns(false)
	if _, err := silent.Read(make([]byte, 1)); err == nil || len(l.conns) != 1 {
		t.Errorf("a silent connection: %v; %d are known", err, len(l.conns))
	}
	l.closeConns(true)
	if _, err := speaking.Read(make([]byte, 1)); err == nil || len(l.conns) != 0 {
		t.Errorf("the other connection: %v; %d are known", err, len(l.conns))
	}
}

// TestServerCutsWhatDoesNotEnd: a call that goes on is cut when the time is over, and a server without calls is not.
func TestServerCutsWhatDoesNotEnd(t *testing.T) {
	for _, calls := range []bool{false, true} {
		l, began := listen(t), make(chan struct{})
		s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			close(began)
			<-stream.Context().Done()
			return stream.Context().Err()
		}))
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		ctx, over := context.WithCancel(t.Context())
		if calls {
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/a/b"); err != nil {
				t.Fatal(err)
			}
			<-began
			over() // its time is over at once
		}
		if cut := Server(ctx, s, l); cut != calls {
			t.Errorf("with a call: %t; cut: %t", calls, cut)
		}
		over()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}
