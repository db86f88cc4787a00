package follow

import (
	"container/heap"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// write is one that was seen and that not everything derived shows.
type write struct {
	began time.Time
	// shown is the time from which a read of the database shows it.
	shown time.Time
	// seq is its number in the journal; 0: the journal does not have it.
	seq  uint64
	left int // rows that were not looked at since shown
}

// row is a row of the collection that has to be looked at.
type row struct {
	id    rerank.ID
	due   time.Time
	place int // in the queue; −1: it is being looked at
	// writes are those that touched it and wait for a look.
	writes []*write
	// until: a look that begins then or later is the last.
	until time.Time
	// found: a reconcile found that it differs, and nobody looked since.
	found bool
	// sum is of what was last applied, where something was.
	sum     uint64
	applied bool
}

// rowQueue are rows by the time at which they are to be looked at.
type rowQueue struct {
	byID map[rerank.ID]*row
	due  dueHeap
}

func newRowQueue() *rowQueue { return &rowQueue{byID: map[rerank.ID]*row{}} }

// at puts a row in the queue: its look is at that time or sooner.
func (q *rowQueue) at(id rerank.ID, due time.Time) *row {
	r := q.byID[id]
	if r == nil {
		r = &row{id: id, place: -1, due: due}
		q.byID[id] = r
	}
	switch {
	case r.place < 0:
		r.due = due
		heap.Push(&q.due, r)
	case due.Before(r.due):
		r.due = due
		heap.Fix(&q.due, r.place)
	}
	return r
}

// take removes at most n rows that are due from the order; they stay known by id.
func (q *rowQueue) take(n int, now time.Time) []*row {
	var taken []*row
	for len(taken) < n && len(q.due) > 0 && !q.due[0].due.After(now) {
		taken = append(taken, heap.Pop(&q.due).(*row)) //nolint:forcetypeassert // it has rows only
	}
	return taken
}

// forget drops a row that is not in the order.
func (q *rowQueue) forget(r *row) { delete(q.byID, r.id) }

// next is when the first row is due.
func (q *rowQueue) next() (due time.Time, ok bool) {
	if len(q.due) == 0 {
		return time.Time{}, false
	}
	return q.due[0].due, true
}

func (q *rowQueue) len() int { return len(q.byID) }

// dueHeap implements heap.Interface.
type dueHeap []*row

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	r := x.(*row) //nolint:forcetypeassert // only at calls it
	r.place = len(*h)
	*h = append(*h, r)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h, r.place = old[:len(old)-1], -1
	return r
}
