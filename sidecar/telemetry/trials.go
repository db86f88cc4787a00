package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// trialCollector reads the states of experiments when the metrics are scraped.
type trialCollector struct {
	all    []trialMetric
	source atomic.Pointer[func() []trial.Status]
}

// trialMetric is a metric whose value is read from the status of an experiment.
type trialMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s trial.Status) float64
}

var _ prometheus.Collector = (*trialCollector)(nil)

// trials registers the metrics of experiments. They have no series before WatchTrials.
func (r *registrar) trials() *trialCollector {
	c := &trialCollector{}
	add := func(kind prometheus.ValueType, word, name, help string, value func(s trial.Status) float64) {
		c.all = append(c.all, trialMetric{r.describe(word, name, help, "route"), kind, value})
	}
	gauge := func(name, help string, value func(s trial.Status) float64) {
		add(prometheus.GaugeValue, "gauge", name, help, value)
	}
	counter := func(name, help string, value func(s trial.Status) int) {
		add(prometheus.CounterValue, "counter", name, help, func(s trial.Status) float64 { return float64(value(s)) })
	}
	gauge("experiment_share", "Share of the users that take part in the route's experiment; 0 once it is stopped.", func(s trial.Status) float64 { return s.Share })
	gauge("experiment_stopped", "1 if the route's experiment was stopped, by a guard, proved harm or a person.", func(s trial.Status) float64 { return oneIf(s.Stage == experiment.Stopped) })
	gauge("experiment_waiting", "1 while the candidate is better and a person has to activate it.", func(s trial.Status) float64 { return oneIf(s.Stage == experiment.Waiting) })
	gauge("experiment_preference", "Mean preference for the candidate, from -1 to 1.", func(s trial.Status) float64 { return s.Mean })
	gauge("experiment_evidence", "Share of the evidence that a verdict takes, by now.", func(s trial.Status) float64 { return s.Evidence })
	counter("experiment_sessions_total", "Sessions that were counted.", func(s trial.Status) int { return s.Test.Units })
	counter("experiment_answers_total", "Searches of the candidate.", func(s trial.Status) int { return s.Observed.Answers })
	counter("experiment_slow_total", "Answers of the candidate that came too late.", func(s trial.Status) int { return s.Observed.Slow })
	counter("experiment_failed_total", "Answers of the candidate that were errors, degraded, or empty.", func(s trial.Status) int {
		return s.Observed.Errors + s.Observed.Degraded + s.Observed.Empty
	})
	r.MustRegister(c)
	return c
}

// WatchTrials sets where the states of experiments are read.
func (m *Metrics) WatchTrials(statuses func() []trial.Status) { m.experiments.source.Store(&statuses) }

// Describe implements prometheus.Collector.
func (c *trialCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.all {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *trialCollector) Collect(out chan<- prometheus.Metric) {
	statuses := c.source.Load()
	if statuses == nil {
		return
	}
	for _, s := range (*statuses)() {
		for _, m := range c.all {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), s.Route)
		}
	}
}
