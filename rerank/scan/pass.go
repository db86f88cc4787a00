package scan

import (
	"context"
	"slices"
	"time"
)

// join adds jobs to the current pass. If no pass is running, it starts one and works on it
// until these jobs need no more chunks.
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
	if s.running > 0 || len(s.jobs) == 0 { // a running worker serves all jobs
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
	if s.running == 0 && len(s.jobs) > 0 { // others have joined and rely on this worker
		s.start(false)
	}
}

// maxWorkers returns how many workers may run at the same time.
func (s *Scanner) maxWorkers() int { return min(s.turns.Most(), s.chunks) }

// hire starts a worker goroutine for each idle processor.
func (s *Scanner) hire() {
	for s.running < s.maxWorkers() && len(s.jobs) > 0 && s.turns.Try() {
		s.start(true)
	}
}

// start starts one worker goroutine, which runs until no job needs a chunk. hasTurn says
// whether it already owns a turn on a processor; otherwise it waits for one.
func (s *Scanner) start(hasTurn bool) {
	s.running++
	w := s.borrow()
	w.hasTurn = hasTurn
	go w.run()
}

// borrow returns an idle worker, or a new one.
func (s *Scanner) borrow() *worker {
	n := len(s.idle)
	if n == 0 {
		return newWorker(s)
	}
	w := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return w
}

// slice is how long a worker keeps its turn while others wait: about the time that a search
// needs to score its candidates.
const slice = time.Millisecond

// yieldTurn lets others have the worker's turn, and takes a new one, if somebody waits and
// the worker has had its turn for longer than a slice.
func (s *Scanner) yieldTurn(w *worker) {
	if s.turns.Waiting() == 0 || time.Since(w.turnBegan) <= slice {
		return
	}
	s.turns.Give()
	_ = s.turns.Take(context.Background()) // never fails: every holder gives its turn back
	w.turnBegan = time.Now()
}

// work processes chunks until no job needs one, or, if own is not nil, until no job of own
// does. The caller holds the lock and a turn, on entry and on return.
func (s *Scanner) work(w *worker, own []*job) {
	for w.turnBegan = time.Now(); s.take(w); {
		s.hire()
		s.mu.Unlock()
		w.scanChunk()
		s.yieldTurn(w)
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

// take assigns the worker the next chunk that some job needs. It first removes jobs that
// failed or whose context ended.
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
		// Remove jobs whose chunks are all handed out now: once settled, a job is reused.
		s.jobs = slices.DeleteFunc(s.jobs, (*job).isHandedOut)
		if len(w.jobs) > 0 {
			return true
		}
	}
}
