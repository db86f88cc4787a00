package route

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// TestCosts wants the way that took less, the first stage while it was not
// measured, and now and then the other where it is not much slower.
func TestCosts(t *testing.T) {
	p := new(Costs)
	p.AddScan(time.Millisecond, 1000)
	if s, why := p.Choose(1000, rerank.Average); s != rerank.Average || !strings.Contains(why, "measure") {
		t.Errorf("before the first stage was measured: %s, %s", s, why)
	}
	p.AddFirstStage(2 * time.Millisecond)
	for _, c := range []struct {
		items int
		want  rerank.Strategy
		times int // of 2·remeasureEvery searches, those that go the other way
	}{{1000, rerank.Scan, 2}, {4000, rerank.Average, 2}, {100, rerank.Scan, 0}, {100_000, rerank.Average, 0}} {
		p.searches = 0
		other := 0
		for range 2 * remeasureEvery {
			s, why := p.Choose(c.items, rerank.Average)
			if !strings.HasPrefix(why, string(s)) {
				t.Fatalf("%s is said to be %q", s, why)
			}
			if s != c.want {
				other++
			}
		}
		if other != c.times {
			t.Errorf("%d items: %d searches did not go by %s, want %d", c.items, other, c.want, c.times)
		}
	}
}

// TestAScanIsMeasuredWarm: of two scans the second counts, which finds the table in memory. A scan that fails counts
// nothing.
func TestAScanIsMeasuredWarm(t *testing.T) {
	c, scans, failed := new(Costs), 0, errors.New("no")
	measure := func(failing int) error {
		scans = 0
		return c.addWarmScan(func() (time.Duration, int, error) {
			scans++
			if scans == failing {
				return time.Hour, 1, failed
			}
			return []time.Duration{time.Hour, 2 * time.Second}[scans-1], 4, nil
		})
	}
	for _, failing := range []int{1, 2} {
		if err := measure(failing); !errors.Is(err, failed) || scans != failing || c.scanMeasured() {
			t.Errorf("scan %d fails: %v after %d scans, measured %t", failing, err, scans, c.scanMeasured())
		}
	}
	if err := measure(0); err != nil || scans != 2 || c.perItem != 0.5 {
		t.Errorf("%d scans, %v s an item, %v; want 0.5", scans, c.perItem, err)
	}
}
