package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/pipeline"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func metrics() *telemetry.Metrics {
	return telemetry.NewMetrics(buildinfo.Info{Version: "1.2.3"}, []*pipeline.Route{
		{Name: "things", StoreName: "main", Placement: pipeline.PlacementTable, Model: pipeline.Model{Name: "m", Version: "v"}},
	})
}

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	var b strings.Builder
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func TestSearchesAreCounted(t *testing.T) {
	m := metrics()
	answer := pipeline.Answer{
		Strategy: rerank.Average, Certificate: rerank.Certificate{Status: rerank.StatusExact, Candidates: 40, Rounds: 2},
		Timings: pipeline.Timings{Total: time.Millisecond}, NotFinite: 1, NotIndexed: 2,
	}
	m.Searched("things", pipeline.Request{}, answer, nil)
	answer.Degraded = &pipeline.Degraded{Reason: pipeline.ReasonScoring}
	m.Searched("things", pipeline.Request{}, answer, nil)
	m.Searched("things", pipeline.Request{}, pipeline.Answer{}, errors.New("x"))
	m.Searched("made-up-by-a-caller", pipeline.Request{}, pipeline.Answer{}, pipeline.ErrRoute)
	m.RouteOpen("things", true)
	m.Panicked()
	ended := m.CallStarted("likeness.v1.SearchService/Search")
	ended(codes.OK)
	text := scrape(t, m)
	for _, want := range []string{
		`"rescored"`, `"degraded"`, `"scoring_failed"`, `"error"`, `"exact"`, `"unknown"`, `"1.2.3"`, "likeness_route_open", "likeness_rpc_calls_total",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "made-up") {
		t.Error("a caller can make series")
	}
}

func TestRankersAreCounted(t *testing.T) {
	m := metrics()
	m.RankerCalled("cross-encoder", 32)(ranker.OK)
	m.RankerCalled("cross-encoder", 64)(ranker.TooLarge)
	m.RankerRetried("cross-encoder")
	m.RankerNotAsked("cross-encoder", 5, ranker.Late)
	m.RankerBroken("cross-encoder", true)
	text := scrape(t, m)
	for _, want := range []string{`"cross-encoder"`, `"ok"`, `"too_large"`, `"late"`, "likeness_ranker_broken", "likeness_ranker_retries_total"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// docs/reference/metrics.md names every registered metric and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		metrics().Describe(descriptions)
		close(descriptions)
	}()
	registered := map[string]bool{}
	for d := range descriptions {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		if !strings.HasPrefix(name, "likeness_") {
			continue
		}
		registered[name] = true
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("%s is not documented; run make generate", name)
		}
	}
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			if name, _, _ := strings.Cut(rest, "`"); !registered[name] {
				t.Errorf("%s is documented and not registered", name)
			}
		}
	}
}

func TestLogCarriesTheIDs(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "info", "auto")
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	ctx := telemetry.WithRequestID(trace.ContextWithSpanContext(context.Background(), span), "abc")
	log.With("a", 1).WithGroup("g").InfoContext(ctx, "hello")
	log.DebugContext(ctx, "quiet")
	for _, want := range []string{`"request_id":"abc"`, `"trace_id":"01000000000000000000000000000000"`, `"msg":"hello"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "quiet") {
		t.Error("debug is written at level info")
	}
	if _, err := telemetry.NewLogger(io.Discard, "loud", "text"); err == nil {
		t.Error("an unknown level is taken")
	}
}

func TestNoTracesWithoutAnEndpoint(t *testing.T) {
	if p, err := telemetry.NewTracerProvider(t.Context(), telemetry.TraceOptions{}); p != nil || err != nil {
		t.Errorf("provider %v, %v", p, err)
	}
}

// What a collector refuses is in the log, and nowhere else.
func TestTracesThatAreRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer() // knows no trace service
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	var out bytes.Buffer
	p, err := telemetry.NewTracerProvider(t.Context(), telemetry.TraceOptions{
		Endpoint: listener.Addr().String(), Insecure: true, SampleRatio: 1, Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("").Start(t.Context(), "call")
	span.End()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "traces not sent") {
		t.Errorf("the log has %q", out.String())
	}
}

func TestReadiness(t *testing.T) {
	ready := false
	admin := telemetry.NewAdmin(metrics(), func() (bool, string) { return ready, "detail" }, slog.New(slog.DiscardHandler))
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK} {
		w := httptest.NewRecorder()
		admin.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		if w.Code != want || !strings.Contains(w.Body.String(), "detail") {
			dump, _ := httputil.DumpResponse(w.Result(), true)
			t.Errorf("ready %v: %s", ready, dump)
		}
		ready = true
	}
}

func TestPluginsAreShown(t *testing.T) {
	m := metrics()
	m.WatchPlugins(func() []plugins.State {
		return []plugins.State{{Name: "ranker", Status: plugins.Ready, Restarts: 2, Resident: 4096, Ends: map[plugins.Reason]int64{plugins.Hung: 2}}}
	})
	text := scrape(t, m)
	for _, want := range []string{`"ranker"`, `"hung"`, `"checksum"`, "likeness_plugin_up", "4096"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
