package scan

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
)

// worker scores chunks. It owns the scratch memory for that.
type worker struct {
	s         *Scanner
	run       func()    // the body of its goroutine
	hasTurn   bool      // whether it owns a turn when it starts
	from, to  int       // the current chunk
	jobs      []*job    // the jobs that need the chunk
	turnBegan time.Time // when the worker got its turn

	items, left    []int32
	scores, bounds []float32
	shared         shared
	scratch        rerank.Items
	part           rerank.Packed
	found          []rerank.Scored
}

func newWorker(s *Scanner) *worker {
	w := &worker{s: s, scores: make([]float32, s.chunk), bounds: make([]float32, s.chunk)}
	w.run = func() {
		if !w.hasTurn {
			_ = s.turns.Take(context.Background()) // never fails: every holder gives its turn back
		}
		s.mu.Lock()
		s.work(w, nil)
		s.running--
		s.mu.Unlock()
		s.turns.Give()
	}
	return w
}

// scan processes the items [from, to) for a job.
func (w *worker) scan(j *job, from, to int) {
	for from < to {
		screen, threshold, n := j.plan(to - from)
		if !w.attempt(j, func() error { return w.piece(j, from, from+n, screen, threshold) }) {
			return
		}
		from += n
	}
}

// attempt calls f for a job and reports whether it succeeded. An error or a panic fails the
// job, and no other.
func (w *worker) attempt(j *job, f func() error) bool {
	err := caught.Call(f)
	if err != nil {
		j.fail(err)
	}
	return err == nil
}

// piece processes the items [from, to), which begin at a tile: screens them if screen is
// not −1, scores the rest, and records the times.
func (w *worker) piece(j *job, from, to, screen int, threshold float32) error {
	list, whole := w.list(j, from, to)
	if len(list) == 0 {
		return nil
	}
	began := time.Now()
	if screen < 0 {
		scores := w.scores[:len(list)]
		if err := j.q.Encoded.Score(scores, w.exact(list, whole, from, to)); err != nil {
			return err
		}
		w.rank(j, list, scores, threshold)
		j.count(-1, len(list), len(list), len(list), 0, time.Since(began))
		return nil
	}
	bounds := w.bounds[:len(list)]
	if err := j.screener.Screen(screen, bounds, w.rows(list, whole, from, to), w.s.loss, threshold); err != nil {
		return err
	}
	return w.scoreRest(j, list, bounds, screen, threshold, time.Since(began))
}

// scoreRest scores the items whose bounds reach the threshold, in full precision too where
// that pays. screening is the time that the bounds took.
func (w *worker) scoreRest(j *job, list []int32, bounds []float32, screen int, threshold float32, screening time.Duration) error {
	left := w.reach(list, bounds, threshold)
	reaching := len(left)
	left, err := w.refine(j, left, screen, threshold)
	if err != nil {
		return err
	}
	began := time.Now()
	scores := w.scores[:len(left)]
	if len(left) > 0 {
		if err := j.q.Encoded.Score(scores, w.exact(left, false, 0, 0)); err != nil {
			return err
		}
	}
	w.rank(j, left, scores, threshold)
	j.count(screen, len(list), reaching, len(left), screening, time.Since(began))
	return nil
}

// refine returns the items of left, which the given screen of rounded rows left, that a screen of their
// full-precision rows leaves. It returns all where they are too few to be worth it, or where
// scoring them costs less.
func (w *worker) refine(j *job, left []int32, screen int, threshold float32) ([]int32, error) {
	if len(left) < minChunk/2 || !j.refines(screen) {
		return left, nil
	}
	began, n, bounds := time.Now(), len(left), w.bounds[:len(left)]
	if err := j.screener.Screen(j.refining, bounds, w.exact(left, false, 0, 0), w.s.lossless, threshold); err != nil {
		return nil, err
	}
	left = w.reach(left, bounds, threshold)
	j.refined(screen, n, len(left), time.Since(began))
	return left, nil
}

// list returns the items of [from, to) that the job visits, and whether those are all of
// them.
func (w *worker) list(j *job, from, to int) (list []int32, whole bool) {
	list = w.items[:0]
	if j.q.Within != nil {
		list = j.q.Within.appendRange(list, from, to)
	} else {
		for i := from; i < to; i++ {
			list = append(list, int32(i))
		}
	}
	w.items = list
	return list, len(list) == to-from
}

// rows returns the items with their feature rows as the table stores them.
func (w *worker) rows(list []int32, whole bool, from, to int) rerank.Items {
	t := w.s.table
	switch {
	case !whole || t.Grouped():
		return t.Items(list, &w.scratch)
	case t.Features().Rows > 0:
		return t.Slice(from, to)
	}
	w.part = *t.Packed() // chunks begin at a tile
	w.part.Words, w.part.Rows = w.part.Words[from*w.part.RowWords():], to-from
	return rerank.Items{Packed: &w.part}
}

// exact returns the items with full-precision rows, if the table has them.
func (w *worker) exact(list []int32, whole bool, from, to int) rerank.Items {
	t := w.s.table
	full, ok := t.Full()
	switch {
	case !ok:
		return w.rows(list, whole, from, to)
	case whole && !t.Grouped():
		return rerank.Items{Features: full.Slice(from, to)}
	}
	items, _ := t.FullItems(list, &w.scratch)
	return items
}

// reach lists the items whose bound is at or above the threshold. list may be its last result.
func (w *worker) reach(list []int32, bounds []float32, threshold float32) []int32 {
	left := w.left[:0]
	for i, b := range bounds {
		if !(b < threshold) {
			left = append(left, list[i])
		}
	}
	w.left = left
	return left
}

// rank pushes the items that reach the threshold to the job's top K.
func (w *worker) rank(j *job, list []int32, scores []float32, threshold float32) {
	found, notFinite := w.found[:0], 0
	for i, x := range scores {
		if x-x != 0 {
			notFinite++
		} else if x < threshold {
			continue
		}
		item := int(list[i])
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

// refines reports whether items that a screen left are to be screened in full precision.
func (j *job) refines(screen int) bool {
	if j.refining == 0 {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.costs.refines(screen)
}

// refined adds n items, of which a screen in full precision left some, to the job's costs.
func (j *job) refined(screen, n, left int, took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.costs.refine[screen].screened(took, n, left)
}

// count adds a piece of n items, of which a screen left some, to the job's counters and costs.
func (j *job) count(screen, n, left, scored int, screening, scoring time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result.Items += n
	j.result.Scored += scored
	if screen >= 0 {
		j.costs.screen[screen].screened(screening, n, left)
	}
	j.costs.scored(screen, scoring, scored)
}
