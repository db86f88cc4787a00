package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/follow"
)

// followCollector reads the states of followed routes when the metrics are scraped.
type followCollector struct {
	all    []followMetric
	drift  *prometheus.Desc
	source atomic.Pointer[func() []follow.Status]
}

// followMetric is a metric whose value is read from a status.
type followMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s follow.Status) float64
}

var _ prometheus.Collector = (*followCollector)(nil)

// following registers the metrics of followed routes. They have no series before
// WatchFollowing.
func (r *registrar) following() *followCollector {
	c := &followCollector{}
	add := func(kind prometheus.ValueType, word, name, help string, value func(s follow.Status) float64) {
		c.all = append(c.all, followMetric{r.describe(word, name, help, "route"), kind, value})
	}
	gauge := func(name, help string, value func(s follow.Status) float64) {
		add(prometheus.GaugeValue, "gauge", name, help, value)
	}
	counter := func(name, help string, value func(s follow.Status) float64) {
		add(prometheus.CounterValue, "counter", name, help, value)
	}
	gauge("table_age_seconds", "Age of the oldest write that the table or companion does not show; 0 if they show all.",
		func(s follow.Status) float64 { return s.Age.Seconds() })
	gauge("follow_pending", "Writes seen that the live table or companion does not show yet.",
		func(s follow.Status) float64 { return float64(s.Pending) })
	gauge("follow_stale", "1 while the table or companion may lack writes.",
		func(s follow.Status) float64 { return oneIf(s.Stale) })
	gauge("follow_foreign_rows", "Rows written past this sidecar, until an operator has reconciled.",
		func(s follow.Status) float64 { return float64(s.ForeignRows()) })
	gauge("follow_sidecars_not_seen", "1 while writes of other sidecars may be missed in the shared journal.",
		func(s follow.Status) float64 { return oneIf(s.PeerError != "") })
	counter("follow_unjournaled_total", "Writes forwarded without a journal entry.",
		func(s follow.Status) float64 { return float64(s.Unjournaled) })
	gauge("follow_journal_failed", "1 while the journal cannot be written, such as on a full disk.",
		func(s follow.Status) float64 { return oneIf(s.JournalError != "") })
	counter("follow_failures_total", "Failed attempts to follow writes; each is retried.",
		func(s follow.Status) float64 { return float64(s.Failures) })
	gauge("reconcile_running", "1 while a comparison of all rows runs.",
		func(s follow.Status) float64 { return oneIf(s.Reconciling) })
	gauge("reconcile_last_timestamp_seconds", "When a comparison of all rows last ended; 0 if none has.",
		func(s follow.Status) float64 { return unixSeconds(s.Reconciled) })
	counter("reconcile_runs_total", "Comparisons of all rows that ended.",
		func(s follow.Status) float64 { return float64(s.Reconciles) })
	counter("reconcile_rows_total", "Rows read by comparisons.",
		func(s follow.Status) float64 { return float64(s.Rows) })
	c.drift = r.describe("gauge", "drift_rows",
		"Rows that the last comparison found missing, changed or surplus, or unfit for the table's format.", "route", "kind")
	r.MustRegister(c)
	return c
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// WatchFollowing sets where the states of followed routes are read.
func (m *Metrics) WatchFollowing(status func() []follow.Status) { m.following.source.Store(&status) }

// Describe implements prometheus.Collector.
func (c *followCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.all {
		out <- m.desc
	}
	out <- c.drift
}

// Collect implements prometheus.Collector.
func (c *followCollector) Collect(out chan<- prometheus.Metric) {
	status := c.source.Load()
	if status == nil {
		return
	}
	for _, s := range (*status)() {
		for _, m := range c.all {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), s.Route)
		}
		for kind, n := range map[string]int64{"missing": s.Drift.Missing, "changed": s.Drift.Changed, "surplus": s.Drift.Surplus, "unfit": s.Drift.Unfit} {
			out <- prometheus.MustNewConstMetric(c.drift, prometheus.GaugeValue, float64(n), s.Route, kind)
		}
	}
}
