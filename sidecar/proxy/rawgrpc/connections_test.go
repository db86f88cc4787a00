package rawgrpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
)

// startServer runs a server in front of a peer until the test ends.
func startServer(t *testing.T, p *peer, upstreamTLS, serverTLS *tls.Config, options ...grpc.ServerOption) (s *rawgrpc.Server, address string) {
	t.Helper()
	database := grpc.NewServer(append(options, grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(1<<30))...)
	upstream, err := rawgrpc.Dial(serve(t, database.Serve), upstreamTLS, nil)
	if err != nil {
		t.Fatal(err)
	}
	s = rawgrpc.NewServer(rawgrpc.Options{Upstream: upstream, TLS: serverTLS})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Drain(ctx)
		_ = upstream.Close()
		database.Stop()
	})
	return s, serve(t, s.Serve)
}

// client connects until the test ends.
func client(t *testing.T, address string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate, of 127.0.0.1
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	own := &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}}
	for name, c := range map[string]struct {
		upstream, server *tls.Config
		database         []grpc.ServerOption
		client           credentials.TransportCredentials
	}{
		"towards the client":   {server: &tls.Config{Certificates: web.TLS.Certificates}, client: credentials.NewClientTLSFromCert(roots, "")},
		"towards the database": {upstream: &tls.Config{RootCAs: roots}, database: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(own))}, client: insecure.NewCredentials()},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := startServer(t, &peer{}, c.upstream, c.server, c.database...)
			conn := client(t, address, c.client)
			for _, size := range []int{0, 100, 20 << 10, 5 << 20} {
				request, answer := bytes.Repeat([]byte("xy"), size/2), []byte(nil)
				if err := conn.Invoke(t.Context(), knownMethod, &request, &answer); err != nil || !bytes.Equal(answer, reversed(request)) {
					t.Errorf("%d bytes came back of %d, %v", len(answer), size, err)
				}
			}
		})
	}
	t.Run("an unknown certificate", func(t *testing.T) {
		_, address := startServer(t, &peer{}, &tls.Config{RootCAs: x509.NewCertPool()}, nil, grpc.Creds(credentials.NewTLS(own)))
		request, answer := []byte("q"), []byte(nil)
		if err := client(t, address, insecure.NewCredentials()).Invoke(t.Context(), knownMethod, &request, &answer); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
	})
}

// A client that is told to reconnect elsewhere gets the answers to its calls in flight, and makes
// no other call. An idle connection does not delay the end.
func TestDrain(t *testing.T) {
	s, address := startServer(t, &peer{}, nil, nil)
	mute, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	conn := client(t, address, insecure.NewCredentials())
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, unknownMethod)
	if err != nil {
		t.Fatal(err)
	}
	exchange := func() {
		t.Helper()
		request, answer := []byte("ab"), []byte(nil)
		if err := stream.SendMsg(&request); err != nil {
			t.Error(err)
		}
		if err := stream.RecvMsg(&answer); err != nil || string(answer) != "ba" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	exchange()
	drained := make(chan bool)
	go func() { drained <- s.Drain(context.Background()) }()
	for err == nil { // a call may have been on its way
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		request, answer := []byte("q"), []byte(nil)
		err = conn.Invoke(ctx, knownMethod, &request, &answer)
		cancel()
	}
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	exchange()
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	var none []byte
	if err := stream.RecvMsg(&none); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if <-drained {
		t.Error("drain had to cut")
	}
}

func TestDrainCuts(t *testing.T) {
	p := &peer{blocked: make(chan context.Context)}
	s, address := startServer(t, p, nil, nil)
	failed := make(chan error)
	go func() {
		request, answer := []byte("q"), []byte(nil)
		failed <- client(t, address, insecure.NewCredentials()).Invoke(t.Context(), knownMethod, &request, &answer)
	}()
	database := <-p.blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !s.Drain(ctx) {
		t.Error("nothing was cut")
	}
	<-database.Done()
	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// When a database closes a connection, the calls on it fail, and the next call reaches the database
// again.
func TestADatabaseThatRestarts(t *testing.T) {
	p := &peer{blocked: make(chan context.Context)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	start := func(l net.Listener) *grpc.Server {
		database := grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodecV2(bytesCodec{}))
		go func() { _ = database.Serve(l) }()
		t.Cleanup(database.Stop)
		return database
	}
	database := start(l)
	upstream, err := rawgrpc.Dial(address, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := rawgrpc.NewServer(rawgrpc.Options{Upstream: upstream})
	t.Cleanup(func() {
		drain(s)
		_ = upstream.Close()
	})
	conn := client(t, serve(t, s.Serve), insecure.NewCredentials())
	failed := make(chan error)
	go func() {
		request, answer := []byte("q"), []byte(nil)
		failed <- conn.Invoke(t.Context(), knownMethod, &request, &answer)
	}()
	<-p.blocked
	database.Stop()
	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	start(l)
	request, answer := []byte("ab"), []byte(nil)
	if err := conn.Invoke(t.Context(), answeredMethod, &request, &answer); err != nil || string(answer) != "ba" {
		t.Errorf("after the restart: %q, %v", answer, err)
	}
}
