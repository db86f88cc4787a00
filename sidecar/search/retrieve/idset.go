package retrieve

import (
	"hash/maphash"

	"github.com/likenessdb/likeness/rerank"
)

// IDSet numbers ids in the order in which they are added. It allocates once for the set, not once
// for each id. It is a hash table with open addressing and linear probing, at most half full.
type IDSet struct {
	IDs   []rerank.ID // in the order in which they were added
	marks []int32     // marks[n] is the mark with which id n was last added
	slots []int32     // an id's number + 1, or 0 for an empty slot
	seed  maphash.Seed
}

// NewIDSet makes a set that takes n ids without growing.
func NewIDSet(n int) *IDSet {
	s := &IDSet{IDs: make([]rerank.ID, 0, n), marks: make([]int32, 0, n), seed: maphash.MakeSeed()}
	s.resize(n)
	return s
}

func (s *IDSet) resize(n int) {
	slots := 16
	for slots < 2*n {
		slots *= 2
	}
	s.slots = make([]int32, slots)
	for i, id := range s.IDs {
		s.slots[s.find(id)] = int32(i + 1)
	}
}

// Add adds an id with a mark. It reports whether the id is new to the set, and whether the id
// already had this mark.
func (s *IDSet) Add(id rerank.ID, mark int32) (fresh, marked bool) {
	if 2*len(s.IDs) >= len(s.slots) {
		s.resize(2 * len(s.IDs))
	}
	at := s.find(id)
	if n := s.slots[at]; n != 0 {
		marked = s.marks[n-1] == mark
		s.marks[n-1] = mark
		return false, marked
	}
	s.IDs, s.marks = append(s.IDs, id), append(s.marks, mark)
	s.slots[at] = int32(len(s.IDs))
	return true, false
}

// Has reports whether an id is in the set.
func (s *IDSet) Has(id rerank.ID) bool { return s.slots[s.find(id)] != 0 }

// find returns the slot of the id, or the empty slot where it belongs.
func (s *IDSet) find(id rerank.ID) int {
	mask := len(s.slots) - 1
	at := int(s.hash(id)) & mask
	for s.slots[at] != 0 && s.IDs[s.slots[at]-1] != id {
		at = (at + 1) & mask
	}
	return at
}

// hash is the seeded hash of a string, or a number through SplitMix64.
func (s *IDSet) hash(id rerank.ID) uint64 {
	if text, ok := id.Text(); ok {
		return maphash.String(s.seed, text)
	}
	h, ok := id.Uint64()
	if !ok {
		n, _ := id.Int64()
		h = uint64(n)
	}
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
