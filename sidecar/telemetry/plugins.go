package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/plugins"
)

// pluginCollector reads the states of plugins when the metrics are scraped.
type pluginCollector struct {
	all    []pluginMetric
	ends   *prometheus.Desc
	source atomic.Pointer[func() []plugins.State]
}

// pluginMetric is a metric whose value is read from a state.
type pluginMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s plugins.State) float64
}

var _ prometheus.Collector = (*pluginCollector)(nil)

// plugins registers the metrics of plugins. They have no series before WatchPlugins.
func (r *registrar) plugins() *pluginCollector {
	c := &pluginCollector{}
	gauge := func(name, help string, value func(s plugins.State) float64) {
		c.all = append(c.all, pluginMetric{r.describe("gauge", name, help, "plugin"), prometheus.GaugeValue, value})
	}
	gauge("plugin_up", "1 while the plugin takes calls.",
		func(s plugins.State) float64 { return oneIf(s.Status == plugins.Ready) })
	gauge("plugin_quarantined", "1 while the plugin is not restarted because it ended too often.",
		func(s plugins.State) float64 { return oneIf(s.Status == plugins.Quarantined) })
	gauge("plugin_status_timestamp_seconds", "When the plugin's status last changed.",
		func(s plugins.State) float64 { return unixSeconds(s.Since) })
	gauge("plugin_resident_memory_bytes", "Resident memory of the plugin's process; 0 if not known.",
		func(s plugins.State) float64 { return float64(s.Resident) })
	c.all = append(c.all, pluginMetric{
		r.describe("counter", "plugin_restarts_total", "Starts of the plugin, or connections to it, after the first.", "plugin"),
		prometheus.CounterValue, func(s plugins.State) float64 { return float64(s.Restarts) },
	})
	c.ends = r.describe("counter", "plugin_ends_total",
		"Ends of the plugin by reason: crashed, hung, memory (above its limit), checksum (a file changed), start (it could not start).",
		"plugin", "reason")
	r.MustRegister(c)
	return c
}

// WatchPlugins sets where the states of plugins are read.
func (m *Metrics) WatchPlugins(states func() []plugins.State) { m.pluginStates.source.Store(&states) }

// Describe implements prometheus.Collector.
func (c *pluginCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.all {
		out <- m.desc
	}
	out <- c.ends
}

// Collect implements prometheus.Collector.
func (c *pluginCollector) Collect(out chan<- prometheus.Metric) {
	states := c.source.Load()
	if states == nil {
		return
	}
	for _, s := range (*states)() {
		for _, m := range c.all {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), s.Name)
		}
		for _, reason := range plugins.Reasons() {
			out <- prometheus.MustNewConstMetric(c.ends, prometheus.CounterValue, float64(s.Ends[reason]), s.Name, string(reason))
		}
	}
}
