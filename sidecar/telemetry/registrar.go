package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

const namespace = "likeness"

// secondBuckets reach from a kernel call to a deadline.
var secondBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
}

// Native histograms complement the classic buckets. Each bucket is at most a tenth wider
// than the one below. A series has at most nativeBuckets of them.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
)

// registrar registers metrics and collects their documentation.
type registrar struct {
	*prometheus.Registry
	docs []metricDoc
}

type metricDoc struct {
	name, kind, help string
	labels           []string
	buckets          int // of a histogram
}

func (r *registrar) add(kind, name, help string, labels []string, c prometheus.Collector) {
	r.docs = append(r.docs, metricDoc{name: namespace + "_" + name, kind: kind, help: help, labels: labels})
	r.MustRegister(c)
}

// describe documents a metric of a collector.
func (r *registrar) describe(kind, name, help string, labels ...string) *prometheus.Desc {
	r.docs = append(r.docs, metricDoc{name: namespace + "_" + name, kind: kind, help: help, labels: labels})
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

func (r *registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.add("counter", name, help, labels, v)
	return v
}

func (r *registrar) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.add("gauge", name, help, labels, v)
	return v
}

func (r *registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  nativeBuckets,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
	r.add("histogram", name, help, labels, v)
	r.docs[len(r.docs)-1].buckets = len(buckets)
	return v
}

// observe adds a value, with the trace id as an exemplar if the trace is sampled.
func observe(ctx context.Context, to prometheus.Observer, value float64) {
	span := trace.SpanContextFromContext(ctx)
	if with, ok := to.(prometheus.ExemplarObserver); ok && span.IsSampled() {
		with.ObserveWithExemplar(value, prometheus.Labels{"trace_id": span.TraceID().String()})
		return
	}
	to.Observe(value)
}
