package telemetry

import "github.com/prometheus/client_golang/prometheus"

// reloads are the metrics of configurations that were read again.
type reloads struct {
	reads   *prometheus.CounterVec
	good    prometheus.Gauge
	restart prometheus.Gauge
}

func newReloads(r *registrar) *reloads {
	m := &reloads{
		reads:   r.counter("config_reloads_total", "Times that the configuration was read again and had changed, by outcome: applied, or refused, which changed nothing.", "outcome"),
		good:    r.gauge("config_last_reload_successful", "1 if the configuration could be used when it was read last, 0 if what was read before is in force.").WithLabelValues(),
		restart: r.gauge("config_restart_keys", "Keys of the configuration that were changed and wait for a restart.").WithLabelValues(),
	}
	m.good.Set(1)
	return m
}

// Reloaded notes that a changed configuration was read again, and whether it is in force.
func (m *reloads) Reloaded(applied bool) {
	outcome, good := "refused", 0.0
	if applied {
		outcome, good = "applied", 1
	}
	m.reads.WithLabelValues(outcome).Inc()
	m.good.Set(good)
}

// RestartKeys notes how many changed keys wait for a restart.
func (m *reloads) RestartKeys(n int) { m.restart.Set(float64(n)) }
