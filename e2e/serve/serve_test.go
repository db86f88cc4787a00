package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childDevice {
		if err := serveDevice(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if file := os.Getenv(childConfig); file != "" {
		if err := child(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if ok, _ := servers.Isolated(); !ok && servers.Dir() != "" {
		harness.Install(context.Background(), clientsCache, clientScripts, "milvus", "qdrant")
	}
	goleak.VerifyTestMain(isolated{m})
}

// isolated runs the tests where a Milvus can listen.
type isolated struct{ m *testing.M }

func (i isolated) Run() int { return servers.Isolate(i.m) }

const base = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
shutdown: {grace: 10s}
stores:
  files:
    kind: embedded
    collections: {things: {vectors: things.npy, ids: ids.txt, payload: things.jsonl, owner: group}}
models: {plain: {path: plain.safetensors}}
routes:
  things: {store: files, collection: things, model: plain, placement: stored, exact_search: true}
`

// files writes a model, a collection and the configuration of them.
func files(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Write(filepath.Join(dir, "plain.safetensors"), m); err != nil {
		t.Fatal(err)
	}
	vectors := rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 0, 0, 1, 1, 1}}
	if err := npy.Write(filepath.Join(dir, "things.npy"), vectors); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"ids.txt":       "a\nb\nc\n",
		"things.jsonl":  "{\"group\": 1}\n{\"group\": 1}\n{\"group\": \"x\"}\n",
		"likeness.yaml": text,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "likeness.yaml")
}

// sidecar runs until stop; wait returns what Run returned.
type sidecar struct {
	at   serve.Addresses
	conn *grpc.ClientConn
	stop context.CancelFunc
	wait func() error
}

// start runs a sidecar until it is listening, or ready.
func start(t *testing.T, text string, ready bool) *sidecar {
	t.Helper()
	return startLogged(t, text, ready, slog.New(slog.DiscardHandler))
}

func startLogged(t *testing.T, text string, ready bool, logger *slog.Logger) *sidecar {
	t.Helper()
	return startIn(t, text, []string{}, ready, logger)
}

// startIn starts one in an environment.
func startIn(t *testing.T, text string, environ []string, ready bool, logger *slog.Logger) *sidecar {
	t.Helper()
	c, err := config.Load(config.Source{File: files(t, text), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	addresses, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	o := serve.Options{Logger: logger, Build: buildinfo.Read(buildinfo.Stamp{})}
	announce := func(at serve.Addresses) { addresses <- at }
	if ready {
		o.Ready = announce
	} else {
		o.Listening = announce
	}
	go func() { ended <- serve.Run(ctx, c, o) }()
	s := &sidecar{stop: stop, wait: func() error { return <-ended }}
	select {
	case s.at = <-addresses:
	case err := <-ended:
		t.Fatal(err)
	}
	if s.conn, err = grpc.NewClient(s.at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

func (s *sidecar) search(t *testing.T, route string) (*likenessv1.SearchResponse, error) {
	t.Helper()
	return likenessv1.NewSearchServiceClient(s.conn).Search(t.Context(), &likenessv1.SearchRequest{
		Route: route, Query: &likenessv1.Query{Vector: []float32{1, 2}}, K: 2,
	})
}

func (s *sidecar) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	response, body := s.ask(t, path, "")
	return response.StatusCode, body
}

// scrape asks for metrics in a format.
func (s *sidecar) scrape(t *testing.T, format string) (as, body string) {
	t.Helper()
	response, body := s.ask(t, "/metrics", format)
	return response.Header.Get("Content-Type"), body
}

func (s *sidecar) ask(t *testing.T, path, accept string) (response *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.at.Admin+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if response, err = client.Do(request); err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(b)
}

func TestServe(t *testing.T) {
	s := start(t, base, true)
	r, err := s.search(t, "things")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GetHits(); len(got) != 2 || got[0].GetId().GetText() != "c" || got[0].GetScore() != 3 {
		t.Errorf("hits %v, want c with 1·1+2·1", got)
	}
	for path, want := range map[string]string{
		"/livez": "ok", "/healthz": "ok", "/readyz": "ok", "/debug/pprof/cmdline": "test",
		"/metrics": `likeness_searches_total{outcome="rescored",route="things",strategy="average"} 1`,
	} {
		if code, body := s.get(t, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q in\n%s", path, code, want, body)
		}
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if conn, err := net.Dial("tcp", s.at.GRPC); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

// A store that is down keeps neither the process from starting nor the routes
// of other stores from being served.
func TestServeWhileAStoreIsDown(t *testing.T) {
	down := strings.Replace(base, "models:", "  gone: {kind: qdrant, address: \"127.0.0.1:1\"}\nmodels:", 1)
	down += "  lost: {store: gone, collection: c, model: plain, placement: stored}\n"
	s := start(t, down, true)
	if _, err := s.search(t, "things"); err != nil {
		t.Errorf("the route of the store that is up: %v", err)
	}
	if _, err := s.search(t, "lost"); status.Code(err) != codes.Unavailable {
		t.Errorf("the route of the store that is down: %v", err)
	}
	health := grpc_health_v1.NewHealthClient(s.conn)
	for service, want := range map[string]grpc_health_v1.HealthCheckResponse_ServingStatus{
		"": grpc_health_v1.HealthCheckResponse_SERVING, "route/things": grpc_health_v1.HealthCheckResponse_SERVING,
		"route/lost": grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		r, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != want {
			t.Errorf("health of %q: %v, %v, want %v", service, r.GetStatus(), err, want)
		}
	}
	if code, body := s.get(t, "/readyz"); code != http.StatusOK || !strings.Contains(body, "route lost: ") {
		t.Errorf("readyz %d %s", code, body)
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestServeWithNoStoreUp(t *testing.T) {
	text := `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {gone: {kind: qdrant, address: "127.0.0.1:1"}}
models: {plain: {path: plain.safetensors}}
routes: {lost: {store: gone, collection: c, model: plain, placement: stored}}
`
	s := start(t, text, false)
	if code, _ := s.get(t, "/livez"); code != http.StatusOK {
		t.Errorf("livez %d", code)
	}
	if code, body := s.get(t, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("readyz %d %s", code, body)
	}
	r, err := grpc_health_v1.NewHealthClient(s.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health %v, %v", r.GetStatus(), err)
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestWhatCannotBeServedIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	routes := strings.TrimPrefix(base, strings.SplitAfter(base, "plain.safetensors}}\n")[0])
	tests := []struct{ name, from, to, want string }{
		{"no route", routes, "", "it has no route"},
		{"model", "path: plain.safetensors", "path: none.safetensors", "models.plain"},
		{"damaged model", "path: plain.safetensors", "path: ids.txt", "models.plain"},
		{"vectors", "vectors: things.npy", "vectors: ids.txt", "stores.files: collections.things: vectors"},
		{"ids", "ids: ids.txt", "ids: none.txt", "ids"},
		{"ids of another length", "ids: ids.txt", "ids: things.npy", "ids"},
		{"payload", "payload: things.jsonl", "payload: ids.txt", "payload"},
		{"owner", "owner: group", "owner: colour", `field "colour"`},
		{"table", "placement: stored", "placement: table, table: ids.txt", "routes.things: table"},
		{"address", `grpc: "127.0.0.1:0"`, fmt.Sprintf("grpc: %q", taken.Addr()), "listen.grpc"},
		{"certificate", "listen: {", "listen: {tls: {cert_file: ids.txt, key_file: ids.txt}, ", "TLS"},
		{"tokens", "listen: {", "listen: {auth: {tokens_file: ids.txt}, ", "tokens"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, err := config.Load(config.Source{File: files(t, strings.Replace(base, tc.from, tc.to, 1)), Environ: []string{}})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			err = serve.Run(t.Context(), c, serve.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
