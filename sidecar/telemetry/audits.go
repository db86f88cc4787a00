package telemetry

import "github.com/prometheus/client_golang/prometheus"

// audits are the metrics of calibrations and of their audits.
type audits struct {
	answers                 *prometheus.CounterVec
	holds, recall, evidence *prometheus.GaugeVec
}

func newAudits(r *registrar) *audits {
	return &audits{
		answers:  r.counter("audited_answers_total", "Live answers drawn for the audit of a calibration: kept or missed the promised recall, or left out, and why.", "route", "outcome"),
		recall:   r.gauge("audit_recall", "Mean recall of the audited answers since the calibration was made.", "route"),
		evidence: r.gauge("audit_evidence", "E-value of the audited answers against the promise; it is rejected at 1/alpha.", "route"),
		holds:    r.gauge("calibration_holds", "1 while answers of a calibrated route carry the promise, 0 while it is void.", "route"),
	}
}

// Audited counts a live answer that was drawn for the audit.
func (a *audits) Audited(route, outcome string) { a.answers.WithLabelValues(route, outcome).Inc() }

// Promise notes whether a route's answers carry a calibration, and what its audit found.
func (a *audits) Promise(route string, holds bool, recall, evidence float64) {
	value := 0.0
	if holds {
		value = 1
	}
	a.holds.WithLabelValues(route).Set(value)
	a.recall.WithLabelValues(route).Set(recall)
	a.evidence.WithLabelValues(route).Set(evidence)
}
