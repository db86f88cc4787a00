package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// proxied has the metrics of the proxy, and what the status page shows of it.
type proxied struct {
	outcomes     *prometheus.CounterVec
	originals    *prometheus.CounterVec
	overlap      *prometheus.HistogramVec
	rankBiased   *prometheus.HistogramVec
	firstChanged *prometheus.CounterVec
	notCompared  *prometheus.CounterVec
	off          *prometheus.GaugeVec
	history      proxyHistory
}

// shareBuckets are tenths, for shares from 0 to 1.
var shareBuckets = []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1}

func newProxied(r *registrar) *proxied {
	return &proxied{
		outcomes: r.counter("proxy_searches_total",
			"Searches through the proxy on collections with a route, by outcome (rewritten, rescored, passed, degraded, shadow) and reason.", "outcome", "reason"),
		originals: r.counter("proxy_originals_total",
			"Original requests sent as a fallback, by outcome: won, lost, or withheld (sent in place of rescoring because too many lost).",
			"fallback", "outcome"),
		overlap:      r.histogram("proxy_shadow_overlap", "Share of rows that the served and the rescored answer share.", shareBuckets, "route"),
		rankBiased:   r.histogram("proxy_shadow_rank_biased_overlap", "Rank-biased overlap (p = 0.9) of the served and the rescored answer.", shareBuckets, "route"),
		firstChanged: r.counter("proxy_shadow_first_changed_total", "Compared searches whose first row differs once rescored.", "route"),
		notCompared:  r.counter("proxy_shadow_failed_total", "Samples not compared, by reason: busy, or why the search was not rescored.", "route", "reason"),
		off:          r.gauge("proxy_off", "1 while an operator has switched the route off.", "route"),
		history:      proxyHistory{routes: map[string]*proxyRoute{}},
	}
}

// Proxied counts a search through the proxy on a collection with routes.
func (p *proxied) Proxied(routes []string, outcome, reason string) {
	p.outcomes.WithLabelValues(outcome, reason).Inc()
	p.history.count(routes, outcome, reason)
}

// Raced counts an original request that was sent beside rescoring.
func (p *proxied) Raced(fallback, outcome string) {
	p.originals.WithLabelValues(fallback, outcome).Inc()
}

// Shadowed records how the served answer of a route and the rescored one differ.
func (p *proxied) Shadowed(route string, c Comparison) {
	p.overlap.WithLabelValues(route).Observe(c.Overlap)
	p.rankBiased.WithLabelValues(route).Observe(c.RankBiased)
	if c.FirstChanged() {
		p.firstChanged.WithLabelValues(route).Inc()
	}
	p.history.compared(route, c)
}

// ProxyOf returns what became of a route's searches through the proxy, and the comparisons of the
// last day that differ most.
func (p *proxied) ProxyOf(route string) (counts ProxyCounts, changed []Comparison) {
	return p.history.read(route, time.Now())
}

// ShadowFailed counts a sample that was not compared.
func (p *proxied) ShadowFailed(route, reason string) {
	p.notCompared.WithLabelValues(route, reason).Inc()
}

// Switched sets whether a route is switched off.
func (p *proxied) Switched(route string, off bool) {
	p.off.WithLabelValues(route).Set(oneIf(off))
}
