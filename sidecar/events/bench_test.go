//go:build unix

package events_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
)

// BenchmarkShow keeps answers of a hundred items by a query of 768 numbers, as a search does.
func BenchmarkShow(b *testing.B) {
	r := open(b, b.TempDir(), events.RouteOptions{Share: 1})
	vector, items := make([]float32, 768), make([]events.Item, 100)
	for i := range vector {
		vector[i] = float32(rand.NormFloat64())
	}
	for i := range items {
		items[i] = events.Item{ID: rerank.UintID(uint64(i)), Score: rand.Float32()}
	}
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		answer := events.AnswerID{Call: r.NewCall()}
		r.Show(&events.Impression{Answer: answer, Vector: vector, Version: "0123456789abcdef", Status: rerank.StatusExact, First: 1, Items: items})
	}
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") // the writer's too
	b.ReportMetric(float64(r.Stats().Dropped)/float64(b.N), "dropped/op")
}

// processorTime returns the time that the process has kept a processor busy.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkFeed keeps feedback in batches of a hundred, each synced.
func BenchmarkFeed(b *testing.B) {
	r := open(b, b.TempDir(), events.RouteOptions{Share: 1})
	answer := events.AnswerID{Call: r.NewCall()}
	const batch = 100
	all, n := make([]events.Feedback, batch), 0
	before := processorTime(b)
	for b.Loop() {
		for i := range all {
			all[i] = click(answer, uint64(n))
			all[i].ID = fmt.Sprint("event ", n)
			n++
		}
		if got := feed(b, r, all...); got.Accepted != batch || got.Repeated != 0 {
			b.Fatalf("%+v", got)
		}
	}
	b.ReportMetric(float64(n)/(processorTime(b)-before).Seconds(), "events/cpu-s")
}
