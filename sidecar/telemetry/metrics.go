// Package telemetry shows operators how a sidecar is doing: metrics, traces, logs, a status page,
// and the admin listener that serves them. It never shows a vector, a payload, a filter or a
// secret.
package telemetry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"

	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

var _ search.Observer = (*Metrics)(nil)

// Metrics holds the sidecar's metrics in a registry of its own. It is safe for concurrent
// use.
type Metrics struct {
	*registrar
	routes map[string]*routeMetrics

	calls        *prometheus.CounterVec
	callSeconds  *prometheus.HistogramVec
	inFlight     *prometheus.GaugeVec
	panics       prometheus.Counter
	searches     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	steps        *prometheus.HistogramVec
	candidates   *prometheus.HistogramVec
	rounds       *prometheus.HistogramVec
	degraded     *prometheus.CounterVec
	certificates *prometheus.CounterVec
	notFinite    *prometheus.CounterVec
	notIndexed   *prometheus.CounterVec
	reembedded   *prometheus.CounterVec
	rankerCalls  *prometheus.HistogramVec
	rankerRounds *prometheus.HistogramVec
	rankerCut    *prometheus.CounterVec
	routeOpen    *prometheus.GaugeVec
	routeInfo    *prometheus.GaugeVec
	*proxied
	*rankers
	*embedders
	*stores
	refused      *prometheus.CounterVec
	load         *loadCollector
	receiving    *atomic.Pointer[gate.Gate]
	following    *followCollector
	reembedding  *reembedCollector
	pluginStates *pluginCollector
	deviceStates *deviceCollector
	routeNorms   *normCollector
	keptEvents   *eventCollector
	experiments  *trialCollector
	served       *gainCollector
	watchedFiles *filesCollector
	*audits
	*reloads
}

// NewMetrics registers every metric. Searches of routes that are not in the list are counted as
// "unknown", so that callers cannot create series.
func NewMetrics(build buildinfo.Info, routes []*route.Route) *Metrics {
	r := &registrar{Registry: prometheus.NewRegistry()}
	m := &Metrics{
		registrar:    r,
		routes:       map[string]*routeMetrics{},
		calls:        r.counter("rpc_calls_total", "Calls of the gRPC API that have ended.", "method", "code"),
		callSeconds:  r.histogram("rpc_duration_seconds", "Duration of calls of the gRPC API.", secondBuckets, "method"),
		inFlight:     r.gauge("rpc_in_flight", "Calls of the gRPC API that have not ended.", "method"),
		panics:       r.counter("panics_total", "Panics caught; each is a bug, and its stack is in the log.").WithLabelValues(),
		searches:     r.counter("searches_total", "Searches by outcome: rescored, degraded or error.", "route", "strategy", "outcome"),
		seconds:      r.histogram("search_duration_seconds", "Duration of answered searches.", secondBuckets, "route"),
		steps:        r.histogram("search_step_duration_seconds", "Duration of a step, summed over rounds: embed, encode, retrieve, score, certify, rank.", secondBuckets, "route", "step"),
		candidates:   r.histogram("search_candidates", "Items scored by a search.", prometheus.ExponentialBuckets(16, 4, 10), "route"),
		rounds:       r.histogram("search_rounds", "Rounds of a search, each deeper than the last.", []float64{1, 2, 3, 4, 6, 8, 16}, "route"),
		degraded:     r.counter("search_degraded_total", "Degraded answers by reason: in the store's order, or for ranker_failed in the similarity's.", "route", "reason"),
		certificates: r.counter("search_certificates_total", "Answers by the status of their certificate.", "route", "status"),
		notFinite:    r.counter("candidates_not_finite_total", "Candidates whose score was not finite.", "route"),
		notIndexed:   r.counter("candidates_not_indexed_total", "Candidates that the route's table lacks.", "route"),
		reembedded:   r.counter("candidates_reembedded_total", "Candidates of a route with reembed, by what scored them: new (their own vector of the new model), bridge.", "route", "kind"),
		rankerCalls:  r.histogram("search_ranker_calls", "Items that a search asked the ranker about, support items included.", prometheus.ExponentialBuckets(1, 2, 12), "route"),
		rankerRounds: r.histogram("search_ranker_rounds", "Rounds in which a search asked its route's ranker.", []float64{0, 1, 2, 3, 4, 6, 8, 16}, "route"),
		rankerCut:    r.counter("search_ranker_cut_total", "Items that the ranker did not score, by reason: deadline, budget, failed.", "route", "reason"),
		proxied:      newProxied(r),
		rankers:      newRankers(r),
		embedders:    newEmbedders(r),
		stores:       newStores(r),
		audits:       newAudits(r),
		refused:      r.counter("admission_refused_total", "Searches refused, by reason: memory, max_searches, rate, slow (more in flight would slow all), share (the caller has used its share). Route unknown: refused before the request was read.", "route", "reason"),
		reloads:      newReloads(r),
		routeOpen:    r.gauge("route_open", "1 while the route is served.", "route"),
	}
	r.gauge("build_info", "1, with the binary's version.", "version", "commit", "go").
		WithLabelValues(build.Version, build.Commit, build.Go).Set(1)
	m.load = r.load()
	m.receiving = r.received()
	m.following = r.following()
	m.reembedding = r.reembedding()
	m.pluginStates = r.plugins()
	m.deviceStates = r.devices()
	m.routeNorms = r.norms()
	m.keptEvents = r.events()
	m.experiments, m.served = r.trials(), r.gains()
	m.watchedFiles = r.files()
	m.routeInfo = r.gauge("route_info", "1, with the parts of the route.", "route", "store", "model", "model_version", "placement")
	for _, rt := range routes {
		m.routes[rt.Name] = m.ofRoute(rt.Name)
		m.RouteServed(rt)
		m.RouteOpen(rt.Name, false)
	}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// CallStarted counts a call. The caller calls ended with its status.
func (m *Metrics) CallStarted(ctx context.Context, method string) (ended func(code codes.Code)) {
	start := time.Now()
	flying := m.inFlight.WithLabelValues(method)
	flying.Inc()
	return func(code codes.Code) {
		flying.Dec()
		m.calls.WithLabelValues(method, code.String()).Inc()
		observe(ctx, m.callSeconds.WithLabelValues(method), time.Since(start).Seconds())
	}
}

// Panicked counts a panic.
func (m *Metrics) Panicked() { m.panics.Inc() }

// RouteOpen sets whether a route is served.
func (m *Metrics) RouteOpen(rt string, open bool) {
	m.routeOpen.WithLabelValues(rt).Set(oneIf(open))
}

// RouteServed replaces the labels of route_info for a route.
func (m *Metrics) RouteServed(r *route.Route) {
	m.routeInfo.DeletePartialMatch(prometheus.Labels{"route": r.Name})
	m.routeInfo.WithLabelValues(r.Name, r.StoreName, r.Model.Name, r.Model.Version, string(r.Placement)).Set(1)
}

// unknownRoute is the label of searches of routes that NewMetrics was not given.
const unknownRoute = "unknown"

// routeMetrics are the metrics that every answered search of a route updates. They are
// looked up once, because a lookup costs as much as the rest of an update.
type routeMetrics struct {
	candidates, rounds, seconds, encode, retrieve, score, certify prometheus.Observer
	notFinite, notIndexed                                         prometheus.Counter
}

// ofRoute returns the metrics of a route.
func (m *Metrics) ofRoute(rt string) *routeMetrics {
	return &routeMetrics{
		candidates: m.candidates.WithLabelValues(rt), rounds: m.rounds.WithLabelValues(rt), seconds: m.seconds.WithLabelValues(rt),
		encode: m.steps.WithLabelValues(rt, "encode"), retrieve: m.steps.WithLabelValues(rt, "retrieve"),
		score: m.steps.WithLabelValues(rt, "score"), certify: m.steps.WithLabelValues(rt, "certify"),
		notFinite: m.notFinite.WithLabelValues(rt), notIndexed: m.notIndexed.WithLabelValues(rt),
	}
}

// Searched counts a search.
func (m *Metrics) Searched(ctx context.Context, rt string, r search.Request, a search.Answer, err error) {
	of := m.routes[rt]
	if of == nil || errors.Is(err, route.ErrUnknown) {
		rt, of = unknownRoute, nil
	}
	strategy := string(a.Strategy)
	if err != nil {
		m.searches.WithLabelValues(rt, string(r.Strategy), "error").Inc()
		return
	}
	if a.Degraded != nil {
		m.searches.WithLabelValues(rt, strategy, "degraded").Inc()
		m.degraded.WithLabelValues(rt, a.Degraded.Reason).Inc()
	} else {
		m.searches.WithLabelValues(rt, strategy, "rescored").Inc()
	}
	m.certificates.WithLabelValues(rt, string(a.Certificate.Status)).Inc()
	if of == nil {
		of = m.ofRoute(rt)
	}
	of.answered(ctx, a)
	if a.Timings.Embed > 0 {
		observe(ctx, m.steps.WithLabelValues(rt, "embed"), a.Timings.Embed.Seconds())
	}
	m.ranked(ctx, rt, a)
	if r := a.Reembedded; r != nil {
		m.reembedded.WithLabelValues(rt, "new").Add(float64(r.New))
		m.reembedded.WithLabelValues(rt, "bridge").Add(float64(r.Candidates - r.New))
	}
}

func (m *routeMetrics) answered(ctx context.Context, a search.Answer) {
	m.candidates.Observe(float64(a.Certificate.Candidates))
	m.rounds.Observe(float64(a.Certificate.Rounds))
	m.notFinite.Add(float64(a.NotFinite))
	m.notIndexed.Add(float64(a.NotIndexed))
	observe(ctx, m.seconds, a.Timings.Total.Seconds())
	observe(ctx, m.encode, a.Timings.Encode.Seconds())
	observe(ctx, m.retrieve, a.Timings.Retrieve.Seconds())
	observe(ctx, m.score, a.Timings.Score.Seconds())
	observe(ctx, m.certify, a.Timings.Certify.Seconds())
}

// ranked counts the work of the route's ranker.
func (m *Metrics) ranked(ctx context.Context, rt string, a search.Answer) {
	r := a.Ranking
	if r == nil {
		return
	}
	observe(ctx, m.steps.WithLabelValues(rt, "rank"), a.Timings.Rank.Seconds())
	m.rankerCalls.WithLabelValues(rt).Observe(float64(r.Calls))
	m.rankerRounds.WithLabelValues(rt).Observe(float64(r.Rounds))
	if r.Cut > 0 {
		m.rankerCut.WithLabelValues(rt, r.Reason).Add(float64(r.Cut))
	}
}
