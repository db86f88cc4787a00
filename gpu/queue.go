package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/plugin/device"
)

// queue holds the searches whose next step waits for a launch. Searches that can share a
// launch form a line. Lines take turns; within a line, searches are ordered by deadline.
type queue struct {
	kick chan struct{} // receives a value when something was added

	mu     sync.Mutex
	lines  []*line // in the order of their turns
	count  int
	most   int           // limit of waiting searches
	batch  int           // limit of searches in a launch
	gather time.Duration // limit of window
	closed error

	window   time.Duration // how long the first search of a batch waits for others
	each     time.Duration // estimated time that a search adds to a launch
	inFlight int
}

// line holds searches that can be launched together.
type line struct {
	key     group
	waiting []*search
	since   time.Time // when the first of them was added
}

// group identifies what can be launched together.
type group struct {
	table *table
	way   Way
	some  bool // the job names its rows
}

func newQueue() *queue { return &queue{kick: make(chan struct{}, 1)} }

func (q *queue) limits(most, batch int, gather time.Duration) {
	q.most, q.batch, q.gather = most, max(batch, 1), gather
}

// add enqueues a search. It returns device.ErrBusy if too many are waiting or if the
// search's deadline is likely to pass before its turn, and the owner's error after a
// failure.
func (q *queue) add(s *search) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch left := time.Until(s.deadline); {
	case q.closed != nil:
		return q.closed
	case q.count >= q.most:
		return fmt.Errorf("%w: %d queries wait already", device.ErrBusy, q.count)
	case !s.deadline.IsZero() && left < q.estimateWait(s):
		return fmt.Errorf("%w: %s are left, and the queries before it take about %s", device.ErrBusy, left, q.estimateWait(s))
	}
	q.put(s)
	return nil
}

// estimateWait estimates how long a new search waits for searches with an earlier deadline.
func (q *queue) estimateWait(s *search) time.Duration {
	before := q.inFlight
	for _, l := range q.lines {
		for _, other := range l.waiting {
			if compareDeadlines(other, s) <= 0 {
				before++
			}
		}
	}
	return time.Duration(before) * q.each
}

// requeue enqueues a search that has a further step. It is never refused.
func (q *queue) requeue(s *search) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		s.finish(device.Best{}, q.closed)
		return
	}
	q.put(s)
}

func (q *queue) put(s *search) {
	key := s.group()
	i := slices.IndexFunc(q.lines, func(l *line) bool { return l.key == key })
	if i < 0 {
		q.lines, i = append(q.lines, &line{key: key, since: time.Now()}), len(q.lines)
	}
	l := q.lines[i]
	at, _ := slices.BinarySearchFunc(l.waiting, s, func(a, b *search) int { return cmp.Or(compareDeadlines(a, b), -1) })
	l.waiting = slices.Insert(l.waiting, at, s)
	q.count++
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// compareDeadlines orders by deadline. A search without one comes last.
func compareDeadlines(a, b *search) int {
	if a.deadline.IsZero() != b.deadline.IsZero() {
		if a.deadline.IsZero() {
			return 1
		}
		return -1
	}
	return a.deadline.Compare(b.deadline)
}

// next returns the searches of the next launch. If no search is ready, it returns how long to
// wait for more searches to join, or 0 to wait for an event.
func (q *queue) next(now time.Time) (batch []*search, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropCancelled()
	for i, l := range q.lines {
		if left := q.window - now.Sub(l.since); left > 0 && len(l.waiting) < q.batch && !l.waiting[0].begun {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		n := min(q.batch, len(l.waiting))
		batch = slices.Clone(l.waiting[:n])
		l.waiting, l.since = slices.Delete(l.waiting, 0, n), now
		q.lines = slices.Delete(q.lines, i, i+1)
		if len(l.waiting) > 0 {
			q.lines = append(q.lines, l) // its next turn comes after the others'
		}
		q.count -= n
		q.inFlight = n
		return batch, 0
	}
	return nil, wait
}

// dropCancelled ends the searches whose context has ended.
func (q *queue) dropCancelled() {
	for _, l := range q.lines {
		l.waiting = slices.DeleteFunc(l.waiting, func(s *search) bool {
			err := s.ctx.Err()
			if err != nil {
				s.finish(device.Best{}, err)
				q.count--
			}
			return err != nil
		})
	}
	q.lines = slices.DeleteFunc(q.lines, func(l *line) bool { return len(l.waiting) == 0 })
}

// recordLaunch adapts to the duration of a launch of n searches. If several searches came
// together, the window doubles, up to half of the launch's duration. A search that came
// alone halves the window, down to zero.
func (q *queue) recordLaunch(d time.Duration, n int) {
	const least = 10 * time.Microsecond
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight = 0
	q.each += (d/time.Duration(n) - q.each) / 8
	switch {
	case n > 1:
		q.window = min(max(2*q.window, least), q.gather, d/2)
	case q.window > least:
		q.window /= 2
	default:
		q.window = 0
	}
}

// close ends all waiting searches with an error.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = err
	for _, l := range q.lines {
		for _, s := range l.waiting {
			s.finish(device.Best{}, err)
		}
	}
	q.lines, q.count = nil, 0
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}
