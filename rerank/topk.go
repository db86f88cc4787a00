package rerank

import (
	"math"
	"slices"
)

// Scored is one row of an answer.
type Scored struct {
	ID    ID
	Score float32
	// Index is the caller's own number of the row.
	Index int
}

// Better reports whether a comes before b: by score descending, then by id. A
// score that is not a number comes last, and so does +Inf: it comes from a
// feature that was not finite, never from a similarity.
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

func notFinite(x float32) bool {
	return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)
}

// TopK keeps the best K rows of any number pushed, in O(n log K). The zero
// value keeps none; it is not safe for concurrent use.
type TopK struct {
	k    int
	heap []Scored // the worst row first
}

// NewTopK returns a TopK of at most k rows.
func NewTopK(k int) *TopK { return &TopK{k: k, heap: make([]Scored, 0, min(max(k, 0), 1024))} }

// Push offers a row.
func (t *TopK) Push(s Scored) {
	if len(t.heap) < t.k {
		t.heap = append(t.heap, s)
		t.up(len(t.heap) - 1)
		return
	}
	if t.k <= 0 || !Better(s, t.heap[0]) {
		return
	}
	t.heap[0] = s
	t.down(0)
}

// Reset empties the TopK, for k rows, and keeps its memory.
func (t *TopK) Reset(k int) { t.k, t.heap = k, t.heap[:0] }

// Threshold is the score that a row must reach to be kept: that of the K-th row,
// −Inf while there are fewer finite ones.
func (t *TopK) Threshold() float32 {
	if len(t.heap) < t.k || t.k <= 0 || notFinite(t.heap[0].Score) {
		return float32(math.Inf(-1))
	}
	return t.heap[0].Score
}

// Sorted empties the TopK and returns its rows, best first.
func (t *TopK) Sorted() []Scored {
	rows := t.heap
	t.heap = nil
	sortRows(rows)
	return rows
}

// AppendSorted empties the TopK and appends its rows to dst, best first; it keeps
// its memory.
func (t *TopK) AppendSorted(dst []Scored) []Scored {
	sortRows(t.heap)
	dst = append(dst, t.heap...)
	t.heap = t.heap[:0]
	return dst
}

func sortRows(rows []Scored) {
	slices.SortFunc(rows, func(a, b Scored) int {
		switch {
		case Better(a, b):
			return -1
		case Better(b, a):
			return 1
		default:
			return 0
		}
	})
}

func (t *TopK) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !Better(t.heap[parent], t.heap[i]) {
			return
		}
		t.heap[parent], t.heap[i] = t.heap[i], t.heap[parent]
		i = parent
	}
}

func (t *TopK) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return
		}
		if r := child + 1; r < len(t.heap) && Better(t.heap[child], t.heap[r]) {
			child = r
		}
		if !Better(t.heap[i], t.heap[child]) {
			return
		}
		t.heap[i], t.heap[child] = t.heap[child], t.heap[i]
		i = child
	}
}
