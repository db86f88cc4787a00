package scorerpython

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/plugin"
)

// BenchmarkCall asks for the scores of 256 items with 64 KiB of payload. added is what
// a call takes beyond the scorer's own work: the connection, its TLS, ids and payloads
// read and parsed.
func BenchmarkCall(b *testing.B) {
	p := start(b, filepath.Join("testdata", "bench.py"))
	of := make([]string, 256)
	for i := range of {
		of[i] = strings.Repeat("x", 256-len(`{"text":""}`))
	}
	items := texts(of...)
	ask := func() []float32 {
		scores, err := p.Score(b.Context(), plugin.Query{}, items)
		if err != nil {
			b.Fatal(err)
		}
		return scores
	}
	for range 50 {
		ask()
	}
	var whole, added []float64
	from := ask()[1]
	for b.Loop() {
		start := time.Now()
		scores := ask()
		took := float64(time.Since(start).Nanoseconds()) / 1e3
		whole, added = append(whole, took), append(added, took-float64(scores[0]))
	}
	used := ask()[1] - from
	slices.Sort(whole)
	slices.Sort(added)
	b.ReportMetric(whole[len(whole)/2], "p50-us")
	b.ReportMetric(added[len(added)/10], "added-p10-us")
	b.ReportMetric(added[len(added)/2], "added-p50-us")
	b.ReportMetric(added[len(added)*9/10], "added-p90-us")
	b.ReportMetric(float64(used)*1e6/float64(len(whole)+1), "python-cpu-us/op")
}

// BenchmarkStart starts a plugin and asks for one score.
func BenchmarkStart(b *testing.B) {
	interpreter(b)
	for b.Loop() {
		p := start(b, "scorer.py")
		if _, err := p.Score(b.Context(), question, questions()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.client.Kill()
		b.StartTimer()
	}
}
