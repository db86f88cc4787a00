package scorerpython

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/signals"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/plugins"
)

// BenchmarkCall asks for the scores of 256 items with 64 KiB of payload. added is the time of a
// call beyond the scorer's own work: connection, TLS, reading and parsing ids and payloads.
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

// BenchmarkBack is from a signal to the scorer to the first answer of the next process,
// which the sidecar's supervisor starts. Each is the first end of its plugin.
func BenchmarkBack(b *testing.B) {
	python, model := interpreter(b), trained(b)
	for name, args := range map[string][]string{"template": {"scorer.py"}, "ranker": {"ranker.py", "--model", model}} {
		for what, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
			b.Run(name+"/"+what, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					p, err := plugins.Start(b.Context(), plugins.Options{Name: "python", Path: python, Args: args, StartTimeout: time.Minute})
					if err != nil {
						b.Fatal(err)
					}
					firstAnswer(b, p)
					b.StartTimer()
					signals.Send(b, p.State().PID, signal)
					for p.State().Restarts == 0 { // the old process may still answer, and then nobody does
						_, _ = p.Scorer().Score(b.Context(), question, questions())
					}
					firstAnswer(b, p)
					b.StopTimer()
					_ = p.Close()
					b.StartTimer()
				}
			})
		}
	}
}

func firstAnswer(b *testing.B, p *plugins.Plugin) {
	b.Helper()
	if err := p.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Scorer().Score(b.Context(), question, questions()); err != nil {
		b.Fatal(err)
	}
}
