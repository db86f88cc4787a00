package admission

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// fullShare of the runtime's memory limit may be in use when a search begins. The
	// rest is for those that have begun, and for the collector, which takes ever more
	// of the processor the nearer what lives comes to the limit.
	fullShare = 0.85
	// lookEvery is how long what was read of the runtime is believed.
	lookEvery = 5 * time.Millisecond
	// collectAfter is how old the last collection may be while searches are refused by
	// what it left: they allocate nothing that would begin another one.
	collectAfter = 200 * time.Millisecond
)

// memory knows how much of the process's memory limit is in use. The zero value is
// ready, and safe for concurrent use.
type memory struct {
	looked atomic.Int64 // Unix ns
	last   atomic.Pointer[RefusedError]
	mu     sync.Mutex // one looks; guards what follows
	cycles uint64     // collections so far
	since  time.Time  // when there were so many first
}

// refusal is why nothing should be begun; nil: there is room.
func (m *memory) refusal() *RefusedError {
	now := time.Now().UnixNano()
	if now-m.looked.Load() >= int64(lookEvery) && m.mu.TryLock() {
		refusal, cycles := look()
		m.last.Store(refusal)
		m.looked.Store(now)
		if cycles != m.cycles {
			m.cycles, m.since = cycles, time.Now()
		} else if refusal != nil && time.Since(m.since) > collectAfter {
			m.since = time.Now()
			go runtime.GC()
		}
		m.mu.Unlock()
	}
	return m.last.Load()
}

// What is read of the runtime.
const (
	limitBytes    = "/gc/gomemlimit:bytes"
	liveBytes     = "/gc/heap/live:bytes" // at the end of the last collection
	totalBytes    = "/memory/classes/total:bytes"
	releasedBytes = "/memory/classes/heap/released:bytes"
	freeBytes     = "/memory/classes/heap/free:bytes"
	objectBytes   = "/memory/classes/heap/objects:bytes"
	cycleCount    = "/gc/cycles/total:gc-cycles"
)

// look reads the runtime, and how many collections there were. Garbage does not count: a heap grows up to the limit before
// it is collected, and is well. What does is all that a collection would have left,
// or everything, once the collector could not keep it below the limit.
func look() (r *RefusedError, cycles uint64) {
	samples := []metrics.Sample{
		{Name: limitBytes}, {Name: liveBytes}, {Name: totalBytes}, {Name: releasedBytes}, {Name: freeBytes}, {Name: objectBytes},
		{Name: cycleCount},
	}
	metrics.Read(samples)
	read := func(i int) uint64 { return samples[i].Value.Uint64() }
	limit, live, mapped := read(0), read(1), read(2)-read(3)
	if limit == math.MaxInt64 {
		return nil, read(6)
	}
	used := mapped
	if mapped <= limit {
		used -= min(used, read(4))
		used -= min(used, read(5)-min(read(5), live))
	}
	if float64(used) <= fullShare*float64(limit) {
		return nil, read(6)
	}
	return outOfMemory(used, limit), read(6)
}
