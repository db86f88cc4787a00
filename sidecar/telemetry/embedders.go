package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/likenessdb/likeness/sidecar/embed"
)

// embedders has the metrics of embedders, by their names in the configuration.
type embedders struct {
	called   *prometheus.CounterVec
	texts    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	cached   *prometheus.CounterVec
	breakers *prometheus.GaugeVec
}

var _ embed.Observer = (*embedders)(nil)

func newEmbedders(r *registrar) *embedders {
	return &embedders{
		called: r.counter("embedder_calls_total",
			"Calls of an embedder by outcome: ok, unavailable, timeout, too_large (split and sent again), text (refused), answer (not valid), broken (not sent, the breaker was open).", "embedder", "outcome"),
		texts:    r.counter("embedder_texts_total", "Texts in an embedder's calls.", "embedder", "outcome"),
		took:     r.histogram("embedder_call_duration_seconds", "Duration of an embedder's calls.", secondBuckets, "embedder"),
		cached:   r.counter("embedder_cache_total", "Texts by outcome: found in an embedder's cache, or missed.", "embedder", "outcome"),
		breakers: r.gauge("embedder_broken", "1 while the breaker is open or half-open.", "embedder"),
	}
}

// EmbedderCalled counts a call. The caller calls ended with its outcome.
func (e *embedders) EmbedderCalled(ctx context.Context, name string, texts int) (ended func(outcome string)) {
	start := time.Now()
	return func(outcome string) {
		e.called.WithLabelValues(name, outcome).Inc()
		e.texts.WithLabelValues(name, outcome).Add(float64(texts))
		if outcome != embed.Broken {
			observe(ctx, e.took.WithLabelValues(name), time.Since(start).Seconds())
		}
	}
}

// EmbedderCached counts texts that were found in the cache, and texts that were not.
func (e *embedders) EmbedderCached(name string, found, missed int) {
	e.cached.WithLabelValues(name, "found").Add(float64(found))
	e.cached.WithLabelValues(name, "missed").Add(float64(missed))
}

// EmbedderBroken sets whether the breaker is open or half-open.
func (e *embedders) EmbedderBroken(name string, broken bool) {
	e.breakers.WithLabelValues(name).Set(oneIf(broken))
}
