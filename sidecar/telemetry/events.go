package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/events"
)

// eventCollector reads what routes keep of their answers when the metrics are scraped.
type eventCollector struct {
	all     []eventMetric
	refused *prometheus.Desc
	source  atomic.Pointer[func() map[string]events.RouteStats]
}

// eventMetric is a metric whose value is read from a route's statistics.
type eventMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s events.RouteStats) float64
}

var _ prometheus.Collector = (*eventCollector)(nil)

// events registers the metrics of events. They have no series before WatchEvents.
func (r *registrar) events() *eventCollector {
	c := &eventCollector{}
	add := func(kind prometheus.ValueType, word, name, help string, value func(s events.RouteStats) float64) {
		c.all = append(c.all, eventMetric{r.describe(word, name, help, "route"), kind, value})
	}
	counter := func(name, help string, value func(s events.RouteStats) int64) {
		add(prometheus.CounterValue, "counter", name, help, func(s events.RouteStats) float64 { return float64(value(s)) })
	}
	counter("events_impressions_total", "Impressions of answers that were written.", func(s events.RouteStats) int64 { return s.Impressions })
	counter("events_impressions_dropped_total", "Impressions not written: the disk was too slow or failed.", func(s events.RouteStats) int64 { return s.Dropped })
	counter("events_feedback_total", "Feedback that was written.", func(s events.RouteStats) int64 { return s.Feedback })
	counter("events_feedback_known_total", "Feedback that was known already.", func(s events.RouteStats) int64 { return s.Repeated })
	add(prometheus.GaugeValue, "gauge", "events_bytes", "Bytes of the files of events.", func(s events.RouteStats) float64 { return float64(s.Bytes) })
	add(prometheus.GaugeValue, "gauge", "events_failed", "1 while events cannot be written, such as on a full disk.", func(s events.RouteStats) float64 { return oneIf(s.Failed != nil) })
	c.refused = r.describe("counter", "events_feedback_refused_total", "Feedback that was refused, by reason.", "route", "reason")
	r.MustRegister(c)
	return c
}

// WatchEvents sets where the statistics of events are read.
func (m *Metrics) WatchEvents(stats func() map[string]events.RouteStats) {
	m.keptEvents.source.Store(&stats)
}

// Describe implements prometheus.Collector.
func (c *eventCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.all {
		out <- m.desc
	}
	out <- c.refused
}

// Collect implements prometheus.Collector.
func (c *eventCollector) Collect(out chan<- prometheus.Metric) {
	stats := c.source.Load()
	if stats == nil {
		return
	}
	for name, s := range (*stats)() {
		for _, m := range c.all {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), name)
		}
		for reason, n := range s.Refused {
			out <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(n), name, reason.String())
		}
	}
}
