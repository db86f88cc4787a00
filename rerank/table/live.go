package table

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/diskfault"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/rerank"
)

// ErrClosed: the live table was closed, or an earlier write failed in a way that left the
// state on disk unknown.
var ErrClosed = errors.New("live table takes no more writes")

// LiveOptions are the optional parameters of a Live.
type LiveOptions struct {
	// CompactShare is the share of items that must be new, replaced or deleted since the
	// last compaction before another one starts. 0 means a quarter; a negative value
	// disables compaction.
	CompactShare float64
	// CompactItems is the least number of such items. 0 means 4,096.
	CompactItems int
	// Unsynced returns from a write without waiting for the disk. An acknowledged write
	// then survives the end of the process, but not a power failure.
	Unsynced bool
	// Compacted, if not nil, is called with the outcome of every compaction. It must not
	// call the Live.
	Compacted func(error)
	// Disk stores the table and its logs. nil means the operating system's file system.
	Disk disk.Disk
}

// Live is a table that can be written while it is read. Readers use snapshots, which no
// write changes. Every write goes to a log beside the file before a snapshot shows it. A
// compaction in the background merges file and logs into a new file. Only one process at a
// time can have a table live. A Live is safe for concurrent use.
//
// Beside path it keeps the logs path.log.N and the lock file path.lock.
type Live struct {
	path     string
	expect   Expect
	o        LiveOptions
	features int // length of a feature row
	schema   *Table
	lineage  string
	lock     *filelock.Lock

	current atomic.Pointer[Table]
	pending atomic.Int64 // writes that were announced but not settled

	mu         sync.Mutex // held during a write; guards the fields below
	w          *writing
	log        *segment
	generation uint64 // of the current log
	compacting bool
	retry      int // number of changes after which a failed compaction is retried
	closed     bool
	background sync.WaitGroup
	stop       chan struct{} // closed to make a running compaction end
}

// LiveStats describes the state of a live table.
type LiveStats struct {
	// Items counts items that are alive, Dead counts items in memory that were deleted or
	// replaced, and Appended counts items added since the file was made.
	Items, Dead, Appended int
	// Sequence counts all writes that the snapshot shows, from the table's creation on.
	// Generation counts the compactions.
	Sequence, Generation uint64
	// LogBytes is the length of the current log.
	LogBytes int64
	// Pending is the result of Live.Pending.
	Pending int
}

// OpenLive opens a table for writing: it reads the file and replays the logs. An incomplete
// record at the end of the last log was never acknowledged and is dropped. OpenLive returns
// ErrTable as Open does, and also for a log that is damaged elsewhere, for a table of
// LayoutTiles, and for a table that another process has live. If the disk is full and no
// log exists yet, the table opens, and writes fail until a log can be created.
func OpenLive(path string, expect Expect, o LiveOptions) (*Live, error) {
	l := &Live{path: path, expect: expect, o: o, stop: make(chan struct{})}
	if l.o.CompactShare == 0 {
		l.o.CompactShare = 0.25
	}
	if l.o.CompactItems == 0 {
		l.o.CompactItems = 4096
	}
	l.o.Disk = disk.OrOS(l.o.Disk)
	var err error
	if l.lock, err = filelock.Take(path + ".lock"); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, path, err)
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	return l, nil
}

func (l *Live) open() error {
	if err := removeAll(l.o.Disk, l.path+compactSuffix); err != nil {
		return err
	}
	b, err := openBase(l.path, l.expect)
	if err != nil {
		return err
	}
	l.features, l.lineage, l.generation = b.header.Meta.Features, b.origin.Lineage, b.origin.Generation
	if l.w, err = newWriting(b, l.o.CompactItems); err != nil {
		return err
	}
	if err = l.replay(); err != nil {
		l.w.arena.release()
		return err
	}
	t := l.w.snapshot()
	l.schema = &Table{meta: t.meta, loss: t.loss, packed: rerank.Packed{Packing: t.packed.Packing}}
	l.schema.meta.Rows, l.schema.meta.Items = 0, 0
	if t.Grouped() {
		l.schema.starts = []int32{0}
	}
	l.current.Store(t)
	return nil
}

// base is the file of a live table. Several arenas can share it; the last one closes it.
type base struct {
	table  *Table
	file   *os.File
	header fileHeader
	origin origin
	arenas *atomic.Int64
}

func (b base) close() error { return errors.Join(b.table.Close(), b.file.Close()) }

// openBase opens and checks a table's file.
func openBase(path string, expect Expect) (b base, err error) {
	if b.table, err = Open(path, expect); err != nil {
		return b, err
	}
	if b.file, err = os.Open(path); err != nil {
		return b, errors.Join(err, b.table.Close())
	}
	b.arenas = new(atomic.Int64)
	if err = b.describe(); err != nil {
		return b, errors.Join(fmt.Errorf("%w: %s: %w", ErrTable, path, err), b.close())
	}
	b.header.Sections.Features.forget(b.table.file) // an arena maps them again
	return b, nil
}

func (b *base) describe() (err error) {
	raw, again := b.table.file.Bytes, make([]byte, headerSize)
	if _, err = b.file.ReadAt(again, 0); err != nil || !bytes.Equal(raw[:headerSize], again) {
		return errors.Join(err, errors.New("it was replaced while it was opened; try again"))
	}
	if b.header, err = parseHeader(raw); err != nil {
		return err
	}
	if b.header.Meta.Layout != LayoutRows {
		return fmt.Errorf("its layout, %s, takes no writes; build it with %s", b.header.Meta.Layout, LayoutRows)
	}
	if b.origin = b.header.Origin; b.origin.Lineage == "" {
		sum := sha256.Sum256(raw[:headerSize])
		b.origin.Lineage = hex.EncodeToString(sum[:])[:lineageSize]
	}
	if len(b.origin.Lineage) != lineageSize {
		return fmt.Errorf("its lineage is %q", b.origin.Lineage)
	}
	return nil
}

func (l *Live) identity(generation uint64) logIdentity {
	return logIdentity{features: l.features, generation: generation, lineage: l.lineage}
}

// replay applies the logs that continue the file and opens the last of them for writing.
func (l *Live) replay() error {
	logs, err := l.logs()
	if err != nil {
		return err
	}
	first, length := l.generation, int64(0)
	for i, g := range logs {
		if g != first+uint64(i) {
			return fmt.Errorf("%w: %s lacks the log of generation %d; build the table again with `likeness index`", ErrTable, l.path, first+uint64(i))
		}
		l.generation = g
		length, err = readLog(logPath(l.path, g), l.identity(g), i == len(logs)-1, &l.w.sequence, l.w.apply)
		if err != nil {
			return err
		}
	}
	if length == 0 {
		if err = l.beginLog(); diskfault.Is(err) {
			err = nil // the table can be read, and the first write tries again
		}
		return err
	}
	f, err := l.o.Disk.OpenFile(logPath(l.path, l.generation), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.log = &segment{file: f, length: length, sync: !l.o.Unsynced}
	if err := f.Truncate(length); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// beginLog creates the current log if the table has no log yet.
func (l *Live) beginLog() (err error) {
	if l.log == nil {
		l.log, err = createLog(l.o.Disk, l.path, l.identity(l.generation), !l.o.Unsynced)
	}
	return err
}

// logs lists the logs that continue the file, and removes the others: logs of an earlier
// generation were compacted, and logs of another lineage belong to a table that was
// replaced.
func (l *Live) logs() (ours []uint64, err error) {
	all, err := listLogs(l.path)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		keep, err := l.continues(g)
		if err == nil && !keep {
			err = removeAll(l.o.Disk, logPath(l.path, g))
		}
		if err != nil {
			return nil, err
		}
		if keep {
			ours = append(ours, g)
		}
	}
	return ours, nil
}

// continues reports whether the log of a generation continues the file. A log with an
// incomplete header counts as well: it is the last log, whose creation was interrupted.
func (l *Live) continues(generation uint64) (bool, error) {
	if generation < l.generation {
		return false, nil
	}
	f, err := os.Open(logPath(l.path, generation))
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := make([]byte, logHeader)
	n, _ := f.ReadAt(b, 0)
	id, err := parseLogHeader(b[:n])
	return err != nil || id.lineage == l.lineage, nil
}

// Snapshot returns the table in its current state and holds it. The caller must call its
// Release when it no longer uses the snapshot or anything obtained from it. After Close,
// Snapshot returns nil. It allocates nothing.
func (l *Live) Snapshot() *Table {
	for {
		if t := l.current.Load(); t == nil || t.live.hold() {
			return t
		}
	}
}

// Schema returns a table without items that has the metadata of this one.
func (l *Live) Schema() *Table { return l.schema }

// Announce records that a write was seen and will be applied. Pending counts it until
// Settle.
func (l *Live) Announce() { l.pending.Add(1) }

// Settle records that every Snapshot from now on shows an announced write. A write that
// could not be applied must never be settled.
func (l *Live) Settle() { l.pending.Add(-1) }

// Pending returns the number of writes that were announced but not settled. If it is 0
// before Snapshot is called, the snapshot shows every write announced so far. Otherwise an
// answer from the snapshot is not exact.
func (l *Live) Pending() int { return int(l.pending.Load()) }

// Stats returns the state of the table.
func (l *Live) Stats() LiveStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LiveStats{
		Items: l.w.items() - l.w.dead, Dead: l.w.dead, Appended: l.w.items() - l.w.base,
		Sequence: l.w.sequence, Generation: l.generation, Pending: l.Pending(),
	}
	if l.log != nil {
		s.LogBytes = l.log.length
	}
	return s
}

// Upsert writes items and replaces what the table had for their ids. Item ids[i] has row i
// of features, or, if starts is not nil (it has one element more than ids), the rows
// starts[i]:starts[i+1]. When Upsert returns without an error, the write is durable and
// every later Snapshot shows all of it; no Snapshot ever shows a part. It returns ErrTable
// for input that a table cannot hold, ErrClosed, or the system's error. After an error
// nothing was written.
func (l *Live) Upsert(ids []rerank.ID, features rerank.Matrix, starts []int32) error {
	if starts == nil {
		starts = make([]int32, len(ids)+1)
		for i := range starts {
			starts[i] = int32(i)
		}
	}
	m := Meta{Items: len(ids), Rows: features.Rows}
	switch {
	case features.Cols != l.features || len(features.Data) != features.Rows*features.Cols:
		return fmt.Errorf("%w: %d numbers in %d rows of %d, want rows of %d", ErrTable, len(features.Data), features.Rows, features.Cols, l.features)
	case len(ids) == 0:
		return nil
	}
	if err := errors.Join(checkStarts(starts, m), checkIDs(ids)); err != nil {
		return err
	}
	return l.write(change{ids: ids, rows: features, starts: starts})
}

// Delete removes items. An id that the table does not have is not an error. Durability and
// errors are as for Upsert.
func (l *Live) Delete(ids []rerank.ID) error {
	if len(ids) == 0 {
		return nil
	}
	if err := checkIDs(ids); err != nil {
		return err
	}
	return l.write(change{ids: ids})
}

func checkIDs(ids []rerank.ID) error {
	for i, id := range ids {
		if id.IsZero() {
			return fmt.Errorf("%w: item %d has no id", ErrTable, i)
		}
	}
	return nil
}

// write logs a change, applies it, and publishes the new snapshot.
func (l *Live) write(c change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if err := l.w.admit(c); err != nil {
		return err
	}
	if err := l.beginLog(); err != nil {
		return err
	}
	c.sequence = l.w.sequence + 1
	if err := l.log.append(c); err != nil {
		if l.log.failed != nil {
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
		return err
	}
	l.w.sequence = c.sequence
	if err := l.w.apply(c); err != nil { // the change is logged, but this process cannot show it
		l.log.failed = err
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	l.publish(l.w.snapshot())
	l.compactIfDue()
	return nil
}

// publish replaces the snapshot that new readers get.
func (l *Live) publish(t *Table) { l.current.Swap(t).Release() }

// Close stops a running compaction and closes the files. Snapshots that are still held stay
// valid; the last Release frees the memory.
func (l *Live) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.stop)
	l.mu.Unlock()
	l.background.Wait()
	l.current.Swap(nil).Release()
	l.w.arena.release()
	return errors.Join(l.closeLog(), l.lock.Close())
}

func (l *Live) closeLog() error {
	if l.log == nil {
		return nil
	}
	return l.log.file.Close()
}
