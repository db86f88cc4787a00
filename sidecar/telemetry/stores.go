package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/adapters/guard"
)

// stores are the metrics of the stores, by the names that the configuration gives them.
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
			"Calls of a store by outcome: ok, unavailable, timeout, cancelled, refused (credentials), failed (in another way), or broken: not sent, since the collection kept failing.",
			"store", "operation", "outcome"),
		storeSeconds: r.histogram("store_call_duration_seconds", "Duration of its calls.", secondBuckets, "store", "operation"),
		storeRetries: r.counter("store_retries_total", "Reads that were sent again after a failure that can pass.", "store", "operation"),
		storeHedges:  r.counter("store_hedges_total", "First-stage searches that were sent a second time beside the first.", "store"),
		storeBroken:  r.gauge("store_broken", "Collections that are not read, or by one call at a time, since they kept failing.", "store"),
	}
}

// StoreCalled counts a call.
func (s *stores) StoreCalled(ctx context.Context, store, operation string) (ended func(outcome string)) {
	start := time.Now()
	return func(outcome string) {
		s.storeCalls.WithLabelValues(store, operation, outcome).Inc()
		if outcome != guard.Broken {
			observe(ctx, s.storeSeconds.WithLabelValues(store, operation), time.Since(start).Seconds())
		}
	}
}

// StoreRetried counts a read that is sent again.
func (s *stores) StoreRetried(store, operation string) {
	s.storeRetries.WithLabelValues(store, operation).Inc()
}

// StoreHedged counts a search that is sent twice.
func (s *stores) StoreHedged(store string) { s.storeHedges.WithLabelValues(store).Inc() }

// StoreBroken shows how many collections are not read.
func (s *stores) StoreBroken(store string, collections int) {
	s.storeBroken.WithLabelValues(store).Set(float64(collections))
}
