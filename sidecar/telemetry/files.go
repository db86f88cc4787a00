package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Files is the state of a certificate or of tokens that are read again when their files change.
type Files struct {
	// NotBefore and NotAfter bound the validity of the certificate in use; zero if the files hold
	// no certificate.
	NotBefore, NotAfter time.Time
	// Refused: the files have changed and cannot be used, so the old content stays in use.
	Refused bool
}

// Ending reports whether the certificate should have been renewed by now. Tools that renew
// by themselves do so while a third of the validity is left.
func (f Files) Ending(now time.Time) bool {
	const longBefore = 14 * 24 * time.Hour
	return !f.NotAfter.IsZero() && f.NotAfter.Sub(now) < min(longBefore, f.NotAfter.Sub(f.NotBefore)/5)
}

// filesCollector reads the states of files when the metrics are scraped.
type filesCollector struct {
	start, expiry, refused *prometheus.Desc

	mu  sync.Mutex
	now map[string]func() Files // by use
}

var _ prometheus.Collector = (*filesCollector)(nil)

// files registers the metrics of certificates and tokens. They have no series before
// WatchFiles.
func (r *registrar) files() *filesCollector {
	c := &filesCollector{
		expiry:  r.describe("gauge", "certificate_expiry_timestamp_seconds", "When the first certificate of the listener's chain expires.", "use"),
		start:   r.describe("gauge", "certificate_start_timestamp_seconds", "Start of the validity of the listener's certificate.", "use"),
		refused: r.describe("gauge", "files_refused", "1 while a changed certificate, key or tokens file cannot be used.", "use"),
		now:     map[string]func() Files{},
	}
	r.MustRegister(c)
	return c
}

// WatchFiles sets where the state of the files of a use is read.
func (m *Metrics) WatchFiles(use string, now func() Files) {
	m.watchedFiles.mu.Lock()
	defer m.watchedFiles.mu.Unlock()
	m.watchedFiles.now[use] = now
}

// Files returns the states of all files, by use.
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
		out <- prometheus.MustNewConstMetric(c.refused, prometheus.GaugeValue, oneIf(f.Refused), use)
	}
}
