package table

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// arena is the memory for the rows of a live table: the mapped rows of the file, followed
// by free space for more rows. A row is never overwritten once it is written.
type arena struct {
	base       base
	features   *mmap.Extended
	full       *mmap.Extended // empty unless Meta.Full
	capacity   int            // capacity in rows, including the rows of the file
	references atomic.Int64   // reference count: the snapshots and the writer
}

// newArena maps the rows of a file, with free space for `room` more.
func newArena(b base, room int) (*arena, error) {
	a := &arena{base: b, capacity: b.header.Meta.Rows + room, full: &mmap.Extended{}}
	s, m := b.header.Sections, b.header.Meta
	var err error
	if a.features, err = mmap.Extend(b.file, s.Features.Offset, int(s.Features.Length), room*m.packing().RowWords()*4); err != nil {
		return nil, err
	}
	if m.Full {
		if a.full, err = mmap.Extend(b.file, s.Full.Offset, int(s.Full.Length), room*m.Features*4); err != nil {
			return nil, errors.Join(err, a.features.Close())
		}
	}
	a.references.Store(1)
	b.arenas.Add(1)
	return a, nil
}

// release drops a reference and frees the memory with the last one. Nobody could act on an
// error of unmapping, so it is ignored.
func (a *arena) release() {
	if a.references.Add(-1) > 0 {
		return
	}
	_, _ = a.features.Close(), a.full.Close()
	if a.base.arenas.Add(-1) == 0 {
		_ = a.base.close()
	}
}

// live is the part of a Table that makes it a snapshot of a live table. Only holds, and
// died entries of later writes, change after it is created.
type live struct {
	arena    *arena
	sequence uint64
	base     int         // number of items in the file
	items    int         // number of items, including appended ones
	dead     int         // number of items that are no longer alive
	ids      []rerank.ID // ids of the appended items
	// slots indexes the appended items like a hashIndex. An id can occur several times, but
	// at most one of its items is alive.
	slots []atomic.Uint32
	// died[i] is the sequence number of the write that deleted or replaced item i, or 0.
	died  []atomic.Uint64
	holds atomic.Int64
}

// hold adds a reference to the snapshot. It reports false if the last reference is gone.
func (v *live) hold() bool {
	for {
		n := v.holds.Load()
		if n == 0 {
			return false
		}
		if v.holds.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives back a snapshot of a Live. The snapshot, and every Items, Matrix and Packed
// obtained from it, must not be used afterwards. Release does nothing to other tables.
func (t *Table) Release() {
	if t.live != nil && t.live.holds.Add(-1) == 0 {
		t.live.arena.release()
	}
}

// Sequence returns how many writes to the live table the snapshot shows.
func (t *Table) Sequence() uint64 {
	if t.live == nil {
		return 0
	}
	return t.live.sequence
}

// SameNumbers reports whether items that are in both t and o have the same number and the
// same rows in both. That is the case if both are one table, or snapshots of one Live
// without a compaction between them. Either may have been released.
func (t *Table) SameNumbers(o *Table) bool {
	if t == o || o == nil {
		return t == o
	}
	return t.live != nil && o.live != nil && t.live.arena.base.table == o.live.arena.base.table
}

// alive reports whether no write that the snapshot shows has deleted or replaced the item.
func (v *live) alive(item int) bool {
	died := v.died[item].Load()
	return died == 0 || died > v.sequence
}

// find looks up an id among the appended items.
func (v *live) find(id rerank.ID) (item int, ok bool) {
	mask := len(v.slots) - 1
	for at := int(hash(id)) & mask; mask >= 0; at = (at + 1) & mask {
		slot := int(v.slots[at].Load())
		if slot == 0 {
			break
		}
		if slot <= v.items-v.base && v.ids[slot-1] == id && v.alive(v.base+slot-1) {
			return v.base + slot - 1, true
		}
	}
	return 0, false
}

// writing is the state that writes modify: the content of the newest snapshot, and free
// space.
type writing struct {
	live   // holds is unused
	meta   Meta
	rows   int
	table  *Table // the table in the file
	b      base
	pack   *packer
	loss   rerank.Loss // loss of the file's and the appended rows, as in the last snapshot
	starts []int32
}

// newWriting returns the state of a file without its logs, with free space for `room` rows
// or for half as many as it has. It takes ownership of b.
func newWriting(b base, room int) (*writing, error) {
	m := b.header.Meta
	a, err := newArena(b, max(room, m.Rows/2))
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	w := &writing{meta: m, rows: m.Rows, b: b, table: b.table, starts: b.table.starts, pack: newPacker(m)}
	w.loss = cloneLoss(b.table.loss)
	w.arena, w.base, w.live.items, w.sequence = a, m.Items, m.Items, b.origin.Sequence
	w.slots = make([]atomic.Uint32, 64)
	w.died = make([]atomic.Uint64, m.Items+max(room, m.Items/2))
	return w, nil
}

func (w *writing) items() int { return w.live.items }

// admit returns an error for a change that apply could not make.
func (w *writing) admit(c change) error {
	if c.deletes() {
		return nil
	}
	if c.rows.Rows > MaxRows-w.rows {
		return fmt.Errorf("%w: more than %d rows; divide the collection", ErrTable, MaxRows)
	}
	for r := range c.rows.Rows {
		if !w.pack.packing.Pack(w.pack.row, c.rows.Row(r)) {
			return fmt.Errorf("%w: row %d has %w", ErrTable, r, w.pack.tooLarge())
		}
	}
	return nil
}

// apply makes an admitted change. Existing snapshots do not see it. It fails only if memory
// cannot be mapped.
func (w *writing) apply(c change) error {
	w.sequence = max(w.sequence, c.sequence)
	if c.deletes() {
		for _, id := range c.ids {
			w.endItem(id, c.sequence)
		}
		return nil
	}
	if err := w.reserve(c.rows.Rows, c.rows.Rows == len(c.ids)); err != nil {
		return err
	}
	for i, id := range c.ids {
		w.endItem(id, c.sequence)
		for r := c.starts[i]; r < c.starts[i+1]; r++ {
			if err := w.putRow(c.rows.Row(int(r))); err != nil {
				return err
			}
		}
		w.addItem(id)
	}
	return nil
}

// reserve makes sure that there is space for more rows. single says that each row is an
// item of its own.
func (w *writing) reserve(rows int, single bool) error {
	if w.starts == nil && !single {
		w.starts = make([]int32, 0, w.live.items+w.live.items/4)
		for i := range w.live.items + 1 {
			w.starts = append(w.starts, int32(i))
		}
	}
	if w.rows+rows <= w.arena.capacity {
		return nil
	}
	return w.grow(rows)
}

// putRow writes a row after the last one.
func (w *writing) putRow(row []float32) error {
	packed, ok := w.pack.add(row)
	if !ok {
		return fmt.Errorf("%w: a row has %w", ErrTable, w.pack.tooLarge())
	}
	copy(w.arena.features.Bytes[w.rows*len(packed)*4:], wordBytes(packed))
	if w.meta.Full {
		copy(w.arena.full.Bytes[w.rows*len(row)*4:], floatBytes(row))
	}
	w.rows++
	return nil
}

// addItem turns the rows after the last item into a new item.
func (w *writing) addItem(id rerank.ID) {
	if w.live.items == len(w.died) {
		died := make([]atomic.Uint64, 2*len(w.died))
		for i := range w.died {
			died[i].Store(w.died[i].Load())
		}
		w.died = died
	}
	w.ids = append(w.ids, id)
	w.live.items++
	if w.starts != nil {
		w.starts = append(w.starts, int32(w.rows))
	}
	if 2*len(w.ids) > len(w.slots) {
		w.slots = make([]atomic.Uint32, 2*len(w.slots))
		for i, id := range w.ids {
			w.index(id, i)
		}
		return
	}
	w.index(id, len(w.ids)-1)
}

func (w *writing) index(id rerank.ID, i int) {
	mask := len(w.slots) - 1
	at := int(hash(id)) & mask
	for w.slots[at].Load() != 0 {
		at = (at + 1) & mask
	}
	w.slots[at].Store(uint32(i + 1))
}

// endItem marks the item that currently has an id as dead.
func (w *writing) endItem(id rerank.ID, sequence uint64) {
	item, ok := w.find(id)
	if !ok {
		if item, ok = w.table.findInFile(id); !ok || w.died[item].Load() != 0 {
			return
		}
	}
	w.died[item].Store(sequence)
	w.dead++
}

// grow moves the rows to an arena with more space. Snapshots keep the old arena.
func (w *writing) grow(rows int) error {
	a, err := newArena(w.b, w.rows-w.meta.Rows+max(rows, w.rows/2))
	if err != nil {
		return err
	}
	copyTail(a.features, w.arena.features, w.meta.Rows, w.rows, w.pack.packing.RowWords())
	if w.meta.Full {
		copyTail(a.full, w.arena.full, w.meta.Rows, w.rows, w.meta.Features)
	}
	w.arena.release()
	w.arena = a
	return nil
}

// copyTail copies the rows [first, last), each of the given number of words.
func copyTail(to, from *mmap.Extended, first, last, words int) {
	copy(to.Bytes[first*words*4:], from.Bytes[first*words*4:last*words*4])
}

func cloneLoss(l rerank.Loss) rerank.Loss {
	l.Blocks = slices.Clone(l.Blocks)
	return l
}

// snapshot returns the current state as a Table with one reference.
func (w *writing) snapshot() *Table {
	merged := cloneLoss(w.loss)
	if merged.Merge(w.pack.loss); merged.Row != w.loss.Row || !slices.Equal(merged.Blocks, w.loss.Blocks) {
		w.loss = merged
	}
	t := *w.table
	t.file, t.loss, t.starts = nil, w.loss, slices.Clip(w.starts)
	t.meta.Rows, t.meta.Items = w.rows, w.live.items
	size := w.rows * t.packed.RowWords() * 4
	t.packed.Rows, t.packed.Words = w.rows, numbers[uint32](w.arena.features.Bytes[:size])
	if t.meta.plain() {
		t.plain = rerank.Matrix{Rows: w.rows, Cols: t.meta.Features, Data: numbers[float32](w.arena.features.Bytes[:size])}
	}
	if t.meta.Full {
		t.full = rerank.Matrix{Rows: w.rows, Cols: t.meta.Features, Data: numbers[float32](w.arena.full.Bytes[:w.rows*t.meta.Features*4])}
	}
	v := &live{
		arena: w.arena, sequence: w.sequence, base: w.base, items: w.live.items, dead: w.dead,
		ids: slices.Clip(w.ids), slots: w.slots, died: w.died,
	}
	v.holds.Store(1)
	w.arena.references.Add(1)
	t.live = v
	return &t
}
