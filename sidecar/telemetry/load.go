package telemetry

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// loadCollector reads the state of the gate when the metrics are scraped.
type loadCollector struct {
	limit, inFlight, queued *prometheus.Desc
	source                  atomic.Pointer[loadSource]
}

type loadSource struct {
	gate   *gate.Gate
	routes []string
}

var _ prometheus.Collector = (*loadCollector)(nil)

// load registers the metrics of the gate. They have no series before WatchGate.
func (r *registrar) load() *loadCollector {
	c := &loadCollector{
		limit:    r.describe("gauge", "admission_limit", "Searches of a route that may be in flight.", "route"),
		inFlight: r.describe("gauge", "admission_in_flight", "Searches of a route in flight.", "route"),
		queued:   r.describe("gauge", "admission_queued", "Searches of a route that wait for admission.", "route"),
	}
	r.MustRegister(c)
	return c
}

// WatchGate sets the gate whose load and received bytes are read.
func (m *Metrics) WatchGate(g *gate.Gate) {
	m.load.source.Store(&loadSource{gate: g, routes: slices.Collect(maps.Keys(m.routes))})
	m.receiving.Store(g)
}

// Refused counts a search that was not admitted.
func (m *Metrics) Refused(route string, reason gate.Reason) {
	m.refused.WithLabelValues(route, string(reason)).Inc()
}

// Describe implements prometheus.Collector.
func (c *loadCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.limit
	out <- c.inFlight
	out <- c.queued
}

// Collect implements prometheus.Collector.
func (c *loadCollector) Collect(out chan<- prometheus.Metric) {
	source := c.source.Load()
	if source == nil {
		return
	}
	for _, route := range source.routes {
		l, ok := source.gate.Load(route)
		if !ok {
			continue
		}
		for desc, n := range map[*prometheus.Desc]int{c.limit: l.Limit, c.inFlight: l.InFlight, c.queued: l.Queued} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), route)
		}
	}
}

// received registers the metric of the bytes that are held for requests. It is 0 before
// WatchGate.
func (r *registrar) received() *atomic.Pointer[gate.Gate] {
	const name, help = namespace + "_received_bytes", "Bytes that count against limits.max_received_bytes."
	receiving := &atomic.Pointer[gate.Gate]{}
	r.docs = append(r.docs, metricDoc{name: name, kind: "gauge", help: help})
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(receiving.Load().ReceivedBytes()) }))
	return receiving
}
