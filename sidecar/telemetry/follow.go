package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/follow"
)

// followCollector reads how far routes are followed when it is asked for.
type followCollector struct {
	all    []followMetric
	drift  *prometheus.Desc
	source atomic.Pointer[func() []follow.Status]
}

// followMetric is one number of a status.
type followMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s follow.Status) float64
}

var _ prometheus.Collector = (*followCollector)(nil)

// following registers the metrics of the followers, which show nothing until
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
	gauge("table_age_seconds", "Since when a write was seen or missed that the table or the companion does not show; 0 if they show all.",
		func(s follow.Status) float64 { return s.Age.Seconds() })
	gauge("follow_pending", "Writes that were seen and that the live table or the companion does not show yet.",
		func(s follow.Status) float64 { return float64(s.Pending) })
	gauge("follow_stale", "1 if something was missed and not all rows were compared since, or was seen that the table or companion cannot follow: no answer from the table or companion is exact.",
		func(s follow.Status) float64 { return oneIf(s.Stale) })
	counter("follow_unjournaled_total", "Writes that were forwarded before the journal had them.",
		func(s follow.Status) float64 { return float64(s.Unjournaled) })
	gauge("follow_journal_failed", "1 while the journal takes no write, as with a full disk, and is tried again: writes are forwarded without it.",
		func(s follow.Status) float64 { return oneIf(s.JournalError != "") })
	counter("follow_failures_total", "Attempts to follow that failed and were made again.",
		func(s follow.Status) float64 { return float64(s.Failures) })
	gauge("reconcile_running", "1 while all rows are compared.",
		func(s follow.Status) float64 { return oneIf(s.Reconciling) })
	gauge("reconcile_last_timestamp_seconds", "When all rows were compared last; 0: never.",
		func(s follow.Status) float64 { return unixSeconds(s.Reconciled) })
	counter("reconcile_runs_total", "Comparisons of all rows that ended.",
		func(s follow.Status) float64 { return float64(s.Reconciles) })
	counter("reconcile_rows_total", "Rows that comparisons have read.",
		func(s follow.Status) float64 { return float64(s.Rows) })
	c.drift = r.describe("gauge", "drift_rows",
		"Rows that the last comparison found different, and repaired: missing, changed, surplus; unfit are those that the table's format cannot hold.", "route", "kind")
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

// WatchFollowing shows how far routes are followed.
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
