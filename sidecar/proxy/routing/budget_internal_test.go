package routing

import (
	"testing"
	"time"
)

// TestKeepFollowsTheDatabase: the reserved time is the p99 of the database's recent times, at most
// half of the remaining time, and a quarter of it while few times are known.
func TestKeepFollowsTheDatabase(t *testing.T) {
	l := &latency{}
	want := func(left, kept time.Duration) {
		t.Helper()
		if got := l.keep(left); got != kept {
			t.Errorf("of %s %s is kept back, want %s", left, got, kept)
		}
	}
	want(time.Second, 250*time.Millisecond)
	for range enough {
		l.add(10 * time.Millisecond)
	}
	want(time.Second, 10*time.Millisecond)
	want(time.Second, 10*time.Millisecond)
	for range len(l.times) {
		l.add(50 * time.Millisecond)
	}
	want(time.Second, 50*time.Millisecond)
	want(20*time.Millisecond, 10*time.Millisecond)
	for i := range len(l.times) { // one in fifty is slow
		took := time.Millisecond
		if i%50 == 0 {
			took = 9 * time.Millisecond
		}
		l.add(took)
	}
	want(time.Second, 9*time.Millisecond)
}
