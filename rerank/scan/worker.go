package scan

import (
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// worker scores chunks; it keeps the memory that this needs.
type worker struct {
	s        *Scanner
	run      func() // the body of its goroutine
	from, to int    // the chunk
	jobs     []*job // that need it

	items, left    []int32
	scores, bounds []float32
	scratch        rerank.Items
	found          []rerank.Scored
}

func newWorker(s *Scanner) *worker {
	w := &worker{s: s, scores: make([]float32, s.chunk), bounds: make([]float32, s.chunk)}
	w.run = func() {
		s.mu.Lock()
		s.work(w, nil)
		s.running--
		s.mu.Unlock()
	}
	return w
}

// scan does the items [from, to) for a job.
func (w *worker) scan(j *job, from, to int) {
	n := to - from
	list := w.items[:0]
	if j.q.Within != nil {
		list = j.q.Within.appendRange(list, from, to)
		w.items, n = list, len(list)
	}
	screen, threshold := j.plan()
	var took time.Duration
	left := list
	if screen >= 0 {
		began := time.Now()
		if err := j.screener.Screen(screen, w.bounds[:n], w.all(j, list, from, to)); err != nil {
			j.fail(err)
			return
		}
		left = w.reach(j, list, from, w.bounds[:n], threshold)
		took = time.Since(began)
	}
	began := time.Now()
	scores, err := w.score(j, screen, left, from, to)
	if err != nil {
		j.fail(err)
		return
	}
	w.rank(j, screen, left, from, scores, threshold)
	j.count(screen, n, len(scores), took, time.Since(began))
}

// all are the items of the chunk that the job goes over.
func (w *worker) all(j *job, list []int32, from, to int) rerank.Items {
	if j.q.Within != nil {
		return w.s.table.Items(list, &w.scratch)
	}
	return w.s.table.Slice(from, to)
}

// reach lists the items whose bound is not below the threshold.
func (w *worker) reach(j *job, list []int32, from int, bounds []float32, threshold float32) []int32 {
	left := w.left[:0]
	for i, b := range bounds {
		if b < threshold {
			continue
		}
		item := int32(from + i)
		if j.q.Within != nil {
			item = list[i]
		}
		left = append(left, item)
	}
	w.left = left
	return left
}

// score computes φ of the whole chunk, or of what a screen left of it.
func (w *worker) score(j *job, screen int, left []int32, from, to int) ([]float32, error) {
	scores := w.scores[:to-from]
	if screen < 0 && j.q.Within == nil {
		return scores, j.q.Encoded.Score(scores, w.s.table.Slice(from, to))
	}
	scores = scores[:len(left)]
	if len(left) == 0 {
		return scores, nil
	}
	return scores, j.q.Encoded.Score(scores, w.s.table.Items(left, &w.scratch))
}

// rank puts what reaches the threshold among the best.
func (w *worker) rank(j *job, screen int, left []int32, from int, scores []float32, threshold float32) {
	found, notFinite := w.found[:0], 0
	for i, x := range scores {
		if x-x != 0 {
			notFinite++
		} else if x < threshold {
			continue
		}
		item := from + i
		if screen >= 0 || j.q.Within != nil {
			item = int(left[i])
		}
		found = append(found, rerank.Scored{ID: w.s.table.ID(item), Score: x, Index: item})
	}
	w.found = found
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.NotFinite += notFinite
	for _, row := range found {
		j.top.Push(row)
	}
}

// count keeps what a chunk of n items took.
func (j *job) count(screen, n, scored int, screening, scoring time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Items += n
	j.result.Scored += scored
	if screen >= 0 {
		j.costs.screen[screen].add(screening, n, scored)
	}
	if scored >= minChunk/2 {
		j.costs.score.add(scoring, scored, scored)
	}
}
