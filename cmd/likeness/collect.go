package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// heapFloor is the size to which a small heap grows before it is collected. A search leaves
	// about 0.1 MB of garbage, so if a live heap of 5 MB were collected whenever it has doubled,
	// more than one search of a hundred would have a collection beside it, which takes 3 ms of
	// processor time: more than the search.
	heapFloor = 64 << 20
	// floorShare: the floor is at most 1/floorShare of the memory limit.
	floorShare = 8
	// leastPercent is the runtime's own GOGC: larger heaps are collected when they have doubled.
	leastPercent = 100
	// leastHeap is the heap at which the runtime collects with GOGC=100, however little is live.
	leastHeap = 4 << 20
)

// collectAtFloor lets the heap grow to heapFloor before it is collected, unless the environment
// sets GOGC. It adjusts GOGC after every collection to what is then live. restore ends that.
func collectAtFloor() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	var mu sync.Mutex // held while GOGC is set, so that none is set after restore
	before, ended := debug.SetGCPercent(leastPercent), false
	adjust := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			debug.SetGCPercent(percentFor(readHeap()))
		}
		return !ended
	}
	adjust()
	afterCollections(adjust)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		debug.SetGCPercent(before)
	}
}

// percentFor returns the GOGC at which a heap with live bytes after a collection is collected
// again at the floor, under a memory limit.
func percentFor(live, limit uint64) int {
	floor := min(heapFloor, limit/floorShare)
	return max(leastPercent, int(100*floor/max(live, leastHeap))-100)
}

// readHeap returns the bytes that the last collection left, and the memory limit, which is
// math.MaxInt64 if there is none.
func readHeap() (live, limit uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// afterCollections calls f after every collection until f returns false.
func afterCollections(f func() bool) {
	type collected struct{ _ *byte } // has a pointer, so it lies in memory of its own
	var again func(*collected)
	again = func(c *collected) {
		if f() {
			runtime.SetFinalizer(c, again)
		}
	}
	runtime.SetFinalizer(new(collected), again)
}
