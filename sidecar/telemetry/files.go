package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Files is how files are that are read again when they change: certificates, tokens.
type Files struct {
	// NotBefore and NotAfter are from when to when the certificate in force is valid; zero: it is none.
	NotBefore, NotAfter time.Time
	// Refused: they changed and cannot be used; what was read before is in force.
	Refused bool
}

// Ending reports that the certificate should have been renewed by now: those who do so
// by themselves do it while a third of the time is left, however long that is.
func (f Files) Ending(now time.Time) bool {
	const longBefore = 14 * 24 * time.Hour
	return !f.NotAfter.IsZero() && f.NotAfter.Sub(now) < min(longBefore, f.NotAfter.Sub(f.NotBefore)/5)
}

// filesCollector asks how files are when it is asked.
type filesCollector struct {
	start, expiry, refused *prometheus.Desc

	mu  sync.Mutex
	now map[string]func() Files // by use
}

var _ prometheus.Collector = (*filesCollector)(nil)

// files registers the metrics of certificates and tokens, which show nothing until WatchFiles.
func (r *registrar) files() *filesCollector {
	c := &filesCollector{
		expiry:  r.describe("gauge", "certificate_expiry_timestamp_seconds", "When the certificate ends that a listener presents, or the first of its chain.", "use"),
		start:   r.describe("gauge", "certificate_start_timestamp_seconds", "Since when that certificate is valid.", "use"),
		refused: r.describe("gauge", "files_refused", "1 while a changed certificate, key or tokens file cannot be used: what was read before is in force.", "use"),
		now:     map[string]func() Files{},
	}
	r.MustRegister(c)
	return c
}

// WatchFiles shows how the files of a use are.
func (m *Metrics) WatchFiles(use string, now func() Files) {
	m.watchedFiles.mu.Lock()
	defer m.watchedFiles.mu.Unlock()
	m.watchedFiles.now[use] = now
}

// Files are how the files are, by their use.
func (m *Metrics) Files() map[string]Files { return m.watchedFiles.read() }

func (c *filesCollector) read() map[string]Files {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]Files{}
	for use, now := range c.now {
		out[use] = now()
	}
	return out
}

// Describe implements prometheus.Collector.
func (c *filesCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.start
	out <- c.expiry
	out <- c.refused
}

// Collect implements prometheus.Collector.
func (c *filesCollector) Collect(out chan<- prometheus.Metric) {
	for use, f := range c.read() {
		if !f.NotAfter.IsZero() {
			out <- prometheus.MustNewConstMetric(c.start, prometheus.GaugeValue, float64(f.NotBefore.Unix()), use)
			out <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, float64(f.NotAfter.Unix()), use)
		}
		refused := 0.0
		if f.Refused {
			refused = 1
		}
		out <- prometheus.MustNewConstMetric(c.refused, prometheus.GaugeValue, refused, use)
	}
}
