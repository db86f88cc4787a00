package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/reembed"
)

// reembedCollector reads how far routes have embedded their items again when the metrics are scraped.
type reembedCollector struct {
	items, waiting, embedded, refused, changed, dropped, failures *prometheus.Desc
	source                                                        atomic.Pointer[func() []reembed.State]
}

var _ prometheus.Collector = (*reembedCollector)(nil)

// reembedding registers the metrics of routes that embed their items again. They have no series before
// WatchReembedding.
func (r *registrar) reembedding() *reembedCollector {
	c := &reembedCollector{
		items:    r.describe("gauge", "reembed_items", "Items that the walk over a route's companion has read, by kind: new (with a vector of the new model), bridge.", "route", "kind"),
		waiting:  r.describe("gauge", "reembed_waiting", "Items that answers showed and that wait to be embedded again.", "route"),
		embedded: r.describe("counter", "reembed_embedded_total", "New vectors written.", "route"),
		refused:  r.describe("counter", "reembed_refused_total", "Items not embedded again because they have no text, or the embedder refused it.", "route"),
		changed:  r.describe("counter", "reembed_changed_total", "New vectors not written because the item was written or deleted meanwhile.", "route"),
		dropped:  r.describe("counter", "reembed_dropped_total", "Items that answers showed while the queue was full.", "route"),
		failures: r.describe("counter", "reembed_failures_total", "Failed attempts to embed items again; each is retried.", "route"),
	}
	r.MustRegister(c)
	return c
}

// WatchReembedding sets where the states of routes that embed their items again are read.
func (m *Metrics) WatchReembedding(states func() []reembed.State) {
	m.reembedding.source.Store(&states)
}

// Describe implements prometheus.Collector.
func (c *reembedCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.items, c.waiting, c.embedded, c.refused, c.changed, c.dropped, c.failures} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *reembedCollector) Collect(out chan<- prometheus.Metric) {
	states := c.source.Load()
	if states == nil {
		return
	}
	for _, s := range (*states)() {
		gauge := func(d *prometheus.Desc, n int64, kind ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), append([]string{s.Route}, kind...)...)
		}
		counter := func(d *prometheus.Desc, n int64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), s.Route)
		}
		gauge(c.items, s.New, "new")
		gauge(c.items, s.Items-s.New, "bridge")
		gauge(c.waiting, int64(s.Waiting))
		counter(c.embedded, s.Embedded)
		counter(c.refused, s.Refused)
		counter(c.changed, s.Changed)
		counter(c.dropped, s.Dropped)
		counter(c.failures, s.Failures)
	}
}
