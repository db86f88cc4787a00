package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// readAgain is a sidecar whose configuration changes.
type readAgain struct {
	*sidecar
	file string
	log  *syncBuffer
	hup  chan os.Signal
}

func startReloadable(t *testing.T, text string) *readAgain {
	t.Helper()
	r := &readAgain{sidecar: &sidecar{}, file: files(t, text), log: &syncBuffer{}, hup: make(chan os.Signal, 1)}
	load := func() (*config.Config, error) {
		return config.Load(config.Source{File: r.file, Environ: []string{}})
	}
	c, err := load()
	must2(t, err)
	log, err := telemetry.NewLogger(r.log, c.Log.Level, "text")
	must2(t, err)
	ctx, stop := context.WithCancel(t.Context())
	addresses, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: log, Build: buildinfo.Read(buildinfo.Stamp{}), Reload: load, Reloads: r.hup,
			Ready: func(at serve.Addresses) { addresses <- at }})
	}()
	select {
	case r.at = <-addresses:
	case err := <-ended:
		t.Fatal(err)
	}
	r.conn, err = grpc.NewClient(r.at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must2(t, err)
	t.Cleanup(func() {
		_ = r.conn.Close()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// post has it read its configuration, changed by pairs of old and new text, again.
func (r *readAgain) post(t *testing.T, pairs ...string) (code int, out struct {
	Applied, Activation, Restart []string
	Error                        string
}) {
	t.Helper()
	must2(t, os.WriteFile(r.file, []byte(strings.NewReplacer(pairs...).Replace(base)), 0o600))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.at.Admin+"/reload", http.NoBody)
	must2(t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	must2(t, err)
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	must2(t, err)
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return response.StatusCode, out
}

const exactSearch = "exact_search: true}"

func TestReload(t *testing.T) {
	r := startReloadable(t, base)
	route := func() *likenessv1.Route {
		got, err := likenessv1.NewCatalogServiceClient(r.conn).GetRoute(t.Context(), &likenessv1.GetRouteRequest{Name: "things"})
		must2(t, err)
		return got.GetRoute()
	}
	t.Run("a route's keys", func(t *testing.T) {
		_, out := r.post(t, exactSearch, "exact_search: false, depth: 7, timeout: 2s, failure: fail_closed}")
		want := []string{"routes.things.depth", "routes.things.timeout", "routes.things.exact_search", "routes.things.failure"}
		if got := route(); !slices.Equal(out.Applied, want) || got.GetDepth() != 7 || got.GetTimeout().GetSeconds() != 2 || got.GetExactSearch() || got.GetFailure() != "fail_closed" {
			t.Errorf("%+v, and the route is %v", out, got)
		}
	})
	t.Run("limits", func(t *testing.T) {
		if _, out := r.post(t, "shutdown:", "limits: {max_k: 1, max_batch: 1}\nshutdown:"); out.Error != "" || route().GetMaxK() != 1 {
			t.Errorf("%+v, max_k %d", out, route().GetMaxK())
		}
		if _, err := r.search(t, "things"); status.Code(err) != codes.InvalidArgument {
			t.Errorf("k above the new limit: %v", err)
		}
		one := &likenessv1.SearchRequest{Route: "things", K: 1, Query: &likenessv1.Query{Vector: []float32{1, 2}}}
		batch := &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{one, one}}
		if _, err := likenessv1.NewSearchServiceClient(r.conn).SearchBatch(t.Context(), batch); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a batch above the new limit: %v", err)
		}
	})
	t.Run("what cannot be used changes nothing", func(t *testing.T) {
		r.post(t)
		for name, bad := range map[string]string{
			"unknown key": "depht: 3}", "value": "depth: -1}", "strategy": "depth: 3, strategy: distilled}", "strategy and limits": "strategy: scan}\nlimits: {max_k: 1}",
		} {
			code, out := r.post(t, exactSearch, bad)
			if got := route(); code != http.StatusUnprocessableEntity || out.Error == "" || got.GetDepth() != 200 || got.GetMaxK() != 1000 {
				t.Errorf("%s: %d %+v, and the route is %v", name, code, out, got)
			}
		}
		if _, body := r.get(t, "/metrics"); !strings.Contains(body, "likeness_config_last_reload_successful 0") || !strings.Contains(body, `likeness_config_reloads_total{outcome="refused"} 4`) {
			t.Error("the metrics do not say so")
		}
		if !strings.Contains(r.log.String(), "depht") {
			t.Errorf("the log does not name the key:\n%s", r.log)
		}
	})
	t.Run("what needs a restart is named", func(t *testing.T) {
		_, out := r.post(t, "grace: 10s", "grace: 9s", "routes:\n", "routes:\n  more: {store: files, collection: things, model: plain, placement: stored}\n")
		if want := []string{"routes.more", "shutdown.grace"}; !slices.Equal(out.Restart, want) || len(out.Applied) > 0 || out.Error != "" {
			t.Errorf("%+v, want %v", out, want)
		}
		if _, body := r.get(t, "/metrics"); !strings.Contains(body, "likeness_config_restart_keys 2") || !strings.Contains(r.log.String(), "needs a restart") {
			t.Error("the metrics or the log do not say so")
		}
		if _, out = r.post(t); len(out.Restart) > 0 {
			t.Errorf("back as it was: %+v", out)
		}
	})
	t.Run("what needs an activation", func(t *testing.T) {
		if _, out := r.post(t, "models: {", "models: {other: {path: plain.safetensors}, "); !slices.Equal(out.Activation, []string{"models.other.path"}) {
			t.Errorf("%+v", out)
		}
	})
	t.Run("tokens", func(t *testing.T) {
		tokens := r.file + ".tokens"
		must2(t, os.WriteFile(tokens, []byte("- {name: a, token: canary}\n"), 0o600))
		if _, out := r.post(t, "listen: {", "listen: {auth: {tokens_file: "+tokens+"}, "); out.Error != "" {
			t.Fatal(out.Error)
		}
		if _, err := r.search(t, "things"); status.Code(err) != codes.Unauthenticated {
			t.Errorf("without a token: %v", err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer canary")
		if _, err := likenessv1.NewCatalogServiceClient(r.conn).ListRoutes(ctx, &likenessv1.ListRoutesRequest{}); err != nil {
			t.Errorf("with one: %v", err)
		}
		must2(t, os.WriteFile(tokens, []byte("nonsense"), 0o600))
		if code, _ := r.post(t, "listen: {", "listen: {auth: {tokens_file: "+tokens+"2}, "); code != http.StatusUnprocessableEntity {
			t.Errorf("a tokens file that is not there: %d", code)
		}
		r.post(t)
	})
	t.Run("a signal", func(t *testing.T) {
		must2(t, os.WriteFile(r.file, []byte(strings.Replace(base, exactSearch, "depth: 5}\nlog: {level: debug}", 1)), 0o600))
		r.hup <- syscall.SIGHUP
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for !strings.Contains(r.log.String(), "level=DEBUG") { // the level changes last
			if ctx.Err() != nil {
				t.Fatal("log.level did not change")
			}
			_, _ = r.search(t, "things")
		}
		if got := route().GetDepth(); got != 5 {
			t.Errorf("depth %d", got)
		}
	})
	t.Run("a page of another site", func(t *testing.T) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.at.Admin+"/reload", http.NoBody)
		must2(t, err)
		request.Header.Set("Sec-Fetch-Site", "cross-site")
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		must2(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s", response.Status)
		}
	})
}

// TestReloadLooks has the file looked at.
func TestReloadLooks(t *testing.T) {
	r := startReloadable(t, base+"reload: {interval: 1ms}\n")
	must2(t, os.WriteFile(r.file+".new", []byte(strings.Replace(base, exactSearch, "depth: 5}", 1)), 0o600))
	must2(t, os.Rename(r.file+".new", r.file))
	catalog := likenessv1.NewCatalogServiceClient(r.conn)
	for {
		got, err := catalog.GetRoute(t.Context(), &likenessv1.GetRouteRequest{Name: "things"})
		must2(t, err)
		if got.GetRoute().GetDepth() == 5 {
			return
		}
	}
}

// TestNoReload: without a way to read the configuration there is nothing to ask for.
func TestNoReload(t *testing.T) {
	s := start(t, base, true)
	defer func() { s.stop(); _ = s.wait() }()
	var b bytes.Buffer
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.at.Admin+"/reload", &b)
	must2(t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	must2(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("%s", response.Status)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
