package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/plugins/offload"
)

// deviceCollector reads the states of devices when the metrics are scraped.
type deviceCollector struct {
	all     []deviceMetric
	answers *prometheus.Desc
	source  atomic.Pointer[func() []offload.Status]
}

// deviceMetric is a metric whose value is read from a status.
type deviceMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s offload.Status) float64
}

var _ prometheus.Collector = (*deviceCollector)(nil)

// devices registers the metrics of devices. They have no series before WatchDevices.
func (r *registrar) devices() *deviceCollector {
	c := &deviceCollector{}
	labels := []string{"route", "version", "plugin"}
	add := func(kind prometheus.ValueType, word, name, help string, value func(s offload.Status) float64) {
		c.all = append(c.all, deviceMetric{r.describe(word, name, help, labels...), kind, value})
	}
	add(prometheus.GaugeValue, "gauge", "device_ready", "1 while the device scores the route's searches.",
		func(s offload.Status) float64 { return oneIf(s.State == offload.Ready) })
	add(prometheus.GaugeValue, "gauge", "device_broken", "1 after the device returned wrong scores, until it is started again.",
		func(s offload.Status) float64 { return oneIf(s.State == offload.Broken) })
	add(prometheus.GaugeValue, "gauge", "device_rows", "Rows of the route's table on the device.",
		func(s offload.Status) float64 { return float64(s.Rows) })
	add(prometheus.CounterValue, "counter", "device_loads_total", "Loads of the whole table onto the device.",
		func(s offload.Status) float64 { return float64(s.Loads) })
	add(prometheus.CounterValue, "counter", "device_patches_total", "Updates of the device's table after writes.",
		func(s offload.Status) float64 { return float64(s.Patches) })
	c.answers = r.describe("counter", "device_answers_total",
		"Searches that the device could score, by outcome: used, or why the sidecar scored: not_ready, stale (behind the table), failed, undecided (the device may have left out a result), contradicted (wrong scores).",
		append(labels, "outcome")...)
	r.MustRegister(c)
	return c
}

// WatchDevices sets where the states of devices are read.
func (m *Metrics) WatchDevices(status func() []offload.Status) { m.deviceStates.source.Store(&status) }

// Describe implements prometheus.Collector.
func (c *deviceCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.all {
		out <- m.desc
	}
	out <- c.answers
}

// Collect implements prometheus.Collector. While a version is opened again it has two states; only
// the first is reported.
func (c *deviceCollector) Collect(out chan<- prometheus.Metric) {
	status := c.source.Load()
	if status == nil {
		return
	}
	seen := map[[3]string]bool{}
	for _, s := range (*status)() {
		key := [3]string{s.Route, s.Version, s.Plugin}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, m := range c.all {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), key[:]...)
		}
		for _, outcome := range offload.Outcomes() {
			out <- prometheus.MustNewConstMetric(c.answers, prometheus.CounterValue, float64(s.Answers[outcome]), append(key[:], outcome)...)
		}
	}
}
