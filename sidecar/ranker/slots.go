package ranker

import (
	"context"
	"slices"
	"sync"
)

// slots bounds the calls in flight. Who waits is served in the order of asking, and a
// job waits once at a time: jobs take turns, whatever their number of batches.
type slots struct {
	mu      sync.Mutex
	limit   int
	held    int
	waiting []chan bool // told whether the slot is theirs
}

// resize changes the limit; calls beyond a smaller one end in their own time.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.serve()
}

// acquire waits for a slot, and returns whether it has one: not if the wait was
// disturbed. It returns the context's error.
func (s *slots) acquire(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	if s.held < s.limit && len(s.waiting) == 0 {
		s.held++
		s.mu.Unlock()
		return true, nil
	}
	turn := make(chan bool, 1)
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	select {
	case acquired := <-turn:
		return acquired, nil
	case <-ctx.Done():
		s.leave(turn)
		return false, ctx.Err()
	}
}

// disturb ends every wait: there may be nothing to wait for.
func (s *slots) disturb() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.waiting {
		turn <- false
	}
	s.waiting = nil
}

// leave gives up waiting, and passes on a slot that came meanwhile.
func (s *slots) leave(turn chan bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, turn); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	if <-turn {
		s.held--
		s.serve()
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.serve()
}

func (s *slots) serve() {
	for s.held < s.limit && len(s.waiting) > 0 {
		s.waiting[0] <- true
		s.waiting = s.waiting[1:]
		s.held++
	}
}
