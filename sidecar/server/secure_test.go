package server_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/likenessdb/likeness/internal/authority"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

func durationOf(ms int64) *durationpb.Duration {
	return durationpb.New(time.Duration(ms) * time.Millisecond)
}

// certifier signs certificates in files.
type certifier struct{ *authority.Authority }

func newAuthority(t *testing.T, name string) certifier {
	t.Helper()
	a, err := authority.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return certifier{a}
}

// issue writes a certificate for 127.0.0.1 and its key. Files that are written again get another
// time, so that the change is noticed however coarse file times are.
func (a certifier) issue(t *testing.T, dir, name string, serial int64) (certFile, keyFile string) {
	t.Helper()
	pair, err := a.Issue(serial, "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	write(t, certFile, pair.Cert, serial)
	write(t, keyFile, pair.Key, serial)
	return certFile, keyFile
}

func write(t *testing.T, name string, data []byte, age int64) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000+age, 0)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func (a certifier) file(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "ca.pem")
	write(t, name, a.PEM(), 1)
	return name
}

func ask(t *testing.T, conn grpc.ClientConnInterface) error {
	t.Helper()
	_, err := likenessv1.NewSearchServiceClient(conn).Search(t.Context(), question())
	return err
}

func TestTLSAndRotation(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t, "one")
	cert, key := ca.issue(t, dir, "server", 1)
	w := start(t, func(o *server.Options) { o.TLS = server.TLS{CertFile: cert, KeyFile: key} })

	var seen int64
	config := &tls.Config{RootCAs: authority.Pool(ca.Authority), VerifyConnection: func(s tls.ConnectionState) error {
		seen = s.PeerCertificates[0].SerialNumber.Int64()
		return nil
	}}
	standing := dial(t, w.address, credentials.NewTLS(config))
	if err := ask(t, standing); err != nil || seen != 1 {
		t.Fatalf("serial %d, %v", seen, err)
	}
	if err := ask(t, w.conn); err == nil {
		t.Error("plain text is answered")
	}
	old := &tls.Config{RootCAs: authority.Pool(ca.Authority), MaxVersion: tls.VersionTLS11}
	if err := ask(t, dial(t, w.address, credentials.NewTLS(old))); err == nil {
		t.Error("TLS 1.1 is answered")
	}
	write(t, cert, []byte("half of a rotation"), 2)
	if err := ask(t, dial(t, w.address, credentials.NewTLS(config))); err != nil || seen != 1 {
		t.Errorf("in the middle of a rotation: serial %d, %v", seen, err)
	}
	for serial := int64(3); serial < 8; serial++ {
		ca.issue(t, dir, "server", serial)
		if err := ask(t, dial(t, w.address, credentials.NewTLS(config))); err != nil || seen != serial {
			t.Errorf("after rotation %d: serial %d, %v", serial, seen, err)
		}
		if err := ask(t, standing); err != nil {
			t.Errorf("the connection that stood: %v", err)
		}
	}
}

// TestFilesAreReported: the status reports the state of the listener's and the callers' files. A
// file that cannot be used makes one log line, not one for each call.
func TestFilesAreReported(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t, "one")
	cert, key := ca.issue(t, dir, "server", 1)
	tokens := filepath.Join(dir, "tokens.yaml")
	write(t, tokens, []byte("- {name: all, token: canary}\n"), 1)
	var listener func() telemetry.Files
	w := start(t, func(o *server.Options) {
		o.TokensFile = tokens
		o.TLS = server.TLS{CertFile: cert, KeyFile: key, Report: func(now func() telemetry.Files) { listener = now }}
	})
	before := listener()
	if left := time.Until(before.NotAfter); left <= 0 || left > time.Hour || before.Refused || !before.NotBefore.Before(time.Now()) {
		t.Errorf("at the start: %+v", before)
	}
	write(t, cert, []byte("half of a rotation"), 2)
	write(t, tokens, []byte("none"), 2)
	for range 20 {
		if now := listener(); now.NotAfter != before.NotAfter || !now.Refused {
			t.Fatalf("in the middle of a rotation: %+v", now)
		}
		if !w.server.TokensFile().Refused {
			t.Fatal("a tokens file that cannot be read is not refused")
		}
	}
	if n := strings.Count(w.log.String(), "changed files cannot be used"); n != 2 {
		t.Errorf("%d lines on two changes:\n%s", n, w.log)
	}
	ca.issue(t, dir, "server", 3)
	write(t, tokens, []byte("- {name: all, token: canary}\n"), 1) // as it was
	if now := listener(); now.Refused || w.server.TokensFile().Refused {
		t.Errorf("after it: %+v, tokens %+v", now, w.server.TokensFile())
	}
}

func TestMutualTLS(t *testing.T) {
	dir, ca, stranger := t.TempDir(), newAuthority(t, "one"), newAuthority(t, "two")
	cert, key := ca.issue(t, dir, "server", 1)
	w := start(t, func(o *server.Options) {
		o.TLS = server.TLS{CertFile: cert, KeyFile: key, ClientCAFile: ca.file(t, dir)}
	})
	client := func(a *certifier, name string) *tls.Config {
		c := &tls.Config{RootCAs: authority.Pool(ca.Authority)}
		if a != nil {
			pair, err := tls.LoadX509KeyPair(a.issue(t, dir, name, 9))
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c
	}
	if err := ask(t, dial(t, w.address, credentials.NewTLS(client(&ca, "client")))); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := ask(t, dial(t, w.address, credentials.NewTLS(client(nil, "")))); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	if err := ask(t, dial(t, w.address, credentials.NewTLS(client(&stranger, "stranger")))); status.Code(err) != codes.Unavailable {
		t.Errorf("with a stranger's certificate: %v", err)
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	write(t, bad, []byte("- name: x\n  tokn: secret-canary\n"), 1)
	for name, c := range map[string]change{
		"certificate": func(o *server.Options) { o.TLS = server.TLS{CertFile: bad, KeyFile: bad} },
		"tokens":      func(o *server.Options) { o.TokensFile = bad },
		"no file":     func(o *server.Options) { o.TokensFile = bad + "2" },
	} {
		o := server.Options{Logger: discard(), Recorder: &counts{}, Limits: server.Limits{MaxMessageBytes: 1, MaxConcurrentStreams: 1}}
		c(&o)
		if _, err := server.New(o); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	sum := sha256.Sum256([]byte("second-canary"))
	tokens := fmt.Sprintf("- {name: all, token: first-canary}\n- {name: some, sha256: %s, routes: [other]}\n- {name: empty, sha256: %x}\n", hex.EncodeToString(sum[:]), sha256.Sum256(nil))
	write(t, file, []byte(tokens), 1)
	w := start(t, func(o *server.Options) { o.TokensFile = file })
	with := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
	other := question()
	other.Route = "other"
	tests := []struct {
		token   string
		request *likenessv1.SearchRequest
		want    codes.Code
	}{
		{"first-canary", question(), codes.OK},
		{"first-canary", other, codes.OK},
		{"second-canary", other, codes.OK},
		{"second-canary", question(), codes.PermissionDenied},
		{"third-canary", question(), codes.Unauthenticated},
		{"", question(), codes.Unauthenticated},
	}
	for _, tc := range tests {
		_, err := w.search.Search(with(tc.token), tc.request)
		if status.Code(err) != tc.want {
			t.Errorf("token %q on %s: %v, want %v", tc.token, tc.request.GetRoute(), err, tc.want)
		}
	}
	if _, err := w.search.Search(t.Context(), question()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	routes, err := w.catalog.ListRoutes(with("second-canary"), &likenessv1.ListRoutesRequest{})
	if err != nil || len(routes.GetRoutes()) != 1 {
		t.Errorf("routes of the second: %v, %v", routes, err)
	}
	if _, err := grpc_health_v1.NewHealthClient(w.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	write(t, file, []byte("- {name: all, token: third-canary}\n"), 2)
	if _, err := w.search.Search(with("third-canary"), question()); err != nil {
		t.Errorf("after a change: %v", err)
	}
	if _, err := w.search.Search(with("first-canary"), question()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("withdrawn token: %v", err)
	}
	if strings.Contains(w.log.String(), "canary") {
		t.Errorf("the log holds a token:\n%s", w.log)
	}
}

func TestHealthAndDrain(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
		close(entered)
		<-release
		return search.Answer{}, nil
	}))
	health := grpc_health_v1.NewHealthClient(w.conn)
	check := func(service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
		r, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
	const serving, not = grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if check("") != not || check("likeness.v1.SearchService") != not || check("likeness.v1.CatalogService") != serving {
		t.Error("before the routes are open only the catalogue serves")
	}
	w.server.SetServing(true)
	w.server.SetRouteServing("things", true)
	if check("") != serving || check("likeness.v1.SearchService") != serving || check("route/things") != serving {
		t.Error("after the routes are open everything serves")
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.GetStatus() != serving {
		t.Fatalf("watch: %v, %v", first, err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := w.search.Search(context.WithoutCancel(t.Context()), question())
		answered <- err
	}()
	<-entered
	drained := make(chan bool, 1)
	go func() { drained <- w.server.Drain(time.Minute) }()
	for {
		if _, err := watch.Recv(); err != nil {
			break // the watch ends: it does not keep the server from draining
		}
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("a search in flight while draining: %v", err)
	}
	if <-drained {
		t.Error("calls were cut although all of them ended")
	}
}

func TestDrainCutsAfterTheGrace(t *testing.T) {
	entered := make(chan struct{})
	w := start(t, answering(func(ctx context.Context, _ search.Request) (search.Answer, error) {
		close(entered)
		<-ctx.Done()
		return search.Answer{}, ctx.Err()
	}))
	answered := make(chan error, 1)
	go func() {
		_, err := w.search.Search(context.WithoutCancel(t.Context()), question())
		answered <- err
	}()
	<-entered
	if !w.server.Drain(time.Millisecond) {
		t.Error("a call that does not end is not cut")
	}
	if err := <-answered; err == nil {
		t.Error("the call that was cut has an answer")
	}
}
