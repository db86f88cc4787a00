package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// Admin serves metrics, health and profiles over HTTP: /metrics, /livez and /healthz (the process
// runs), /readyz (searches are answered; a store that fails for a while does not change that), and
// /debug/pprof/.
type Admin struct {
	server *http.Server
	mux    *http.ServeMux
}

// NewAdmin makes an admin server. ready reports whether searches are answered and, if not, why.
func NewAdmin(m *Metrics, ready func() (ok bool, detail string), log *slog.Logger) *Admin {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry, EnableOpenMetrics: true}))
	alive := func(w http.ResponseWriter, _ *http.Request) { answer(w, true, "ok") }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, detail := ready()
		answer(w, ok, detail)
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return &Admin{mux: mux, server: &http.Server{
		// Another site's page in an operator's browser must not change anything.
		Handler:           http.NewCrossOriginProtection().Handler(mux),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // nobody sends more than a few bytes here
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

func answer(w http.ResponseWriter, ok bool, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, text)
}

// Handle registers the handler of another part of the sidecar. Call it before Serve.
func (a *Admin) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// Guard wraps every handler in a check of who may call. Call it before Serve.
func (a *Admin) Guard(before func(next http.Handler) http.Handler) {
	a.server.Handler = before(a.server.Handler)
}

// Handler returns the handler that Serve uses.
func (a *Admin) Handler() http.Handler { return closeStalled(a.server.Handler) }

// closeStalled makes writes fail whose client does not read in time, so that it cannot hold an answer's memory for ever.
// http.Server.WriteTimeout would also count the time of a long profile or reload.
func closeStalled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := pacedWriter{w}
		defer p.extend() // for what is written when the handler has returned
		next.ServeHTTP(p, r)
	})
}

// pacedWriter moves the deadline of the connection before each write.
type pacedWriter struct{ http.ResponseWriter }

func (w pacedWriter) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(gate.StallTimeout))
}

// Unwrap lets http.ResponseController find the connection.
func (w pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w pacedWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// Serve answers requests until Shutdown, and closes the listener.
func (a *Admin) Serve(listener net.Listener) error {
	a.server.Handler = a.Handler()
	if err := a.server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Shutdown ends Serve. It waits for the requests under way until ctx is done, and then
// closes their connections.
func (a *Admin) Shutdown(ctx context.Context) error {
	if err := a.server.Shutdown(ctx); err != nil {
		return a.server.Close()
	}
	return nil
}
