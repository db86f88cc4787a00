// Package budget limits repeated calls to a share of all calls.
package budget

import (
	"sync"
	"time"
)

const windowSeconds = 10

// Budget allows a share of the calls of the last ten seconds to be repeated, and always at
// least one. (Common retry budgets limit the retries in flight, which lets a quiet service
// repeat every call.) The zero value allows none. It is safe for concurrent use.
type Budget struct {
	// Share is the allowed share, from 0 to 1. It must not be changed while the budget is in
	// use.
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

// Spend reports whether another call may be repeated, and counts the repetition.
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
