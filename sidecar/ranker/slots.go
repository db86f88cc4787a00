package ranker

import (
	"context"
	"slices"
	"sync"
)

// slots limits the calls in progress. Waiting jobs are served in the order of their
// requests. A job waits for only one slot at a time, so jobs take turns whatever their
// number of batches.
type slots struct {
	mu      sync.Mutex
	limit   int
	held    int
	waiting []chan bool // receives whether the slot was assigned
}

// resize changes the limit. Calls beyond a lower limit are not interrupted.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.serve()
}

// acquire waits for a slot and reports whether it got one. It gets none if disturb ended
// the wait. It returns the context's error.
func (s *slots) acquire(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	if s.held < s.limit { // then nobody waits
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

// disturb ends all waits without a slot, so that the callers can check whether they still
// need one.
func (s *slots) disturb() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.waiting {
		turn <- false
	}
	s.waiting = nil
}

// leave stops waiting. If a slot was assigned meanwhile, it passes the slot on.
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
