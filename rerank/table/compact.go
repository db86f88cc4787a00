package table

import (
	"errors"
	"fmt"
	"os"

	"github.com/likenessdb/likeness/internal/atomicfile"
)

// compactSuffix is appended to the table's path for the file that a compaction writes and
// then renames.
const compactSuffix = ".compact"

// errCompacting means that another compaction is under way.
var errCompacting = errors.New("a compaction is under way")

// compactIfDue starts a compaction in the background if enough items have changed. The
// caller holds mu.
func (l *Live) compactIfDue() {
	changed := l.w.items() - l.w.base + l.w.dead
	due := max(l.o.CompactItems, int(l.o.CompactShare*float64(l.w.items())), l.retry)
	if l.o.CompactShare < 0 || l.compacting || changed < due {
		return
	}
	cut, err := l.rotate()
	if err == nil {
		l.background.Go(func() { l.report(l.compact(cut)) })
		return
	}
	l.retry = 2 * changed
	l.background.Go(func() { l.report(err) })
}

func (l *Live) report(err error) {
	if l.o.Compacted != nil {
		l.o.Compacted(err)
	}
}

// Compact writes a new file from the table's file and logs, and replaces the file in one
// step. Reads and writes continue meanwhile. It returns ErrTable if another file has taken
// the table's name, ErrClosed, or the system's error. After an error the table is
// unchanged.
func (l *Live) Compact() error {
	l.mu.Lock()
	cut, err := l.rotate()
	if err == nil {
		l.background.Add(1)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	defer l.background.Done()
	return l.compact(cut)
}

// rotate starts a new log and returns the snapshot of everything in the previous logs. The
// caller holds mu.
func (l *Live) rotate() (*Table, error) {
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.compacting:
		return nil, errCompacting
	}
	if err := l.beginLog(); err != nil {
		return nil, err
	}
	if l.log.failed != nil {
		return nil, fmt.Errorf("%w: %w", ErrClosed, l.log.failed)
	}
	if err := l.log.file.Sync(); err != nil {
		return nil, fmt.Errorf("writing %s: %w", l.log.file.Name(), err)
	}
	next, err := createLog(l.o.Disk, l.path, l.identity(l.generation+1), !l.o.Unsynced)
	if err != nil {
		return nil, err
	}
	_ = l.log.file.Close() // it has been synced
	l.log, l.compacting = next, true
	l.generation++
	return l.Snapshot(), nil
}

// compact writes the snapshot `cut` to a new file and moves the table to that file.
func (l *Live) compact(cut *Table) error {
	defer cut.Release()
	l.mu.Lock()
	o := origin{Lineage: l.lineage, Generation: l.generation, Sequence: cut.live.sequence}
	l.mu.Unlock()
	next, err := l.rewrite(cut, o)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compacting = false
	if err == nil {
		err = l.move(cut, next)
	}
	if err != nil {
		l.retry = 2 * (l.w.items() - l.w.base + l.w.dead)
		return errors.Join(fmt.Errorf("compacting %s: %w", l.path, err), removeAll(l.o.Disk, l.path+compactSuffix))
	}
	l.retry = 0
	return l.removeLogs(o.Generation)
}

// rewrite writes the snapshot to a new file, then opens and checks that file.
func (l *Live) rewrite(cut *Table, o origin) (*writing, error) {
	w, err := newWriter(l.o.Disk, l.path+compactSuffix, cut.meta)
	if err != nil {
		return nil, err
	}
	w.origin, w.pack.loss = o, cloneLoss(cut.loss)
	for item := range cut.Len() {
		if !cut.Alive(item) {
			continue
		}
		if err := errors.Join(l.stopped(item), w.appendItem(cut, item)); err != nil {
			return nil, errors.Join(err, w.Abort())
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	b, err := openBase(l.path+compactSuffix, l.expect)
	if err != nil {
		return nil, err
	}
	return newWriting(b, l.o.CompactItems)
}

// stopped returns ErrClosed once Close has begun. It checks only every 1,024 items.
func (l *Live) stopped(item int) error {
	if item%1024 != 0 {
		return nil
	}
	select {
	case <-l.stop:
		return ErrClosed
	default:
		return nil
	}
}

// appendItem copies an item of a table of LayoutRows without unpacking it.
func (w *Writer) appendItem(t *Table, item int) error {
	from, to := t.Rows(item)
	n := t.packed.RowWords()
	var full []float32
	if t.meta.Full {
		full = t.full.Slice(from, to).Data
	}
	return w.appendPacked(t.ID(item), t.packed.Words[from*n:to*n], full, to-from)
}

// move replaces the table's file by the new one and carries over the writes since the cut.
// The caller holds mu.
func (l *Live) move(cut *Table, next *writing) error {
	err := l.unreplaced()
	if err == nil {
		err = next.catchUp(l.w, cut)
	}
	if err == nil {
		err = atomicfile.Move(l.o.Disk, l.path+compactSuffix, l.path)
	}
	if err != nil {
		next.arena.release()
		return err
	}
	old := l.w
	l.w = next
	l.publish(next.snapshot())
	old.arena.release()
	return nil
}

// unreplaced verifies that the table's path still names the file that was opened. It
// returns ErrTable if not.
func (l *Live) unreplaced() error {
	now, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	have, err := l.w.b.file.Stat()
	if err == nil && !os.SameFile(have, now) {
		err = fmt.Errorf("%w: another table has taken its place; open that one", ErrTable)
	}
	return err
}

// catchUp applies the writes since the cut, which old contains, to the state that was read
// from the new file.
func (w *writing) catchUp(old *writing, cut *Table) error {
	w.loss.Merge(old.loss)
	for item := range cut.Len() {
		if died := old.died[item].Load(); died > cut.live.sequence {
			if to, ok := w.table.findInFile(cut.ID(item)); ok {
				w.died[to].Store(died)
				w.dead++
			}
		}
	}
	t := old.snapshot()
	defer t.Release()
	for item := cut.Len(); item < t.Len(); item++ {
		if !t.Alive(item) {
			continue
		}
		from, to := t.Rows(item)
		if err := w.copyRows(t, from, to); err != nil {
			return err
		}
		w.addItem(t.ID(item))
	}
	w.sequence = old.sequence
	return nil
}

// copyRows appends rows of another table that has the same packing.
func (w *writing) copyRows(t *Table, from, to int) error {
	if err := w.reserve(to-from, to-from == 1); err != nil {
		return err
	}
	n := t.packed.RowWords()
	copy(w.arena.features.Bytes[w.rows*n*4:], wordBytes(t.packed.Words[from*n:to*n]))
	if t.meta.Full {
		copy(w.arena.full.Bytes[w.rows*t.meta.Features*4:], floatBytes(t.full.Slice(from, to).Data))
	}
	w.rows += to - from
	return nil
}

// removeLogs removes the logs of all generations before the given one.
func (l *Live) removeLogs(before uint64) error {
	all, err := listLogs(l.path)
	if err != nil {
		return err
	}
	for _, g := range all {
		if g < before {
			err = errors.Join(err, removeAll(l.o.Disk, logPath(l.path, g)))
		}
	}
	return err
}
