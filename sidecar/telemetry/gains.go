package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/gain"
)

// gainCollector reads the gains of the models in service when the metrics are scraped.
type gainCollector struct {
	first, now, fell, until *prometheus.Desc
	source                  atomic.Pointer[func() map[string]gain.State]
}

var _ prometheus.Collector = (*gainCollector)(nil)

// gains registers the metrics of gains. They have no series before WatchGains.
func (r *registrar) gains() *gainCollector {
	c := &gainCollector{
		first: r.describe("gauge", "gain_first", "Gain of the model in service over the store's order, on events, when it was first measured.", "route"),
		now:   r.describe("gauge", "gain_now", "The same on the newest events, as `likeness refit` measured it last.", "route"),
		fell:  r.describe("gauge", "gain_fell", "1 if the gain is less than at first, beyond chance.", "route"),
		until: r.describe("gauge", "gain_measured_timestamp_seconds", "When the newest events of likeness_gain_now end.", "route"),
	}
	r.MustRegister(c)
	return c
}

// WatchGains sets where the gains of routes are read.
func (m *Metrics) WatchGains(gains func() map[string]gain.State) { m.served.source.Store(&gains) }

// Describe implements prometheus.Collector.
func (c *gainCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.first, c.now, c.fell, c.until} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *gainCollector) Collect(out chan<- prometheus.Metric) {
	gains := c.source.Load()
	if gains == nil {
		return
	}
	for route, s := range (*gains)() {
		for desc, value := range map[*prometheus.Desc]float64{
			c.first: s.First.Gain, c.now: s.Now.Gain, c.fell: oneIf(s.Fell()), c.until: float64(s.Now.Until.UnixMilli()) / 1000,
		} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, route)
		}
	}
}
