package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/ranker"
)

// rankers has the metrics of heavy rankers, by their names in the configuration.
type rankers struct {
	calls    *prometheus.CounterVec
	items    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	flying   *prometheus.GaugeVec
	retries  *prometheus.CounterVec
	notAsked *prometheus.CounterVec
	broken   *prometheus.GaugeVec
}

var _ ranker.Observer = (*rankers)(nil)

func newRankers(r *registrar) *rankers {
	return &rankers{
		calls: r.counter("ranker_calls_total",
			"Calls of a ranker by outcome: ok, unavailable, timeout, cancelled, too_large (split and sent again), query or answer (not valid).", "ranker", "outcome"),
		items:   r.counter("ranker_items_total", "Items sent to a ranker, failed calls included.", "ranker", "outcome"),
		seconds: r.histogram("ranker_call_duration_seconds", "Duration of a ranker's calls.", secondBuckets, "ranker"),
		flying:  r.gauge("ranker_calls_in_flight", "Calls of a ranker that have not ended.", "ranker"),
		retries: r.counter("ranker_retries_total", "Retries of a ranker's calls after a temporary failure.", "ranker"),
		notAsked: r.counter("ranker_items_not_asked_total",
			"Items not sent, by reason: broken (the breaker was open or the ranker missing), late (no answer could come in time), cancelled (by the caller), "+
				"too_large (one item alone), given_up (another failure ended the request).", "ranker", "reason"),
		broken: r.gauge("ranker_broken", "1 while the breaker is open or half-open.", "ranker"),
	}
}

// RankerCalled counts a call. The caller calls ended with its outcome.
func (r *rankers) RankerCalled(ctx context.Context, name string, items int) (ended func(outcome string)) {
	start := time.Now()
	flying := r.flying.WithLabelValues(name)
	flying.Inc()
	return func(outcome string) {
		flying.Dec()
		r.calls.WithLabelValues(name, outcome).Inc()
		r.items.WithLabelValues(name, outcome).Add(float64(items))
		observe(ctx, r.seconds.WithLabelValues(name), time.Since(start).Seconds())
	}
}

// RankerRetried counts a call that is made again.
func (r *rankers) RankerRetried(name string) { r.retries.WithLabelValues(name).Inc() }

// RankerNotAsked counts items that were not sent.
func (r *rankers) RankerNotAsked(name string, items int, reason string) {
	r.notAsked.WithLabelValues(name, reason).Add(float64(items))
}

// RankerBroken sets whether the breaker is open or half-open.
func (r *rankers) RankerBroken(name string, broken bool) {
	r.broken.WithLabelValues(name).Set(oneIf(broken))
}
