package telemetry

import "github.com/prometheus/client_golang/prometheus"

// proxied are the metrics of the proxy.
type proxied struct {
	outcomes     *prometheus.CounterVec
	originals    *prometheus.CounterVec
	overlap      *prometheus.HistogramVec
	rankBiased   *prometheus.HistogramVec
	firstChanged *prometheus.CounterVec
	notCompared  *prometheus.CounterVec
	off          *prometheus.GaugeVec
}

// shareBuckets are tenths.
var shareBuckets = []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1}

func newProxied(r *registrar) *proxied {
	return &proxied{
		outcomes: r.counter("proxy_searches_total",
			"Searches of the database's clients on collections with a route: rescored, passed, degraded or shadow, and why.", "outcome", "reason"),
		originals: r.counter("proxy_originals_total",
			"Original requests sent beside rescoring, late or eagerly, that won or lost; those that lost are extra load. Withheld: sent in place of rescoring, because too many had lost.",
			"fallback", "outcome"),
		overlap:      r.histogram("proxy_shadow_overlap", "Share of the rows that a served answer and the rescored one have in common.", shareBuckets, "route"),
		rankBiased:   r.histogram("proxy_shadow_rank_biased_overlap", "Rank-biased overlap (p = 0.9) of a served answer and the rescored one.", shareBuckets, "route"),
		firstChanged: r.counter("proxy_shadow_first_changed_total", "Compared searches whose first row is another one rescored.", "route"),
		notCompared:  r.counter("proxy_shadow_failed_total", "Samples that were not compared: dropped because others were under way (busy), or why they were not rescored.", "route", "reason"),
		off:          r.gauge("proxy_off", "1 if the route was switched off on the admin listener.", "route"),
	}
}

// Proxied counts a search of a database's client on a collection with a route.
func (p *proxied) Proxied(outcome, reason string) { p.outcomes.WithLabelValues(outcome, reason).Inc() }

// Raced counts an original request that was sent beside rescoring.
func (p *proxied) Raced(fallback, outcome string) {
	p.originals.WithLabelValues(fallback, outcome).Inc()
}

// Shadowed counts how a served answer and the rescored one differ.
func (p *proxied) Shadowed(route string, overlap, rankBiased float64, firstChanged bool) {
	p.overlap.WithLabelValues(route).Observe(overlap)
	p.rankBiased.WithLabelValues(route).Observe(rankBiased)
	if firstChanged {
		p.firstChanged.WithLabelValues(route).Inc()
	}
}

// ShadowFailed counts a sample that was not compared.
func (p *proxied) ShadowFailed(route, reason string) {
	p.notCompared.WithLabelValues(route, reason).Inc()
}

// Switched shows whether a route is switched off.
func (p *proxied) Switched(route string, off bool) {
	value := 0.0
	if off {
		value = 1
	}
	p.off.WithLabelValues(route).Set(value)
}
