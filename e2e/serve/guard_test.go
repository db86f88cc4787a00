package serve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/authority"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// adminPaths are all that the admin listener answers, but for probes, and some that it
// does not: who may not ask does not learn what there is.
func adminPaths() []string {
	return []string{
		"GET /", "GET /status.json", "GET /metrics", "GET /plugins", "POST /reload", "GET /proxy", "POST /proxy/off", "POST /proxy/on",
		"GET /experiments", "POST /experiments/stop", "POST /experiments/restart",
		"GET /debug/pprof/", "GET /debug/pprof/cmdline", "GET /debug/pprof/profile", "GET /debug/pprof/symbol", "GET /debug/pprof/trace", "GET /debug/pprof/heap",
		"GET /nothing", "GET /page/nothing", "GET /livez/", "GET /livez/metrics", "GET /LIVEZ", "GET //livez", "GET /metrics/../livez", "GET /readyz/../metrics", "GET /livez%2f..%2fmetrics", "HEAD /metrics",
	}
}

// TestAdminGuard asks every path of the admin listener with and without a certificate
// and tokens of all kinds, where it wants either or both.
func TestAdminGuard(t *testing.T) {
	dir := t.TempDir()
	ours, err := authority.New("ours")
	must2(t, err)
	theirs, err := authority.New("theirs")
	must2(t, err)
	must2(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ours.PEM(), 0o600))
	must2(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte(`
- {name: operator, token: operator-token, admin: true}
- {name: operator of one route, token: route-token, admin: true, routes: [things]}
- {name: application, token: application-token}
`), 0o600))
	serving, err := ours.Issue(1, "", time.Now().Add(time.Hour))
	must2(t, err)
	cert, certKey, err := serving.Write(dir, "server")
	must2(t, err)
	clients := map[string]*http.Client{}
	for name, by := range map[string]*authority.Authority{"none": nil, "ours": ours, "theirs": theirs} {
		c := &tls.Config{RootCAs: authority.Pool(ours), MinVersion: tls.VersionTLS12}
		if by != nil {
			issued, err := by.Issue(2, "", time.Now().Add(time.Hour))
			must2(t, err)
			pair, err := issued.TLS()
			must2(t, err)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // whatever the server asks for
		}
		transport := &http.Transport{TLSClientConfig: c}
		t.Cleanup(transport.CloseIdleConnections)
		clients[name] = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	withTLS := fmt.Sprintf(", admin_tls: {cert_file: %q, key_file: %q, client_ca_file: %q}", cert, certKey, filepath.Join(dir, "ca.pem"))
	withTokens := fmt.Sprintf(", admin_auth: {tokens_file: %q}", filepath.Join(dir, "tokens"))
	for name, tc := range map[string]struct{ scheme, more string }{
		"tokens":       {"http://", withTokens},
		"certificates": {"https://", withTLS},
		"both":         {"https://", withTLS + withTokens},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, strings.Replace(base, `admin: "127.0.0.1:0"`, `admin: "127.0.0.1:0"`+tc.more, 1), true)
			for _, certificate := range []string{"none", "ours", "theirs"} {
				for _, authorization := range []string{"", "Bearer operator-token", "bearer operator-token", "Bearer route-token", "Bearer application-token", "Bearer wrong", "Basic operator-token", "operator-token", "Bearer operator-tokenx", "Bearer "} {
					want := 0 // let in
					switch {
					case strings.Contains(tc.more, "admin_tls") && certificate == "none":
						want = http.StatusUnauthorized
					case !strings.Contains(tc.more, "admin_auth") || strings.EqualFold(authorization, "Bearer operator-token"):
					case authorization == "Bearer route-token" || authorization == "Bearer application-token":
						want = http.StatusForbidden
					default:
						want = http.StatusUnauthorized
					}
					guarded(t, clients[certificate], tc.scheme+s.at.Admin, authorization, want, tc.scheme == "https://" && certificate == "theirs")
				}
			}
			s.stop()
			must2(t, s.wait())
		})
	}
}

// guarded asks all paths. A certificate of another authority gets no connection at all.
func guarded(t *testing.T, client *http.Client, at, authorization string, want int, noConnection bool) {
	t.Helper()
	ask := func(method, path string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, at, http.NoBody)
		must2(t, err)
		r.URL.Opaque = "//" + r.URL.Host + path
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, answer.Body.Close()
	}
	for _, path := range adminPaths() {
		method, path, _ := strings.Cut(path, " ")
		if want == 0 && (strings.HasSuffix(path, "/profile") || strings.HasSuffix(path, "/trace")) {
			continue // they take their time
		}
		code, err := ask(method, path)
		switch {
		case noConnection:
			if err == nil {
				t.Errorf("%s %s: %d with a certificate of another authority", method, path, code)
			}
		case err != nil:
			t.Errorf("%s %s: %v", method, path, err)
		case want != 0 && code != want, want == 0 && (code == http.StatusUnauthorized || code == http.StatusForbidden):
			t.Errorf("%s %s as %q: %d, want %d", method, path, authorization, code, want)
		}
	}
	for _, probe := range []string{"/livez", "/readyz", "/healthz"} {
		if code, err := ask(http.MethodGet, probe); !noConnection && (err != nil || code != http.StatusOK) {
			t.Errorf("%s: %d, %v", probe, code, err)
		}
	}
}

// doorkeeper is a TLS listener before a database that wants a client certificate of
// the authorities of the moment, and notes the serial numbers that come.
type doorkeeper struct {
	mu      sync.Mutex
	trusted *x509.CertPool
	serials []int64
	open    map[net.Conn]bool
}

// trust closes all connections. New ones must present a certificate of the new authorities.
func (d *doorkeeper) trust(p *x509.CertPool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trusted, d.serials = p, nil
	for c := range d.open {
		_ = c.Close()
	}
}

func (d *doorkeeper) seen() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.serials
}

func (d *doorkeeper) start(t *testing.T, serving tls.Certificate, protocol, database string) string {
	t.Helper()
	d.open = map[net.Conn]bool{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must2(t, err)
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return &tls.Config{Certificates: []tls.Certificate{serving}, ClientCAs: d.trusted, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{protocol},
			MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}, nil
	}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.relay(tls.Server(conn, c), database) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); d.trust(nil); all.Wait() })
	return l.Addr().String()
}

func (d *doorkeeper) relay(in *tls.Conn, database string) {
	defer in.Close()
	if in.Handshake() != nil {
		return
	}
	out, err := net.Dial("tcp", database)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	d.serials = append(d.serials, in.ConnectionState().PeerCertificates[0].SerialNumber.Int64())
	d.open[in] = true
	d.mu.Unlock()
	go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
	_, _ = io.Copy(in, out)
	d.mu.Lock()
	delete(d.open, in)
	d.mu.Unlock()
}

// TestStoreCertificatesRotate: the client certificate towards a store is read again when
// its files change: when the store trusts the next authority alone, the API, the
// proxy and its REST form reach it with the certificate of now.
func TestStoreCertificatesRotate(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillPlain(t, db)
	dir := t.TempDir()
	ca, err := authority.New("of the store")
	must2(t, err)
	must2(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o600))
	issued, err := ca.Issue(1, "", time.Now().Add(time.Hour))
	must2(t, err)
	serving, err := issued.TLS()
	must2(t, err)
	var door [2]doorkeeper // gRPC, REST
	rotate := func(serial int64) {
		t.Helper()
		of, err := authority.New(fmt.Sprint("of clients ", serial))
		must2(t, err)
		pair, err := of.Issue(serial, "", time.Now().Add(time.Hour))
		must2(t, err)
		_, _, err = pair.Write(dir, "client")
		must2(t, err)
		for i := range door {
			door[i].trust(authority.Pool(of))
		}
	}
	rotate(10)
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, tls: {enabled: true, ca_file: %q, cert_file: %q, key_file: %q}}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20, timeout: 10s, latency_budget: 10s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: "https://%s"}
`, door[0].start(t, serving, "h2", db.Address), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key"), door[1].start(t, serving, "http/1.1", strings.TrimPrefix(db.REST, "http://"))))
	search, points := likenessv1.NewSearchServiceClient(connect(t, at.GRPC)), qdrant.NewPointsClient(connect(t, at.Proxy.GRPC))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for serial := int64(10); serial < 13; serial++ {
		if serial > 10 {
			rotate(serial)
		}
		for what, call := range map[string]func(context.Context) error{
			"api": func(ctx context.Context) error {
				r, err := search.Search(ctx, &likenessv1.SearchRequest{Route: "things", K: 3, Query: &likenessv1.Query{Vector: query}})
				if err == nil && r.GetDegraded() != nil {
					err = fmt.Errorf("degraded: %v", r.GetDegraded())
				}
				return err
			},
			"proxy": func(ctx context.Context) error {
				_, err := points.Count(ctx, &qdrant.CountPoints{CollectionName: "plain"})
				return err
			},
			"rest": func(ctx context.Context) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Proxy.REST+"/collections/plain", http.NoBody)
				must2(t, err)
				answer, err := (&http.Client{Transport: transport}).Do(r)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				if answer.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s", answer.Status)
				}
				return errors.Join(err, answer.Body.Close())
			},
		} {
			soon(t, what, call)
		}
		for i := range door {
			for _, got := range door[i].seen() {
				if got != serial {
					t.Errorf("a connection came with the certificate %d, want %d", got, serial)
				}
			}
			if len(door[i].seen()) == 0 {
				t.Errorf("nobody came to listener %d with certificate %d", i, serial)
			}
		}
	}
}

// soon calls until that succeeds: connections that a store ended are made again after a moment.
func soon(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for err := call(ctx); err != nil; err = call(ctx) {
		if ctx.Err() != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		pause(t, 20*time.Millisecond)
	}
}
