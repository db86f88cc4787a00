package scan

import (
	"math/bits"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// Bitmap is a set of items of a table, by number. It is safe for concurrent use
// while nobody adds.
type Bitmap struct {
	words []uint64
	count int
}

// NewBitmap returns an empty set of items numbered below n.
func NewBitmap(n int) *Bitmap { return &Bitmap{words: make([]uint64, (n+63)/64)} }

// aliveOf is the set of a table's items that are alive; nil: all of them.
func aliveOf(t *table.Table) *Bitmap {
	if !t.Dead() {
		return nil
	}
	b := NewBitmap(t.Len())
	for tile := 0; tile*rerank.Lanes < t.Len(); tile++ {
		mask := t.AliveMask(tile)
		b.words[tile*rerank.Lanes/64] |= uint64(mask) << (tile * rerank.Lanes % 64)
		b.count += bits.OnesCount16(mask)
	}
	return b
}

// Add puts items into the set; each is less than n of NewBitmap.
func (b *Bitmap) Add(items ...int32) {
	for _, i := range items {
		word, bit := &b.words[i/64], uint64(1)<<(i%64)
		if *word&bit == 0 {
			*word |= bit
			b.count++
		}
	}
}

// Len is the number of items of the set.
func (b *Bitmap) Len() int { return b.count }

// appendRange appends the items of the set in [from, to), ascending.
func (b *Bitmap) appendRange(dst []int32, from, to int) []int32 {
	for w := from / 64; w*64 < to; w++ {
		for word := b.masked(w, from, to); word != 0; word &= word - 1 {
			dst = append(dst, int32(w*64+bits.TrailingZeros64(word)))
		}
	}
	return dst
}

// empty reports whether the set has no item in [from, to).
func (b *Bitmap) empty(from, to int) bool {
	for w := from / 64; w*64 < to; w++ {
		if b.masked(w, from, to) != 0 {
			return false
		}
	}
	return true
}

// masked is word w without the bits outside [from, to).
func (b *Bitmap) masked(w, from, to int) uint64 {
	word := b.words[w]
	if low := from - w*64; low > 0 {
		word = word >> low << low
	}
	if high := to - w*64; high < 64 {
		word &= 1<<high - 1
	}
	return word
}
