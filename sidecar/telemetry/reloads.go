package telemetry

import "github.com/prometheus/client_golang/prometheus"

// reloads has the metrics of reloads of the configuration.
type reloads struct {
	reads   *prometheus.CounterVec
	good    prometheus.Gauge
	restart prometheus.Gauge
}

func newReloads(r *registrar) *reloads {
	m := &reloads{
		reads:   r.counter("config_reloads_total", "Reloads of a changed configuration, by outcome: applied or refused.", "outcome"),
		good:    r.gauge("config_last_reload_successful", "1 if the last reload was applied, 0 if the old configuration is in force.").WithLabelValues(),
		restart: r.gauge("config_restart_keys", "Changed keys of the configuration that take effect after a restart.").WithLabelValues(),
	}
	m.good.Set(1)
	return m
}

// Reloaded counts a reload of a changed configuration.
func (m *reloads) Reloaded(applied bool) {
	outcome, good := "refused", 0.0
	if applied {
		outcome, good = "applied", 1
	}
	m.reads.WithLabelValues(outcome).Inc()
	m.good.Set(good)
}

// RestartKeys sets how many changed keys wait for a restart.
func (m *reloads) RestartKeys(n int) { m.restart.Set(float64(n)) }
