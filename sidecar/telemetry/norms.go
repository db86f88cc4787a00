package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/route"
)

// normCollector reads, when the metrics are scraped, which routes have seen a row that contradicts
// unit_vectors.
type normCollector struct {
	wrong  *prometheus.Desc
	source atomic.Pointer[func() []*route.Route]
}

var _ prometheus.Collector = (*normCollector)(nil)

// norms registers the metric of routes that declare unit_vectors. It has no series before
// WatchNorms.
func (r *registrar) norms() *normCollector {
	c := &normCollector{wrong: r.describe("gauge", "wrong_norm",
		"1 after a row without norm 1 was seen on a route with unit_vectors, until the route is opened again.", "route")}
	r.MustRegister(c)
	return c
}

// WatchNorms sets where the routes are read.
func (m *Metrics) WatchNorms(routes func() []*route.Route) { m.routeNorms.source.Store(&routes) }

// Describe implements prometheus.Collector.
func (c *normCollector) Describe(out chan<- *prometheus.Desc) { out <- c.wrong }

// Collect implements prometheus.Collector.
func (c *normCollector) Collect(out chan<- prometheus.Metric) {
	routes := c.source.Load()
	if routes == nil {
		return
	}
	for _, r := range (*routes)() {
		if r.Norms != nil {
			out <- prometheus.MustNewConstMetric(c.wrong, prometheus.GaugeValue, oneIf(r.Norms.Wrong() != nil), r.Name)
		}
	}
}
