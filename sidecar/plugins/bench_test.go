//go:build unix

package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/likenessdb/likeness/internal/signals"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

// built are the options of the plugin in a binary of its own, with the defaults.
func built(b *testing.B, args ...string) plugins.Options {
	b.Helper()
	path, err := faulty.Build(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return plugins.Options{Name: "ranker", Path: path, Args: args, TempDir: options(b).TempDir, QuarantineAfter: 1 << 20}
}

// firstAnswer asks without a pause until there is one of another process than was.
func firstAnswer(b *testing.B, p *plugins.Plugin, was int) {
	b.Helper()
	for {
		ctx, cancel := context.WithTimeout(b.Context(), 100*time.Millisecond)
		_, err := score(ctx, p, items(1))
		cancel()
		if err == nil && p.State().PID != was {
			return
		}
		ctx, cancel = context.WithTimeout(b.Context(), 10*time.Second)
		err = p.Ready(ctx)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
	}
}

// spent is the processor time of this process and of its children that have ended.
func spent(b *testing.B) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return sum
}

// report says median and greatest of times, and the processor time since began of each.
func report(b *testing.B, times []time.Duration, began time.Duration) {
	b.Helper()
	b.ReportMetric((spent(b)-began).Seconds()*1000/float64(len(times)), "cpu-ms")
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(times[len(times)-1].Microseconds())/1000, "ms-max")
}

// BenchmarkStart is from Start to the first answer.
func BenchmarkStart(b *testing.B) {
	o := built(b)
	var times []time.Duration
	cpu := spent(b)
	for b.Loop() {
		began := time.Now()
		p := start(b, o)
		if err := p.Ready(b.Context()); err != nil {
			b.Fatal(err)
		}
		firstAnswer(b, p, 0)
		times = append(times, time.Since(began))
		_ = p.Close()
	}
	report(b, times, cpu)
}

// BenchmarkBack is from a signal to the plugin to the first answer of the next.
func BenchmarkBack(b *testing.B) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		b.Run(name, func(b *testing.B) {
			o := built(b)
			var times []time.Duration
			cpu := spent(b)
			for b.Loop() {
				p := start(b, o) // its first end: no pause before the next start
				firstAnswer(b, p, 0)
				began, pid := time.Now(), p.State().PID
				signals.Send(b, pid, signal)
				firstAnswer(b, p, pid)
				times = append(times, time.Since(began))
				if s := p.State(); s.Restarts != 1 {
					b.Fatalf("%+v", s)
				}
				_ = p.Close()
			}
			report(b, times, cpu)
		})
	}
}

// BenchmarkCall is one call for the scores of items with payloads of so many bytes
// together; the plugin hashes ids. The processor time is the host's.
func BenchmarkCall(b *testing.B) {
	p := start(b, built(b))
	ready(b, p)
	for _, size := range []int{0, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("items=256/payload=%d", size), func(b *testing.B) {
			of := items(256)
			for i := range of {
				if size > 0 {
					of[i].Payload = slices.Concat([]byte(`"`), bytes.Repeat([]byte("x"), size/len(of)-2), []byte(`"`))
				}
			}
			var times []time.Duration
			cpu := spent(b)
			for b.Loop() {
				began := time.Now()
				if _, err := p.Scorer().Score(b.Context(), plugin.Query{Text: "q"}, of); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
			}
			report(b, times, cpu)
		})
	}
}
