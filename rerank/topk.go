package rerank

import (
	"cmp"
	"math"
	"slices"
)

// Scored is one row of an answer.
type Scored struct {
	ID    ID
	Score float32
	// Index is a number for the caller's use, such as the row's position.
	Index int
}

// Better reports whether a ranks before b: by score descending, then by id. A score that is
// NaN or infinite ranks last. That includes +Inf, which only comes from a feature that was
// not finite.
func Better(a, b Scored) bool {
	an, bn := notFinite(a.Score), notFinite(b.Score)
	switch {
	case an != bn:
		return bn
	case !an && a.Score != b.Score:
		return a.Score > b.Score
	default:
		return a.ID.Compare(b.ID) < 0
	}
}

// IsFinite reports whether x is neither NaN nor infinite.
func IsFinite(x float32) bool { return !notFinite(x) }

// notFinite reports whether x is NaN or infinite, that is, whether all bits of its exponent
// are set.
func notFinite(x float32) bool {
	const exponent = 0xff << 23
	return math.Float32bits(x)&exponent == exponent
}

// TopK keeps the best K of the rows that are pushed, in O(n log K). The zero value keeps no
// row. It is not safe for concurrent use.
type TopK struct {
	k    int
	rows []Scored
	heap []place // the worst row first
}

// place is an entry of the heap: the row's score as a sortable key, and the row's position
// in rows. The heap moves places because they are small and contain no pointer.
type place struct{ key, row uint32 }

// keyOf maps a score to a key that sorts as Better does. The key of a score that is not
// finite is 0.
func keyOf(score float32) uint32 {
	if notFinite(score) {
		return 0
	}
	b := math.Float32bits(score + 0) // turns −0 into +0
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// NewTopK returns a TopK of at most k rows.
func NewTopK(k int) *TopK {
	n := min(max(k, 0), 1024)
	return &TopK{k: k, rows: make([]Scored, 0, n), heap: make([]place, 0, n)}
}

// Push offers a row, which is kept if it is among the best K so far.
func (t *TopK) Push(s Scored) {
	p := place{keyOf(s.Score), uint32(len(t.rows))}
	if len(t.heap) < t.k {
		t.rows = append(t.rows, s)
		t.heap = append(t.heap, p)
		t.siftUp(len(t.heap)-1, p)
		return
	}
	if t.k <= 0 || p.key < t.heap[0].key {
		return
	}
	p.row = t.heap[0].row
	if worst := &t.rows[p.row]; p.key > t.heap[0].key || s.ID.Compare(worst.ID) < 0 {
		*worst = s
		t.siftDown(p)
	}
}

// Reset empties the TopK and sets its size to k. It keeps the memory.
func (t *TopK) Reset(k int) { t.k, t.rows, t.heap = k, t.rows[:0], t.heap[:0] }

// Threshold returns the score of the K-th best row so far, which a new row must reach to be
// kept. It is −Inf while fewer than K rows have a finite score.
func (t *TopK) Threshold() float32 {
	if len(t.heap) < t.k || t.k <= 0 || t.heap[0].key == 0 {
		return float32(math.Inf(-1))
	}
	return t.rows[t.heap[0].row].Score
}

// Sorted empties the TopK and returns its rows, best first.
func (t *TopK) Sorted() []Scored { return t.AppendSorted(make([]Scored, 0, len(t.rows))) }

// AppendSorted empties the TopK and appends its rows to dst, best first. It keeps the
// memory.
func (t *TopK) AppendSorted(dst []Scored) []Scored {
	slices.SortFunc(t.heap, func(a, b place) int {
		if a.key != b.key {
			return cmp.Compare(b.key, a.key)
		}
		return t.rows[a.row].ID.Compare(t.rows[b.row].ID)
	})
	for _, p := range t.heap {
		dst = append(dst, t.rows[p.row])
	}
	t.Reset(t.k)
	return dst
}

// worse reports whether a ranks after b.
func (t *TopK) worse(a, b place) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	return t.rows[a.row].ID.Compare(t.rows[b.row].ID) > 0
}

// siftUp moves p from position i towards the root of the heap until its parent is worse.
func (t *TopK) siftUp(i int, p place) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.worse(p, t.heap[parent]) {
			break
		}
		t.heap[i] = t.heap[parent]
		i = parent
	}
	t.heap[i] = p
}

// siftDown puts p at the root of the heap and moves it down until no child is worse.
func (t *TopK) siftDown(p place) {
	h, i := t.heap, 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if r := child + 1; r < len(h) && t.worse(h[r], h[child]) {
			child = r
		}
		if !t.worse(h[child], p) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = p
}
