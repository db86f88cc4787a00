package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/ranker"
)

// rankers are the metrics of heavy rankers, by the names that the configuration gives
// them.
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
			"Calls of a ranker by outcome: ok, unavailable, timeout, cancelled, too_large (asked again in halves), query or answer (not valid).", "ranker", "outcome"),
		items:   r.counter("ranker_items_total", "Items that it was asked of, those of failed calls included: what it costs.", "ranker", "outcome"),
		seconds: r.histogram("ranker_call_duration_seconds", "Duration of its calls.", secondBuckets, "ranker"),
		flying:  r.gauge("ranker_calls_in_flight", "Calls of it that have not ended.", "ranker"),
		retries: r.counter("ranker_retries_total", "Calls that were made again after a failure that can pass.", "ranker"),
		notAsked: r.counter("ranker_items_not_asked_total",
			"Items left without a call: the breaker was open or the ranker not there (broken), no answer could come in time (late), the caller gave up (cancelled), "+
				"one alone is too large (too_large), or another failure ended the request (given_up).", "ranker", "reason"),
		broken: r.gauge("ranker_broken", "1 while the breaker lets no call through, or one at a time.", "ranker"),
	}
}

// RankerCalled counts a call.
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

// RankerNotAsked counts items without a call.
func (r *rankers) RankerNotAsked(name string, items int, reason string) {
	r.notAsked.WithLabelValues(name, reason).Add(float64(items))
}

// RankerBroken shows the state of the breaker.
func (r *rankers) RankerBroken(name string, broken bool) {
	r.broken.WithLabelValues(name).Set(oneIf(broken))
}
