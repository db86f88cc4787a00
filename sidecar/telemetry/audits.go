package telemetry

import "github.com/prometheus/client_golang/prometheus"

// audits holds the metrics of calibrations and of the audits of live answers.
type audits struct {
	answers                 *prometheus.CounterVec
	holds, recall, evidence *prometheus.GaugeVec
}

func newAudits(r *registrar) *audits {
	return &audits{
		answers:  r.counter("audited_answers_total", "Live answers drawn for an audit, by outcome: kept (the promised recall), missed, sampled (for a calibration), or why it was skipped.", "route", "outcome"),
		recall:   r.gauge("audit_recall", "Mean recall of the audited answers since the calibration was made.", "route"),
		evidence: r.gauge("audit_evidence", "E-value against the calibration's promise, which is rejected at 1/alpha.", "route"),
		holds:    r.gauge("calibration_holds", "1 while the answers of a calibrated route carry its promise.", "route"),
	}
}

// Audited counts a live answer that was chosen for the audit.
func (a *audits) Audited(route, outcome string) { a.answers.WithLabelValues(route, outcome).Inc() }

// Promise sets whether a route's answers carry a calibration, and what its audit found.
func (a *audits) Promise(route string, holds bool, recall, evidence float64) {
	a.holds.WithLabelValues(route).Set(oneIf(holds))
	a.recall.WithLabelValues(route).Set(recall)
	a.evidence.WithLabelValues(route).Set(evidence)
}
