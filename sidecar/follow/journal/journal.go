package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/diskfault"
	"github.com/likenessdb/likeness/internal/filelock"
)

// The errors of a journal.
var (
	// ErrFull: what is not done has reached Options.Limit.
	ErrFull = errors.New("the journal is full")
	// ErrDisk: the disk failed. Appends fail at once until it takes writes again.
	ErrDisk = errors.New("the journal cannot be written")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
	// ErrDamaged: a part of the journal cannot be read.
	ErrDamaged = errors.New("the journal is damaged")
)

// Options are what a Journal can do without.
type Options struct {
	// Limit is the greatest size of all files, in bytes; 0 is 64 MiB. Three
	// quarters of it may be of writes that are done.
	Limit int64
	// Segment is the size from which a new file is begun; 0 is 4 MiB, and it is an
	// eighth of Limit at most.
	Segment int64
	// Retry is how long after a failure of the disk it is tried again; 0 is a second.
	Retry time.Duration
	// Disk holds the files; nil is the operating system's.
	Disk disk.Disk
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Limit <= 0 {
		o.Limit = 64 << 20
	}
	if o.Segment <= 0 {
		o.Segment = 4 << 20
	}
	o.Segment = min(o.Segment, o.Limit/8)
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	o.Disk = disk.OrOS(o.Disk)
	return o
}

// Entry is a write with its number.
type Entry struct {
	Seq   uint64
	Write Write
}

// Journal is a list of writes on the disk, from which those are removed that are
// done. One process at a time can have it open. It is safe for concurrent use.
type Journal struct {
	dir   string
	o     Options
	lock  *filelock.Lock // nil: the disk has not let it be opened yet; the committer's behind Open
	wake  chan struct{}  // tells the committer that there is something to do
	stop  chan struct{}  // closed by Close
	ended chan struct{}  // closed when the committer has ended

	mu     sync.Mutex
	queue  []*request
	queued int64    // bytes of queue
	done   []uint64 // not yet written down
	active *segment // the last of the segments while it is written
	books
	failed error
	closed bool
}

// books are what the files hold, as far as it is known.
type books struct {
	pending  map[uint64]place // the writes that are not done
	needed   int64            // their bytes
	segments []*segment       // oldest first
	size     int64            // of all segments
	next     uint64           // the number of the next write
	number   uint64           // of the next segment
	durable  uint64           // the last write that was acknowledged
}

func newBooks() books { return books{pending: map[uint64]place{}, next: 1, number: 1} }

// place is where a write is written down.
type place struct {
	segment *segment
	size    int64
}

// request is an Append on its way.
type request struct {
	record    []byte
	seq       uint64
	committed chan error // of one
	abandoned bool       // nobody waits any more
}

// Open opens the journal in dir, which it makes if need be, and returns what was
// written and not done, in order. A record at the end that is not whole, which
// was never acknowledged, is dropped.
//
// Where it returns ErrDamaged or ErrDisk the journal is open too. With ErrDamaged
// the error names files and offsets, and the entries are those that can be read,
// before and behind. With ErrDisk, of a file system that is full, read-only or
// broken, Appends fail at once and the disk is tried again, as when it fails later;
// the entries are those that could be read, which are none if not even the lock can
// be taken: then what is found later is dropped. After both any write may be missing.
// With any other error the journal is nil; one is filelock.ErrHeld.
func Open(dir string, o Options) (*Journal, []Entry, error) {
	j := &Journal{
		dir: dir, o: o.withDefaults(), books: newBooks(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	entries, damage, err := j.claim()
	if err == nil {
		err = j.rotate()
	}
	switch {
	case err == nil:
		j.prune()
	case diskfault.Is(err):
		j.failed = fmt.Errorf("%w: %w", ErrDisk, err)
	default:
		return nil, nil, errors.Join(fmt.Errorf("journal %s: %w", dir, err), j.unlock())
	}
	failed := j.failed // the committer's from now on
	go j.run(failed != nil)
	return j, entries, errors.Join(failed, damage)
}

// claim takes the lock and reads what there is. damage is ErrDamaged, or nil.
func (j *Journal) claim() (entries []Entry, damage, err error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err := filelock.Take(filepath.Join(j.dir, "lock"))
	if err != nil {
		return nil, nil, err
	}
	found, entries, damage, err := recoverFrom(j.dir)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lock, j.books = lock, found
	j.measure()
	return entries, damage, nil
}

// unlock gives the lock back, if it was taken.
func (j *Journal) unlock() error {
	if j.lock == nil {
		return nil
	}
	return j.lock.Close()
}

// Append writes w down and returns its number when it is durable; those that come
// while the disk is busy share its next turn. When ctx ends first, the write is
// withdrawn, and a crash may still bring it back. It returns ctx's error, ErrFull,
// ErrDisk or ErrClosed, and then there is nothing to be done.
func (j *Journal) Append(ctx context.Context, w Write) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	r := &request{record: appendRecord(nil, body), committed: make(chan error, 1)}
	if err := j.enqueue(r); err != nil {
		return 0, err
	}
	j.signal()
	select {
	case err := <-r.committed:
		if err != nil {
			return 0, err
		}
		return r.seq, nil
	case <-ctx.Done():
		return 0, j.withdraw(ctx, r)
	}
}

func (j *Journal) enqueue(r *request) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch size := int64(len(r.record)); {
	case j.closed:
		return ErrClosed
	case j.failed != nil:
		return j.failed
	case j.size+j.queued+size > j.o.Limit:
		return fmt.Errorf("%w: %s has %d bytes of writes that are not followed, and the limit is %d", ErrFull, j.dir, j.size+j.queued, j.o.Limit)
	default:
		j.queue, j.queued = append(j.queue, r), j.queued+size
		return nil
	}
}

// withdraw takes a request back: out of the queue, or as done once it is written.
func (j *Journal) withdraw(ctx context.Context, r *request) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.queue, r); i >= 0 {
		j.queue, j.queued = slices.Delete(j.queue, i, i+1), j.queued-int64(len(r.record))
		return ctx.Err()
	}
	r.abandoned = true
	j.forget(r.seq) // it may have been settled meanwhile
	return ctx.Err()
}

// Done says that the write of that number was followed and is not needed any
// more. A crash soon after may bring it back; a number that is not known changes
// nothing.
func (j *Journal) Done(seq uint64) {
	j.mu.Lock()
	j.forget(seq)
	j.mu.Unlock()
	j.signal()
}

// forget marks a write as done; the caller holds the lock.
func (j *Journal) forget(seq uint64) {
	if j.remove(seq) {
		j.done = append(j.done, seq)
	}
}

// add and remove keep the books of what is needed; the caller holds the lock.
func (b *books) add(seq uint64, at place) {
	b.pending[seq] = at
	at.segment.live++
	at.segment.needed += at.size
	b.needed += at.size
}

func (b *books) remove(seq uint64) bool {
	at, ok := b.pending[seq]
	if !ok {
		return false
	}
	delete(b.pending, seq)
	at.segment.live--
	at.segment.needed -= at.size
	b.needed -= at.size
	return true
}

// measure adds up the segments; the caller holds the lock.
func (b *books) measure() {
	b.size = 0
	for _, s := range b.segments {
		b.size += s.size
	}
}

// Stats say how full a journal is.
type Stats struct {
	// Pending are the writes that are not done; Bytes is the size of all files.
	Pending  int
	Bytes    int64
	Segments int
	// Failed is the ErrDisk that Append returns, if any.
	Failed error
}

// Stats returns how full the journal is.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Stats{len(j.pending), j.size, len(j.segments), j.failed}
}

// Close waits for the Appends on their way, writes down what is done, and closes
// the files. A second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	close(j.stop)
	<-j.ended
	var err error
	if s := j.active; s != nil {
		err = errors.Join(s.file.Sync(), s.file.Close())
	}
	return errors.Join(err, j.unlock())
}
