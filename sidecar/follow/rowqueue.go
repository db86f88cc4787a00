package follow

import (
	"container/heap"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

// row is a row of the collection that has to be read.
type row struct {
	id    rerank.ID
	due   time.Time // when to read it
	place int       // its index in the heap; −1 while it is being read
	// writes holds the pending writes that touched the row.
	writes []*write
	// lastRead: a read that begins at this time or later needs no further read after it.
	lastRead time.Time
	// differs: a pass found that the row differs, and the row was not applied since.
	differs bool
	// checksum is the rowChecksum of the content that was applied last, if applied is set.
	checksum uint64
	applied  bool
}

// rowQueue holds rows in the order in which they are to be read.
type rowQueue struct {
	byID map[rerank.ID]*row
	due  dueHeap
}

func newRowQueue() *rowQueue { return &rowQueue{byID: map[rerank.ID]*row{}} }

// put queues a row to be read at the given time or sooner.
func (q *rowQueue) put(id rerank.ID, due time.Time) *row {
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

// take removes at most n due rows from the heap. The queue still knows them by id.
func (q *rowQueue) take(n int, now time.Time) []*row {
	var taken []*row
	for len(taken) < n && len(q.due) > 0 && !q.due[0].due.After(now) {
		taken = append(taken, heap.Pop(&q.due).(*row)) //nolint:forcetypeassert // the heap holds rows only
	}
	return taken
}

// forget removes a row that is not in the heap.
func (q *rowQueue) forget(r *row) { delete(q.byID, r.id) }

// next returns when the first row is due. ok is false if no row waits.
func (q *rowQueue) next() (due time.Time, ok bool) {
	if len(q.due) == 0 {
		return time.Time{}, false
	}
	return q.due[0].due, true
}

// len counts the rows that wait or are being read.
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
	r := x.(*row) //nolint:forcetypeassert // only put calls it
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
