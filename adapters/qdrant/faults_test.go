package qdrant_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

func TestAPIKey(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: "right"})
	for key, want := range map[string]error{"right": nil, "wrong": adapters.ErrRefused, "": adapters.ErrRefused} {
		s := open(t, qdrant.Options{Address: server.Address, APIKey: key})
		if err := s.Ping(t.Context()); !errors.Is(err, want) {
			t.Errorf("ping with the key %q: %v, want %v", key, err, want)
		}
		if want == nil {
			want = adapters.ErrNotFound
		}
		if err := search(t, s, adapters.SearchRequest{Collection: "absent", Probes: probes(1, 4, 1)}); !errors.Is(err, want) {
			t.Errorf("search with the key %q: %v, want %v", key, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// jwt returns a token that grants the access, signed with the server's key.
func jwt(access, key string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"access":`+access+`}`))
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

// TestIdentifyWithRights: whether a name is a collection or an alias can be told only for collections that the
// credentials may read. A name that they may read, but that no list contains, is refused.
func TestIdentifyWithRights(t *testing.T) {
	const key = "key"
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key, Env: []string{"QDRANT__SERVICE__JWT_RBAC=true"}})
	as := func(key string) *qdrant.Store {
		s := open(t, qdrant.Options{Address: server.Address, APIKey: key})
		t.Cleanup(func() { s.Close() })
		return s
	}
	admin := as(key)
	for _, name := range []string{"a", "b"} {
		if err := admin.Create(t.Context(), schema(name, adapters.VectorField{Dim: 4})); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.SwitchAlias(t.Context(), "live", "a"); err != nil {
		t.Fatal(err)
	}
	for access, names := range map[string]map[string]any{
		`"r"`:                                  {"a": "a", "live": "a", "none": adapters.ErrNotFound},
		`[{"collection":"live","access":"r"}]`: {"live": adapters.ErrRefused, "a": adapters.ErrRefused},
		`[{"collection":"live","access":"r"},{"collection":"a","access":"r"}]`: {"live": "a", "a": "a", "b": adapters.ErrRefused},
		`[{"collection":"a","access":"r"}]`:                                    {"a": "a", "live": adapters.ErrRefused},
	} {
		s := as(jwt(access, key))
		for name, want := range names {
			got, err := s.Identify(t.Context(), name)
			if target, fails := want.(error); fails && !errors.Is(err, target) || !fails && (err != nil || got.Collection != want) {
				t.Errorf("access %s: %q is %+v, %v, want %v", access, name, got, err, want)
			}
		}
	}
}

// TestIdentifyWhileAnAliasMoves: Qdrant's lists can lack an alias while it is being switched. Its name is not taken
// for a collection.
func TestIdentifyWhileAnAliasMoves(t *testing.T) {
	s, _ := newest(t)
	for _, name := range []string{"a", "b"} {
		if err := s.Create(t.Context(), schema(name, adapters.VectorField{Dim: 4})); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	must(s.SwitchAlias(t.Context(), "live", "a"))
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			must(s.SwitchAlias(t.Context(), "live", []string{"b", "a"}[i%2]))
		}
	})
	for range 600 {
		id, err := s.Identify(t.Context(), "live")
		if must(err); id.Collection != "a" && id.Collection != "b" {
			t.Errorf("the alias is taken for %q", id.Collection)
			break
		}
	}
	stop()
	writer.Wait()
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]qdrant.Options{
		"no address":        {},
		"negative depth":    {Address: "localhost:1", Limits: adapters.Limits{MaxDepth: -1}},
		"negative timeout":  {Address: "localhost:1", Timeout: -1},
		"address with junk": {Address: "local host:%%"},
	} {
		if s, err := qdrant.Open(o); !errors.Is(err, adapters.ErrStore) {
			t.Errorf("%s: %v, want ErrStore", name, err)
			if s != nil {
				s.Close()
			}
		}
	}
}

// TestRESTPort: the error for a REST port in place of the gRPC port says so, without terms of HTTP/2.
func TestRESTPort(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	s := open(t, qdrant.Options{Address: strings.TrimPrefix(server.REST, "http://")})
	defer s.Close()
	err := s.Ping(t.Context())
	if !errors.Is(err, adapters.ErrUnavailable) || !strings.Contains(err.Error(), "give its gRPC port, 6334") || strings.Contains(err.Error(), "frame") {
		t.Errorf("ping: %v, want ErrUnavailable with the gRPC port", err)
	}
}

// TestNobodyThere: a port where nothing listens is ErrUnavailable at once.
func TestNobodyThere(t *testing.T) {
	s := open(t, qdrant.Options{Address: "127.0.0.1:1"})
	defer s.Close()
	if err := s.Ping(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("ping: %v, want ErrUnavailable", err)
	}
}

// restarted starts a server with one row in the collection "rows".
func restarted(t *testing.T) (*servers.Server, *qdrant.Store, adapters.SearchRequest) {
	t.Helper()
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	s := open(t, qdrant.Options{Address: server.Address, DescribeFor: time.Hour})
	t.Cleanup(func() { s.Close() })
	sc := schema("rows", adapters.VectorField{Dim: 4})
	if err := s.Create(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	write(t, s, sc, adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{rerank.NewMatrix(1, 4)}})
	r := adapters.SearchRequest{Collection: "rows", Probes: probes(2, 4, 3)}
	if err := search(t, s, r); err != nil {
		t.Fatal(err)
	}
	return server, s, r
}

// TestRestart kills the server between searches: ErrUnavailable, and answers
// again once it is back.
func TestRestart(t *testing.T) {
	server, s, r := restarted(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := search(t, s, r); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("search of a dead server: %v, want ErrUnavailable", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, stop := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for {
		err := search(t, s, r)
		if err == nil {
			return
		}
		if !errors.Is(err, adapters.ErrUnavailable) {
			t.Fatalf("search after the restart: %v", err)
		}
		select {
		case <-again.C:
		case <-stop:
			t.Fatalf("the store did not recover: %v", err)
		}
	}
}

// TestStoppedServer: a server that holds its connections and answers nothing
// costs no more than the deadline.
func TestStoppedServer(t *testing.T) {
	server, s, r := restarted(t)
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer server.Signal(syscall.SIGCONT)
	var err error
	for range 1000 { // the signal takes its time to reach every thread
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = s.Search(ctx, r)
		cancel()
		if err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("search of a stopped server: %v, want the deadline", err)
	}
}

// TestRequestTooLarge: a request over the limit is refused before any call.
func TestRequestTooLarge(t *testing.T) {
	server, _, _ := restarted(t)
	var count counter
	o := qdrant.Options{Address: server.Address, Limits: adapters.Limits{MaxMessageBytes: 4096}}
	o.DialOptions = append(o.DialOptions, count.dialOption())
	s := open(t, o)
	defer s.Close()
	err := search(t, s, adapters.SearchRequest{Collection: "rows", Probes: probes(100, 4, 3)})
	var limit *adapters.LimitError
	if !errors.As(err, &limit) || limit.Limit != "max_message_bytes" || limit.Max != 4096 || limit.Value < 4096 {
		t.Errorf("a request of 100 probes: %v, want a LimitError of max_message_bytes", err)
	}
	if n := count.calls.Load(); n > 1 { // one for the sample of norms
		t.Errorf("%d calls were made", n)
	}
}

// TestTLS reaches the server through a proxy that terminates TLS.
func TestTLS(t *testing.T) {
	server, _, r := restarted(t)
	upstream := &http.Transport{Protocols: &http.Protocols{}}
	upstream.Protocols.SetUnencryptedHTTP2(true)
	defer upstream.CloseIdleConnections()
	to := &url.URL{Scheme: "http", Host: server.Address}
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     upstream,
		FlushInterval: -1,
	})
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	for name, o := range map[string]struct {
		roots *x509.CertPool
		want  error
	}{"trusted": {roots, nil}, "not trusted": {x509.NewCertPool(), adapters.ErrUnavailable}} {
		s := open(t, qdrant.Options{Address: front.Listener.Addr().String(), TLS: &tls.Config{RootCAs: o.roots, MinVersion: tls.VersionTLS12}})
		if err := search(t, s, r); !errors.Is(err, o.want) {
			t.Errorf("%s: %v, want %v", name, err, o.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestManyCancels: Qdrant closes a connection on which many calls were
// cancelled; the calls of others on it are sent again and do not fail.
func TestManyCancels(t *testing.T) {
	_, store, r := restarted(t)
	s := guard.New(store, guard.Options{RetryBudget: 0.1})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := s.Search(ctx, r)
					done <- err
				}()
				cancel()
				if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled search: %v", err)
				}
				if _, err := s.Search(t.Context(), r); err != nil {
					t.Errorf("a search beside cancelled ones: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// TestDeadlinesNeverGrow: the server gets the remaining time of a caller's deadline, as gRPC's
// timeout and as Qdrant's own in whole seconds, rounded up.
func TestDeadlinesNeverGrow(t *testing.T) {
	server, _, r := restarted(t)
	const searches = 1000
	var seen int
	var given time.Time
	s := open(t, qdrant.Options{Address: server.Address, DescribeFor: time.Hour, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if batch, ok := req.(*client.QueryBatchPoints); ok {
				seen++
				at, has := ctx.Deadline()
				if !has || at.After(given) {
					t.Errorf("the deadline %s became %s", given, at)
				}
				left := time.Until(at)
				if field := time.Duration(batch.GetTimeout()) * time.Second; field < left || field > left.Truncate(time.Second)+2*time.Second {
					t.Errorf("%s were left, Qdrant was told %s", left, field)
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
	}})
	defer s.Close()
	for i := range searches {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Duration(i)*7*time.Millisecond)
		given, _ = ctx.Deadline()
		if _, err := s.Search(ctx, r); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if seen < searches {
		t.Errorf("%d of %d searches were seen", seen, searches)
	}
	t.Logf("reliability row=1 figure=%d of %d forwarded deadlines within what was left, in gRPC's and in Qdrant's own field", seen, searches)
}
