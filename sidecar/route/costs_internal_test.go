package route

import (
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
