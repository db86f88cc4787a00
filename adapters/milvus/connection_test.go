package milvus_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/internal/authority"
	"github.com/likenessdb/likeness/rerank"
)

func open(t *testing.T, o milvus.Options) *milvus.Store {
	t.Helper()
	s, err := milvus.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func search(ctx context.Context, s *milvus.Store, collection string) error {
	_, err := s.Search(ctx, adapters.SearchRequest{Collection: collection, Probes: []rerank.Probe{{Vector: []float32{1, 2, 3}, Depth: 1}}})
	return err
}

// downAndUp: a dead server is said to be unavailable, a new one is found again
// by the same store, and a stopped one holds no call beyond its deadline.
func downAndUp(t *testing.T, server *servers.Server, o milvus.Options) {
	s := open(t, o)
	schema, rows := rowsSchema("outage", 1)
	if err := errors.Join(s.Create(t.Context(), schema), s.Write(t.Context(), "outage", schema, rows)); err != nil {
		t.Fatal(err)
	}
	hung(t, server, s)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("ping of a dead server: %v", err)
	}
	if err := search(t.Context(), s, "outage"); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("search of a dead server: %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for err := s.Ping(t.Context()); err != nil; err = s.Ping(t.Context()) {
		if !errors.Is(err, adapters.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if err := search(t.Context(), s, "outage"); err != nil {
		t.Errorf("search of a restarted server: %v", err)
	}
}

// hung: a server that does not answer holds a call until its deadline.
func hung(t *testing.T, server *servers.Server, s *milvus.Store) {
	t.Helper()
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 1000 { // the signal takes its time to reach every thread
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err = search(ctx, s, "outage")
		cancel()
		if err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("search of a hung server: %v", err)
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := search(t.Context(), s, "outage"); err != nil {
		t.Errorf("search of a server that goes on: %v", err)
	}
}

func credentialsRefused(t *testing.T, o milvus.Options) {
	for _, wrong := range []milvus.Options{
		{Address: o.Address},
		{Address: o.Address, Username: "root", Password: "wrong"},
		{Address: o.Address, Username: "nobody", Password: "Milvus"},
	} {
		s := open(t, wrong)
		if err := s.Ping(t.Context()); !errors.Is(err, adapters.ErrRefused) {
			t.Errorf("ping as %q: %v, want ErrRefused", wrong.Username, err)
		}
		if err := search(t.Context(), s, "any"); !errors.Is(err, adapters.ErrRefused) {
			t.Errorf("search as %q: %v, want ErrRefused", wrong.Username, err)
		}
	}
}

// overTLS reaches the server through a front end that ends TLS.
func overTLS(t *testing.T, o milvus.Options) {
	issuer, err := authority.New("front end")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issuer.Issue(1, "localhost", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	front := frontEnd(t, certificate, o.Address)
	trusting := o
	trusting.Address, trusting.TLS = front, &tls.Config{RootCAs: authority.Pool(issuer), ServerName: "localhost"}
	if err := open(t, trusting).Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	trusting.TLS = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	if err := open(t, trusting).Ping(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("ping of a server that is not trusted: %v, want ErrUnavailable", err)
	}
}

// frontEnd passes what it hears over TLS to an address.
func frontEnd(t *testing.T, certificate tls.Certificate, to string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				return
			}
			pass := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src)
				dst.Close()
				src.Close()
			}
			wg.Go(func() { pass(out, in) })
			wg.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// TestHTTPPort: a port that speaks HTTP/1.1 gets a sentence without the words of HTTP/2.
func TestHTTPPort(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := open(t, milvus.Options{Address: strings.TrimPrefix(server.URL, "http://")})
	err := s.Ping(t.Context())
	if !errors.Is(err, adapters.ErrUnavailable) || !strings.Contains(err.Error(), "give Milvus's gRPC port, 19530") || strings.Contains(err.Error(), "frame") {
		t.Errorf("ping: %v, want ErrUnavailable with the gRPC port", err)
	}
}
