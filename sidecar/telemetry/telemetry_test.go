package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func metrics() *telemetry.Metrics {
	return telemetry.NewMetrics(buildinfo.Info{Version: "1.2.3"}, []*route.Route{
		{Policy: route.Policy{Name: "things", StoreName: "main", Placement: route.PlacementTable}, Parts: route.Parts{Model: route.Model{Name: "m", Version: "v"}}},
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
	answer := search.Answer{
		Strategy: rerank.Average, Certificate: rerank.Certificate{Status: rerank.StatusExact, Candidates: 40, Rounds: 2},
		Timings: search.Timings{Total: time.Millisecond}, NotFinite: 1, NotIndexed: 2,
	}
	m.Searched(t.Context(), "things", search.Request{}, answer, nil)
	answer.Degraded = &search.Degraded{Reason: failure.Scoring}
	m.Searched(t.Context(), "things", search.Request{}, answer, nil)
	m.Searched(t.Context(), "things", search.Request{}, search.Answer{}, errors.New("x"))
	m.Searched(t.Context(), "made-up-by-a-caller", search.Request{}, search.Answer{}, route.ErrUnknown)
	m.RouteOpen("things", true)
	m.Panicked()
	ended := m.CallStarted(t.Context(), "likeness.v1.SearchService/Search")
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
	m.RankerCalled(t.Context(), "cross-encoder", 32)(ranker.OK)
	m.RankerCalled(t.Context(), "cross-encoder", 64)(ranker.TooLarge)
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
		if !strings.Contains(string(page), "- `"+name+"` (") {
			t.Errorf("%s is not documented; run make generate", name)
		}
	}
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, "- `likeness_"); ok {
			if name, _, _ := strings.Cut("likeness_"+rest, "`"); !registered[name] {
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
	ctx, _ := telemetry.WithRequestID(trace.ContextWithSpanContext(context.Background(), span), "abc")
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

// A collector's refusal is logged, and appears nowhere else.
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

func TestFilesAreShown(t *testing.T) {
	m, now := metrics(), time.Now()
	m.WatchFiles("api", func() telemetry.Files { return telemetry.Files{NotBefore: now, NotAfter: now.Add(time.Hour)} })
	m.WatchFiles("tokens", func() telemetry.Files { return telemetry.Files{Refused: true} })
	want := map[string]float64{
		"likeness_certificate_start_timestamp_seconds api": float64(now.Unix()), "likeness_certificate_expiry_timestamp_seconds api": float64(now.Add(time.Hour).Unix()),
		"likeness_files_refused api": 0, "likeness_files_refused tokens": 1,
	}
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if len(one.GetLabel()) == 1 && one.GetLabel()[0].GetName() == "use" {
				got[f.GetName()+" "+one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCertificatesEnd(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for name, c := range map[string]struct {
		lasts, left time.Duration
		want        bool
	}{
		"of an hour, renewed":        {time.Hour, 40 * time.Minute, false},
		"of an hour, forgotten":      {time.Hour, 11 * time.Minute, true},
		"of 90 days, to be renewed":  {90 * day, 29 * day, false},
		"of 90 days, forgotten":      {90 * day, 13 * day, true},
		"of ten years, in two":       {3650 * day, 700 * day, false},
		"of ten years, in two weeks": {3650 * day, 13 * day, true},
		"that has ended":             {90 * day, -day, true},
	} {
		f := telemetry.Files{NotBefore: now.Add(c.left - c.lasts), NotAfter: now.Add(c.left)}
		if f.Ending(now) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
	if (telemetry.Files{}).Ending(now) {
		t.Error("what is no certificate ends")
	}
}

// Classic buckets are there for every scraper, native ones for those that read them,
// and durations name the trace of a sampled request.
func TestHistograms(t *testing.T) {
	m := metrics()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	m.Searched(ctx, "things", search.Request{}, search.Answer{Timings: search.Timings{Total: time.Millisecond}}, nil)
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, f := range families {
		if f.GetName() != "likeness_search_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 1 || len(h.GetBucket()) < 10 || len(h.GetPositiveDelta()) != 1 {
			t.Errorf("%v", h)
		}
		traces := 0
		for _, b := range h.GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				if l.GetName() == "trace_id" && l.GetValue() == span.TraceID().String() {
					traces++
				}
			}
		}
		if traces != 1 {
			t.Errorf("%d exemplars name the trace, want 1", traces)
		}
		checked++
	}
	if checked != 1 {
		t.Error("there is no histogram of searches")
	}
}

// The line of a search has its ids and its outcome, but nothing of its query.
func TestQueryLog(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	ctx, _ := telemetry.WithRequestID(trace.ContextWithSpanContext(t.Context(), span), "abc")
	request := search.Request{
		Query: rerank.Query{Vector: []float32{-4711, 2}, Text: "canary"}, K: 3, Filter: `{"must":["canary"]}`, Partitions: []string{"canary"},
	}
	answer := search.Answer{
		Hits: []search.Hit{{ID: rerank.TextID("canary"), Payload: []byte(`{"canary":1}`)}}, Strategy: rerank.Average,
		Certificate: rerank.Certificate{Status: rerank.StatusExact, Rounds: 2, Candidates: 40},
		Timings:     search.Timings{Retrieve: 2 * time.Millisecond, Total: 3 * time.Millisecond},
	}
	failed := fmt.Errorf("filter canary: %w", adapters.ErrFilter)
	for _, c := range []struct {
		name  string
		share float64
		slow  time.Duration
		route string
		err   error
		want  []string // expected in its line; empty: there is no line
	}{
		{"none", 0, 0, "things", nil, nil},
		{"a share", 1, 0, "things", nil, []string{
			`"msg":"query"`, `"route":"things"`, `"outcome":"rescored"`, `"strategy":"average"`, `"rounds":2`, `"candidates":40`, `"certificate":"exact"`,
			`"retrieve_seconds":0.002`, `"total_seconds":0.003`, `"request_id":"abc"`, `"trace_id":"01000000000000000000000000000000"`,
		}},
		{"an error", 1, 0, "things", failed, []string{`"outcome":"error"`, `"error_type":"filter_not_valid"`}},
		{"fast", 0, time.Second, "things", nil, nil},
		{"slow", 0, time.Millisecond, "things", nil, []string{`"level":"WARN"`, `"msg":"slow query"`, `"left_out":0`}},
		{"no route", 1, time.Millisecond, "canary", route.ErrUnknown, nil},
	} {
		out.Reset()
		telemetry.NewQueryLog(log, c.share, c.slow).Searched(ctx, c.route, request, answer, c.err)
		line := out.String()
		if len(c.want) == 0 && line != "" || strings.Contains(line, "canary") || strings.Contains(line, "-4711") {
			t.Errorf("%s: %s", c.name, line)
		}
		for _, want := range c.want {
			if !strings.Contains(line, want) {
				t.Errorf("%s: no %s in %s", c.name, want, line)
			}
		}
	}
	out.Reset()
	q := telemetry.NewQueryLog(log, 0, time.Millisecond)
	for range 500 { // as fast as that they get ten lines, and a few as time passes
		q.Searched(ctx, "things", request, answer, nil)
	}
	if n := strings.Count(out.String(), "\n"); n < 10 || n > 50 {
		t.Errorf("%d lines of 500 slow searches", n)
	}
}

// TestSlowSearchesThatAreLeftOut: when slow searches come too fast to be logged, the next line counts those that got
// none, and the line after that begins anew.
func TestSlowSearchesThatAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := telemetry.NewLogger(&out, "info", "json")
		if err != nil {
			t.Fatal(err)
		}
		q := telemetry.NewQueryLog(log, 0, time.Millisecond)
		slow := search.Answer{Timings: search.Timings{Total: time.Second}}
		for range 13 { // ten lines a second
			q.Searched(t.Context(), "things", search.Request{}, slow, nil)
		}
		for _, want := range []string{`"left_out":3`, `"left_out":0`} {
			time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
			out.Reset()
			if q.Searched(t.Context(), "things", search.Request{}, slow, nil); !strings.Contains(out.String(), want) {
				t.Errorf("want %s in %s", want, out.String())
			}
		}
	})
}
