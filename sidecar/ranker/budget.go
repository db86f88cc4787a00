package ranker

import (
	"sync"
	"time"
)

const windowSeconds = 10

// budget lets a share of the calls of the last ten seconds be made again, and one in
// any case. (A budget of retries in flight, as libraries have it, lets every call of
// a quiet service be repeated.)
type budget struct {
	mu      sync.Mutex
	share   float64
	seconds [windowSeconds]struct {
		second         int64
		calls, retries int
	}
}

func (b *budget) called() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at(time.Now().Unix()).calls++
}

// spend reports whether one more call may be made again, and counts it.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now().Unix()
	calls, retries := 0, 0
	for _, s := range b.seconds {
		if now-s.second < windowSeconds {
			calls += s.calls
			retries += s.retries
		}
	}
	if b.share <= 0 || float64(retries+1) > max(1, b.share*float64(calls)) {
		return false
	}
	b.at(now).retries++
	return true
}

func (b *budget) at(second int64) *struct {
	second         int64
	calls, retries int
} {
	s := &b.seconds[second%windowSeconds]
	if s.second != second {
		s.second, s.calls, s.retries = second, 0, 0
	}
	return s
}
