package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestPercentFor(t *testing.T) {
	const mb = 1 << 20
	for name, tc := range map[string]struct {
		live, limit uint64
		percent     int
	}{
		"nothing collected yet": {0, math.MaxInt64, 1500},
		"small":                 {8 * mb, math.MaxInt64, 700},
		"half of the floor":     {32 * mb, math.MaxInt64, 100},
		"large":                 {1000 * mb, math.MaxInt64, 100},
		"small limit":           {8 * mb, 256 * mb, 300},
		"smallest limit":        {8 * mb, 1, 100},
	} {
		if got := percentFor(tc.live, tc.limit); got != tc.percent {
			t.Errorf("%s: %d, want %d", name, got, tc.percent)
		}
	}
}

// TestCollectAtFloor lets the live heap grow beyond the floor: from then on it may only double.
func TestCollectAtFloor(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	restore := collectAtFloor()
	if got := gcPercent(); got < leastPercent { // what other tests left decides by how much it is more
		t.Errorf("GOGC=%d stayed", got)
	}
	live := make([]byte, heapFloor)
	for collections := 0; gcPercent() != leastPercent; collections++ {
		if collections == 1000 {
			t.Fatalf("GOGC=%d with %d bytes live", gcPercent(), len(live))
		}
		runtime.GC()
	}
	runtime.KeepAlive(live)
	restore()
	runtime.GC()
	if got := gcPercent(); got != 50 {
		t.Errorf("afterwards GOGC=%d, it was 50", got)
	}
	t.Setenv("GOGC", "75")
	defer collectAtFloor()()
	if got := gcPercent(); got != 50 {
		t.Errorf("GOGC=%d, though the environment sets it", got)
	}
}

func gcPercent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}
