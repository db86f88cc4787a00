package rawgrpc

import (
	"context"
	"iter"
	"sync"
)

type strand struct {
	mu     sync.Mutex
	next   func() (int, bool)
	yield  func(int) bool
	f      func(*strand)
	left   bool
	server *Server
}

const (
	strandDone = iota
	strandWaits
	strandLeaves
)

type strandKey struct{}

func newStrand() *strand {
	s := &strand{}
	s.next, _ = iter.Pull(func(yield func(int) bool) {
		s.yield = yield
		for {
			s.f(s)
			if !yield(strandDone) {
				return
			}
		}
	})
	return s
}

var idleStrands = make(chan *strand, 64)

func (l *Server) runStrand(f func(*strand)) {
	var s *strand
	select {
	case s = <-idleStrands:
	default:
		s = newStrand()
	}
	s.f, s.left, s.server = f, false, l
	l.resume(s)
}

func (l *Server) resume(s *strand) {
	s.mu.Lock()
	y, _ := s.next()
	switch y {
	case strandDone:
		s.mu.Unlock()
		select {
		case idleStrands <- s:
		default:
		}
	case strandWaits:
		s.mu.Unlock()
	case strandLeaves:
		s.mu.Unlock()
		l.workers.run(func() { l.resume(s) })
	}
}

func Leave(ctx context.Context) {
	s, _ := ctx.Value(strandKey{}).(*strand)
	if s == nil || s.left {
		return
	}
	s.left = true
	s.yield(strandLeaves)
}
