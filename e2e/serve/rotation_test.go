package serve_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/authority"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// secured is a sidecar with certificates on both sides of every listener.
type secured struct {
	t    *testing.T
	dir  string
	at   serve.Addresses
	key  atomic.Pointer[tls.Config] // of clients, as it is now
	last *authority.Authority
	// trust is held by those who call; who changes what clients trust waits for them.
	trust sync.RWMutex
}

func (s *secured) rotate(serial int64) {
	s.t.Helper()
	ca, err := authority.New(fmt.Sprint("ca ", serial))
	must2(s.t, err)
	trusted := []*authority.Authority{ca}
	if s.last != nil {
		trusted = append(trusted, s.last) // both, as long as certificates of both are about
	}
	var bundle []byte
	for _, a := range trusted {
		bundle = append(bundle, a.PEM()...)
	}
	client, err := ca.Issue(serial, "", time.Now().Add(time.Hour))
	must2(s.t, err)
	server, err := ca.Issue(serial, "", time.Now().Add(time.Hour))
	must2(s.t, err)
	pair, err := client.TLS()
	must2(s.t, err)
	// Nobody presents a certificate of the authority that goes now. Who is trusted is
	// changed first, on both sides, then what is presented.
	must2(s.t, s.settled(func() error { return authority.Write(filepath.Join(s.dir, "ca.pem"), bundle) }))
	if before := s.key.Load(); before != nil {
		both := before.Clone()
		both.RootCAs = authority.Pool(trusted...)
		s.trust.Lock()
		s.key.Store(both)
		s.trust.Unlock()
	}
	_, _, err = server.Write(s.dir, "server")
	must2(s.t, err)
	s.key.Store(&tls.Config{RootCAs: authority.Pool(trusted...), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	s.last = ca
}

// settled makes a change while nobody calls with earlier certificates or authorities.
func (s *secured) settled(change func() error) error {
	s.trust.Lock()
	defer s.trust.Unlock()
	return change()
}

// calls makes one call on a new connection to each listener.
func (s *secured) calls(ctx context.Context) error {
	s.trust.RLock()
	defer s.trust.RUnlock()
	secure := s.key.Load()
	dial := func(address string) (*grpc.ClientConn, error) {
		return grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	}
	api, err := dial(s.at.GRPC)
	if err != nil {
		return err
	}
	defer api.Close()
	if err := s.api(ctx, api); err != nil {
		return err
	}
	behind, err := dial(s.at.Proxy.GRPC)
	if err != nil {
		return err
	}
	defer behind.Close()
	if err := s.proxied(ctx, behind); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	return errors.Join(get(ctx, client, "https://"+s.at.Proxy.REST+"/collections"), get(ctx, client, "https://"+s.at.Admin+"/metrics"),
		get(ctx, client, "https://"+s.at.REST+"/v1/routes"))
}

func (s *secured) api(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := likenessv1.NewSearchServiceClient(conn).Search(ctx, &likenessv1.SearchRequest{Route: "things", K: 5, Query: &likenessv1.Query{Vector: query}})
	return err
}

func (s *secured) proxied(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := qdrant.NewPointsClient(conn).Search(ctx, &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 5})
	return err
}

func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w", url, answer.Status, err)
	}
	return nil
}

// TestRotation changes the certificates of every listener, and the authorities of its
// clients, while calls come on new connections and on those that stand: none fails.
// What is expired, of another authority or older than TLS 1.2 is refused on all of
// them. LIKENESS_SOAK=1 makes 100 rotations.
func TestRotation(t *testing.T) {
	rotations := 5
	if os.Getenv(soak) != "" {
		rotations = 100
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillPlain(t, db)
	s := &secured{t: t, dir: t.TempDir()}
	s.rotate(1)
	files := fmt.Sprintf("{cert_file: %q, key_file: %q, client_ca_file: %q}", filepath.Join(s.dir, "server.pem"), filepath.Join(s.dir, "server.key"), filepath.Join(s.dir, "ca.pem"))
	s.at = startListening(t, fmt.Sprintf(`listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "127.0.0.1:0", tls: %[1]s, admin_tls: %[1]s}
models: {w: {path: w.safetensors}}
stores: {main: {kind: qdrant, address: %[2]q}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %[3]q, tls: %[1]s}
`, files, db.Address, db.REST))
	var standing [2]*grpc.ClientConn
	for i, address := range []string{s.at.GRPC, s.at.Proxy.GRPC} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(s.key.Load())))
		must2(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		standing[i] = conn
	}
	must2(t, errors.Join(s.api(t.Context(), standing[0]), s.proxied(t.Context(), standing[1])))
	var calls, failed atomic.Int64
	var first atomic.Pointer[string]
	count := func(err error) {
		calls.Add(1)
		if err != nil {
			failed.Add(1)
			text := err.Error()
			first.CompareAndSwap(nil, &text)
		}
	}
	done := make(chan struct{})
	var callers sync.WaitGroup
	under := func(call func() error) {
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					count(call())
				}
			}
		})
	}
	under(func() error { return s.calls(t.Context()) })
	under(func() error { return s.api(t.Context(), standing[0]) })
	under(func() error { return s.proxied(t.Context(), standing[1]) })
	for n := range rotations {
		s.rotate(int64(2 + n))
		for until := calls.Load() + 4; calls.Load() < until; {
			count(s.calls(t.Context()))
		}
	}
	close(done)
	callers.Wait()
	if text := first.Load(); text != nil {
		t.Error(*text)
	}
	t.Logf("reliability row=29 figure=%d rotations of certificates and authorities on five listeners under %d calls: %d failed", rotations, calls.Load(), failed.Load())
	s.refusals()
}

// refusals: what no listener takes.
func (s *secured) refusals() {
	t := s.t
	good := s.key.Load()
	stranger, err := authority.New("stranger")
	must2(t, err)
	issue := func(a *authority.Authority, ends time.Time) tls.Certificate {
		p, err := a.Issue(9, "", ends)
		must2(t, err)
		pair, err := p.TLS()
		must2(t, err)
		return pair
	}
	present := func(pair tls.Certificate) func(c *tls.Config) { // whatever the listener would take
		return func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
	}
	change := map[string]func(c *tls.Config){
		"an expired certificate":         present(issue(s.last, time.Now().Add(-time.Hour))),
		"another authority's":            present(issue(stranger, time.Now().Add(time.Hour))),
		"no certificate":                 func(c *tls.Config) { c.Certificates = nil },
		"TLS 1.1":                        func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 },
		"a server of another authority":  func(c *tls.Config) { c.RootCAs = authority.Pool(stranger) },
		"a server of another name":       func(c *tls.Config) { c.ServerName = "other.example" },
		"nothing wrong with certificate": func(*tls.Config) {},
	}
	for name, address := range map[string]string{"API": s.at.GRPC, "REST": s.at.REST, "admin": s.at.Admin, "proxy": s.at.Proxy.GRPC, "proxy's REST": s.at.Proxy.REST} {
		for what, apply := range change {
			c := good.Clone()
			c.NextProtos = []string{"h2"}
			if name == "admin" {
				c.NextProtos = nil
			}
			apply(c)
			err := handshake(address, c)
			switch wanted := what == "nothing wrong with certificate" || what == "no certificate" && name == "admin"; {
			case wanted && err != nil:
				t.Errorf("%s: %s: %v", name, what, err)
			case !wanted && err == nil:
				t.Errorf("%s takes %s", name, what)
			}
		}
	}
	bare := good.Clone()
	bare.Certificates = nil
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: bare, DisableKeepAlives: true}}
	if err := get(t.Context(), client, "https://"+s.at.Admin+"/livez"); err != nil {
		t.Errorf("a probe without a certificate: %v", err)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/cmdline", "/"} {
		if err := get(t.Context(), client, "https://"+s.at.Admin+path); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s without a certificate: %v", path, err)
		}
	}
}

// handshake makes a connection and waits for what the other side says of the
// certificate, which in TLS 1.3 comes after the handshake.
func handshake(address string, c *tls.Config) error {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return err
	}
	defer conn.Close()
	must := func(err error) bool { return err != nil && !errors.Is(err, os.ErrDeadlineExceeded) }
	if c.NextProtos != nil {
		if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
			return err
		}
	} else if _, err := conn.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); must(err) {
		return err
	}
	return nil
}
