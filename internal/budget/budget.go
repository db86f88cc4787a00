// Package budget bounds the calls that are made again, or twice, to a share of all.
package budget

import (
	"sync"
	"time"
)

const windowSeconds = 10

// Budget lets a share of the calls of the last ten seconds be made again, and one in
// any case. (A budget of retries in flight, as libraries have it, lets every call of
// a quiet service be repeated.) The zero value lets none. It is safe for concurrent use.
type Budget struct {
	// Share is that of the calls, 0 to 1. It is not changed once the budget is in use.
	Share float64

	mu      sync.Mutex
	seconds [windowSeconds]struct {
		second       int64
		calls, spent int
	}
}

// Called counts a call.
func (b *Budget) Called() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at(time.Now().Unix()).calls++
}

// Spend reports whether one more call may be made, and counts it.
func (b *Budget) Spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now().Unix()
	calls, spent := 0, 0
	for _, s := range b.seconds {
		if now-s.second < windowSeconds {
			calls += s.calls
			spent += s.spent
		}
	}
	if b.Share <= 0 || float64(spent+1) > max(1, b.Share*float64(calls)) {
		return false
	}
	b.at(now).spent++
	return true
}

func (b *Budget) at(second int64) *struct {
	second       int64
	calls, spent int
} {
	s := &b.seconds[second%windowSeconds]
	if s.second != second {
		s.second, s.calls, s.spent = second, 0, 0
	}
	return s
}
