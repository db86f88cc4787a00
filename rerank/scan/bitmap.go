package scan

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// Bitmap is a set of items of a table, by item number. It is safe for concurrent use as
// long as nobody modifies it.
type Bitmap struct {
	words []uint64
	count int
}

// NewBitmap returns an empty set of items numbered below n.
func NewBitmap(n int) *Bitmap { return &Bitmap{words: make([]uint64, (n+63)/64)} }

// aliveItems returns the set of a table's items that are alive, or nil if all are.
func aliveItems(t *table.Table) *Bitmap {
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

// Except returns the items of a table that are alive, without the given ones.
func Except(t *table.Table, items []int32) *Bitmap {
	b := aliveItems(t)
	if b == nil {
		b = NewBitmap(t.Len())
		for w := range b.words {
			b.words[w] = ^uint64(0)
		}
		if last := t.Len() % 64; last > 0 {
			b.words[len(b.words)-1] = 1<<last - 1
		}
		b.count = t.Len()
	}
	for _, i := range items {
		b.Remove(int(i))
	}
	return b
}

// Add puts items into the set. Each must be less than the n of NewBitmap.
func (b *Bitmap) Add(items ...int32) {
	for _, i := range items {
		word, bit := &b.words[i/64], uint64(1)<<(i%64)
		if *word&bit == 0 {
			*word |= bit
			b.count++
		}
	}
}

// ParseBitmap decodes the output of Bytes for items numbered below n. It returns
// rerank.ErrItems if the length is wrong or an item is not below n.
func ParseBitmap(b []byte, n int) (*Bitmap, error) {
	if len(b) != (n+7)/8 {
		return nil, fmt.Errorf("%w: a bitmap of %d bytes, want %d for %d items", rerank.ErrItems, len(b), (n+7)/8, n)
	}
	if n%8 != 0 && b[n/8]>>(n%8) != 0 {
		return nil, fmt.Errorf("%w: a bitmap has items behind the last, %d", rerank.ErrItems, n-1)
	}
	out := NewBitmap(n)
	var last [8]byte
	for w := range out.words {
		eight := b[w*8:]
		if len(eight) < 8 {
			copy(last[:], eight)
			eight = last[:]
		}
		out.words[w] = binary.LittleEndian.Uint64(eight)
		out.count += bits.OnesCount64(out.words[w])
	}
	return out, nil
}

// Bytes encodes the set with one bit per item: item i is bit i%8 of byte i/8. n is the n of
// NewBitmap.
func (b *Bitmap) Bytes(n int) []byte {
	out := make([]byte, 0, 8*len(b.words))
	for _, word := range b.words {
		out = binary.LittleEndian.AppendUint64(out, word)
	}
	return out[:(n+7)/8]
}

// Has reports whether an item, which must be less than the n of NewBitmap, is in the set.
func (b *Bitmap) Has(item int) bool { return b.words[item/64]>>(item%64)&1 != 0 }

// Remove takes an item out of the set.
func (b *Bitmap) Remove(item int) {
	if b.Has(item) {
		b.words[item/64] &^= 1 << (item % 64)
		b.count--
	}
}

// Grown returns a copy that has room for items numbered below n and also contains all items
// in [from, n). n must not be less than before.
func (b *Bitmap) Grown(from, n int) *Bitmap {
	out := NewBitmap(n)
	copy(out.words, b.words)
	out.count = b.count
	for i := from; i < n; i++ {
		out.Add(int32(i))
	}
	return out
}

// And returns the intersection of two sets that were made for the same n.
func (b *Bitmap) And(o *Bitmap) *Bitmap {
	out := &Bitmap{words: make([]uint64, len(b.words))}
	for w := range out.words {
		out.words[w] = b.words[w] & o.words[w]
		out.count += bits.OnesCount64(out.words[w])
	}
	return out
}

// Len returns the number of items in the set.
func (b *Bitmap) Len() int { return b.count }

// appendRange appends the items of the set that lie in [from, to), in ascending order.
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

// masked returns word w without the bits of items outside [from, to).
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
