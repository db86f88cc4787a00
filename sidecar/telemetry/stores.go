package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/adapters/guard"
)

// stores has the metrics of stores, by their names in the configuration.
type stores struct {
	storeCalls   *prometheus.CounterVec
	storeSeconds *prometheus.HistogramVec
	storeRetries *prometheus.CounterVec
	storeHedges  *prometheus.CounterVec
	storeBroken  *prometheus.GaugeVec
}

var _ guard.Observer = (*stores)(nil)

func newStores(r *registrar) *stores {
	return &stores{
		storeCalls: r.counter("store_calls_total",
			"Calls of a store by outcome: ok, unavailable, timeout, cancelled, refused (credentials), failed (otherwise), broken (not sent, because the breaker was open).",
			"store", "operation", "outcome"),
		storeSeconds: r.histogram("store_call_duration_seconds", "Duration of a store's calls.", secondBuckets, "store", "operation"),
		storeRetries: r.counter("store_retries_total", "Retries of reads after a temporary failure.", "store", "operation"),
		storeHedges:  r.counter("store_hedges_total", "First-stage searches sent a second time before the first answered.", "store"),
		storeBroken:  r.gauge("store_broken", "Collections whose breaker is open or half-open.", "store"),
	}
}

// StoreCalled counts a call. The caller calls ended with its outcome.
func (s *stores) StoreCalled(ctx context.Context, store, operation string) (ended func(outcome string)) {
	start := time.Now()
	return func(outcome string) {
		s.storeCalls.WithLabelValues(store, operation, outcome).Inc()
		if outcome != guard.Broken {
			observe(ctx, s.storeSeconds.WithLabelValues(store, operation), time.Since(start).Seconds())
		}
	}
}

// StoreRetried counts a retry of a read.
func (s *stores) StoreRetried(store, operation string) {
	s.storeRetries.WithLabelValues(store, operation).Inc()
}

// StoreHedged counts a hedged search.
func (s *stores) StoreHedged(store string) { s.storeHedges.WithLabelValues(store).Inc() }

// StoreBroken sets the number of collections whose breaker is open or half-open.
func (s *stores) StoreBroken(store string, collections int) {
	s.storeBroken.WithLabelValues(store).Set(float64(collections))
}
