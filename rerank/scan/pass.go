package scan

import (
	"runtime"
	"slices"
)

// join adds jobs to the pass, which begins if there is none, and works on it until
// they need no more chunks.
func (s *Scanner) join(jobs []*job) {
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
	workers := min(runtime.GOMAXPROCS(0), s.chunks)
	for s.running < workers-1 && len(s.jobs) > 0 {
		s.start()
	}
	if s.running < workers && len(s.jobs) > 0 {
		s.running++
		s.work(s.borrow(), jobs)
		s.running--
		if len(s.jobs) > 0 { // others joined, and count on this worker
			s.start()
		}
	}
}

// start makes one more goroutine work until no job needs a chunk.
func (s *Scanner) start() {
	s.running++
	w := s.borrow()
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

// work takes chunks until no job, or none of own where given, needs one. It is
// called, and returns, with the lock held.
func (s *Scanner) work(w *worker, own []*job) {
	for s.take(w) {
		s.mu.Unlock()
		for _, j := range w.jobs {
			w.scan(j, w.from, w.to)
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
		s.jobs = slices.DeleteFunc(s.jobs, (*job).handedOut)
		if len(w.jobs) > 0 {
			return true
		}
	}
}
