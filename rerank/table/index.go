package table

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
)

// hashIndex finds items by id. It is a hash table with open addressing and linear probing.
// It has a power of two of slots, at most half of them occupied. A slot holds item + 1, or
// 0 if it is free.
type hashIndex []uint32

// slotsFor returns the number of slots for n items.
func slotsFor(n int) int {
	slots := 8
	for slots < 2*n {
		slots *= 2
	}
	return slots
}

// buildIndex indexes the ids. Dense ids need no index. It returns ErrTable for an id that
// occurs twice.
func buildIndex(ids *idColumn) (hashIndex, error) {
	if ids.form == formDense || ids.len() == 0 {
		return nil, nil
	}
	x := make(hashIndex, slotsFor(ids.len()))
	for i := range ids.len() {
		id := ids.at(i)
		at, found := x.probe(ids, id)
		if found {
			return nil, fmt.Errorf("%w: items %d and %d have the same id %s", ErrTable, x[at]-1, i, id)
		}
		x[at] = uint32(i + 1)
	}
	return x, nil
}

func (x hashIndex) find(ids *idColumn, id rerank.ID) (item int, ok bool) {
	if len(x) == 0 {
		return 0, false
	}
	at, ok := x.probe(ids, id)
	if !ok {
		return 0, false
	}
	return int(x[at]) - 1, true
}

// probe returns the slot of the id, or the free slot where the id would go. It terminates
// even if the slots are corrupt.
func (x hashIndex) probe(ids *idColumn, id rerank.ID) (at int, found bool) {
	mask := len(x) - 1
	at = int(hash(id)) & mask
	for range x {
		slot := int(x[at])
		if slot == 0 {
			return at, false
		}
		if slot <= ids.len() && ids.matches(slot-1, id) {
			return at, true
		}
		at = (at + 1) & mask
	}
	return at, false
}

// check verifies that every slot holds a valid item number and that all items are present.
func (x hashIndex) check(items int) error {
	full := 0
	for _, slot := range x {
		if int64(slot) > int64(items) {
			return fmt.Errorf("the index names item %d of %d", int64(slot)-1, items)
		}
		if slot != 0 {
			full++
		}
	}
	if full != items {
		return fmt.Errorf("the index has %d of %d items", full, items)
	}
	return nil
}

// hash is part of the file format: FNV-1a for a string, the value itself for a number, then
// the mixing function of SplitMix64.
func hash(id rerank.ID) uint64 {
	h := uint64(14695981039346656037)
	if s, ok := id.Text(); ok {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	} else if n, ok := id.Int64(); ok {
		h = uint64(n)
	} else {
		h, _ = id.Uint64()
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
