package scan

import (
	"context"
	"slices"
	"time"
)

// join adds jobs to the pass. If there is none it begins one, and works on it until
// they need no more chunks.
func (s *Scanner) join(ctx context.Context, jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		j.todo = s.chunks
		if j.todo == 0 || j.q.Within != nil && j.q.Within.Len() == 0 {
			j.todo = 0
			j.done <- struct{}{}
			continue
		}
		s.jobs = append(s.jobs, j)
	}
	if s.running > 0 || len(s.jobs) == 0 { // who works does so for all
		return
	}
	s.running++
	s.mu.Unlock()
	err := s.turns.Take(ctx)
	s.mu.Lock()
	if err == nil {
		s.work(s.borrow(), jobs)
		s.turns.Give()
	}
	s.running--
	s.jobs = slices.DeleteFunc(s.jobs, (*job).over)
	if s.running == 0 && len(s.jobs) > 0 { // others joined, and count on this worker
		s.start(false)
	}
}

// maxWorkers is the most that work on the pass.
func (s *Scanner) maxWorkers() int { return min(s.turns.Most(), s.chunks) }

// hire makes a goroutine work on the pass for each processor that nothing else uses.
func (s *Scanner) hire() {
	for s.running < s.maxWorkers() && len(s.jobs) > 0 && s.turns.Try() {
		s.start(true)
	}
}

// start makes one more goroutine work until no job needs a chunk; it waits for its
// turn, if it has none.
func (s *Scanner) start(hasTurn bool) {
	s.running++
	w := s.borrow()
	w.hasTurn = hasTurn
	go w.run()
}

// borrow takes an idle worker, or makes one.
func (s *Scanner) borrow() *worker {
	n := len(s.idle)
	if n == 0 {
		return newWorker(s)
	}
	w := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return w
}

// slice is how long a worker keeps its turn while others wait for theirs: about what a
// search takes to score its candidates.
const slice = time.Millisecond

// work takes chunks until no job, or none of own where given, needs one. It is
// called, and returns, with the lock held and with a turn.
func (s *Scanner) work(w *worker, own []*job) {
	for began := time.Now(); s.take(w); {
		s.hire()
		s.mu.Unlock()
		for _, j := range w.jobs {
			w.scan(j, w.from, w.to)
		}
		if s.turns.Waiting() > 0 && time.Since(began) > slice {
			s.turns.Give()
			_ = s.turns.Take(context.Background()) // others' turns end
			began = time.Now()
		}
		s.mu.Lock()
		for _, j := range w.jobs {
			j.out--
			j.settle()
		}
		if own != nil && !slices.ContainsFunc(own, func(j *job) bool { return j.todo > 0 }) {
			break
		}
	}
	clear(w.jobs)
	s.idle = append(s.idle, w)
}

// take gives the worker the next chunk that a job needs. Jobs whose context ended,
// or that failed, need none.
func (s *Scanner) take(w *worker) bool {
	for {
		s.jobs = slices.DeleteFunc(s.jobs, (*job).over)
		if len(s.jobs) == 0 {
			return false
		}
		w.from, w.to = s.next*s.chunk, min((s.next+1)*s.chunk, s.table.Len())
		s.next = (s.next + 1) % s.chunks
		w.jobs = w.jobs[:0]
		for _, j := range s.jobs {
			j.todo--
			if j.q.Within == nil || !j.q.Within.empty(w.from, w.to) {
				j.out++
				w.jobs = append(w.jobs, j)
			}
		}
		// A job that has all its chunks leaves now: once settled, it is used again.
		s.jobs = slices.DeleteFunc(s.jobs, (*job).isHandedOut)
		if len(w.jobs) > 0 {
			return true
		}
	}
}
