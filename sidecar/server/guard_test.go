package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/server"
)

// Without credentials a caller on another machine reads status and metrics, and changes
// nothing.
func TestTheAdminPortOfOtherMachines(t *testing.T) {
	g, err := server.NewGuard(slog.New(slog.DiscardHandler), "")
	if err != nil {
		t.Fatal(err)
	}
	handler := g.Before(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		request, from string
		want          int
	}{
		{"GET /metrics", "10.0.0.7:9", 200}, {"GET /", "10.0.0.7:9", 200}, {"GET /livez", "[fd00::1]:9", 200}, {"HEAD /status.json", "10.0.0.7:9", 200},
		{"POST /reload", "10.0.0.7:9", 403}, {"POST /proxy/off", "[fd00::1]:9", 403}, {"PUT /metrics", "10.0.0.7:9", 403},
		{"GET /debug/pprof/heap", "10.0.0.7:9", 403}, {"GET //debug/pprof/heap", "10.0.0.7:9", 403}, {"GET /x/../debug/pprof/", "10.0.0.7:9", 403},
		{"POST /reload", "127.0.0.1:9", 200}, {"POST /reload", "[::1]:9", 200}, {"POST /reload", "[::ffff:127.0.0.1]:9", 200}, {"GET /debug/pprof/heap", "127.0.0.1:9", 200},
		{"POST /reload", "", 403},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "http://h/", http.NoBody)
		r.URL.Path, r.RemoteAddr = target, c.from
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s from %q: %d, want %d", c.request, c.from, w.Code, c.want)
		}
	}
}
