package gate

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// fullShare is the share of the runtime's memory limit that may be in use when a search
	// begins. The rest is for searches that have begun, and for the garbage collector,
	// which takes more of the processor the nearer the live heap comes to the limit.
	fullShare = 0.85
	// lookEvery is how long a reading of the runtime's memory is used.
	lookEvery = 5 * time.Millisecond
	// collectAfter is how old the last collection may be while searches are refused. Refused
	// searches allocate nothing that would start another one.
	collectAfter = 200 * time.Millisecond
)

// memory knows how much of the process's memory limit is in use. The zero value is
// ready, and safe for concurrent use.
type memory struct {
	looked atomic.Int64 // time of the last reading, Unix ns
	last   atomic.Pointer[RefusedError]

	mu     sync.Mutex // held by the goroutine that reads; guards the fields below
	cycles uint64     // collections at the last reading
	since  time.Time  // when that number of collections was first read
}

// refusal returns why no search should begin, or nil if there is enough memory.
func (m *memory) refusal() *RefusedError {
	now := time.Now().UnixNano()
	if now-m.looked.Load() >= int64(lookEvery) && m.mu.TryLock() {
		refusal, cycles := readMemory()
		m.last.Store(refusal)
		m.looked.Store(now)
		m.noteReading(refusal != nil, cycles, time.Now(), runtime.GC)
		m.mu.Unlock()
	}
	return m.last.Load()
}

// noteReading notes the number of collections at a reading. If searches are refused and the last collection is too
// old, it starts one by collect. The caller holds the lock.
func (m *memory) noteReading(refuses bool, cycles uint64, now time.Time, collect func()) {
	if cycles != m.cycles {
		m.cycles, m.since = cycles, now
	} else if refuses && now.Sub(m.since) > collectAfter {
		m.since = now
		go collect()
	}
}

// Names of runtime metrics.
const (
	limitBytes    = "/gc/gomemlimit:bytes"
	liveBytes     = "/gc/heap/live:bytes" // at the end of the last collection
	totalBytes    = "/memory/classes/total:bytes"
	releasedBytes = "/memory/classes/heap/released:bytes"
	freeBytes     = "/memory/classes/heap/free:bytes"
	objectBytes   = "/memory/classes/heap/objects:bytes"
	cycleCount    = "/gc/cycles/total:gc-cycles"
)

// readMemory reads the runtime's metrics. It returns the refusal that follows from them, or nil if
// there is enough memory, and the number of collections so far.
func readMemory() (r *RefusedError, cycles uint64) {
	samples := []metrics.Sample{
		{Name: limitBytes}, {Name: liveBytes}, {Name: totalBytes}, {Name: releasedBytes}, {Name: freeBytes}, {Name: objectBytes},
		{Name: cycleCount},
	}
	metrics.Read(samples)
	read := func(i int) uint64 { return samples[i].Value.Uint64() }
	u := usage{limit: read(0), live: read(1), mapped: read(2) - read(3), free: read(4), objects: read(5)}
	return u.refusal(), read(6)
}

// usage is how much memory the process uses, in bytes.
type usage struct {
	limit   uint64 // math.MaxInt64 if there is no limit
	live    uint64 // the objects that the last collection left
	mapped  uint64 // all memory that the runtime holds
	free    uint64 // the unused part of mapped
	objects uint64 // the part of mapped that live objects and garbage fill
}

// refusal returns why no search should begin, or nil if there is enough memory. Garbage does not
// count, because a heap grows up to the limit before it is collected: only the bytes that a
// collection would leave count. If the collector could not keep the heap below the limit, all bytes
// count.
func (u usage) refusal() *RefusedError {
	if u.limit == math.MaxInt64 {
		return nil
	}
	used := u.mapped
	if u.mapped <= u.limit {
		used -= min(used, u.free)
		used -= min(used, u.objects-min(u.objects, u.live))
	}
	if float64(used) <= fullShare*float64(u.limit) {
		return nil
	}
	return outOfMemory(used, u.limit)
}
