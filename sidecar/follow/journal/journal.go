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
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/record"
)

// The errors of a Journal.
var (
	// ErrFull means that the files have reached Options.Limit.
	ErrFull = errors.New("the journal is full")
	// ErrDisk means that the disk failed. Append fails at once until a retry succeeds.
	ErrDisk = errors.New("the journal cannot be written")
	// ErrClosed means that the journal was closed.
	ErrClosed = errors.New("the journal is closed")
	// ErrDamaged means that a part of the journal cannot be read.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrInterrupted means that the process of a shared journal sends writes to the database
	// that the journal does not have.
	ErrInterrupted = errors.New("the journal does not have every write")
	// ErrIncomplete means that the journal ends in bytes that are not, or not yet, a whole record.
	ErrIncomplete = errors.New("the journal ends in an incomplete record")
)

// lockName is the file that a process locks while it has the journal open.
const lockName = "lock"

// lockPatience is how long Open waits for the lock of a shared journal, which a Reader holds while
// it tests the lock.
const lockPatience = 500 * time.Millisecond

// Options change the defaults of a Journal.
type Options struct {
	// Limit is the greatest size of all files, in bytes; 0 means 64 MiB. Up to three quarters of it
	// may be writes that are done.
	Limit int64
	// Segment is the size at which a new file begins; 0 means 4 MiB. It is lowered to an eighth of
	// Limit.
	Segment int64
	// Retry is the time between a failure of the disk and the next attempt; 0 means a second.
	Retry time.Duration
	// Shared: other processes read the journal while it is written, with a Reader.
	Shared bool
	// Disk holds the files; nil means the operating system's.
	Disk disk.Disk
}

// withDefaults fills in the options that are 0 or nil.
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

// Journal is a list of writes on disk. A write stays in it until Done. One process at a time can
// have a journal open. It is safe for concurrent use.
//
// Callers of Append wait for one goroutine, the committer. It writes all requests that have come
// since its last turn, and syncs the file once.
type Journal struct {
	dir   string
	o     Options
	lock  *filelock.Lock // nil if the disk did not allow taking it yet; only the committer uses it after Open
	wake  chan struct{}  // tells the committer that requests wait
	stop  chan struct{}  // closed by Close
	ended chan struct{}  // closed when the committer has ended

	markMu      sync.Mutex // held while the mark is written or removed
	interrupted bool       // the mark does not exist

	mu     sync.Mutex
	queue  appendQueue
	done   []uint64 // writes that are done, which no file records yet
	active *segment // the last segment, which is written to; nil without segments
	books
	failed error
	closed bool
}

// books records which segment file holds each write that is not done.
type books struct {
	pending  map[uint64]location // the writes that are not done, by number
	needed   int64               // the total bytes of pending
	segments []*segment          // oldest first
	size     int64               // the size of all segments
	next     uint64              // the number of the next write
	number   uint64              // the number of the next segment
	durable  uint64              // the last write that was acknowledged
}

func newBooks() books { return books{pending: map[uint64]location{}, next: 1, number: 1} }

// location says which segment holds a write, and how many bytes it takes there.
type location struct {
	segment *segment
	size    int64
}

// request is a call of Append that waits for the committer.
type request struct {
	record    []byte
	seq       uint64
	committed chan error // receives the result; buffered, so that the committer never waits
	abandoned bool       // the caller has stopped waiting
}

// appendQueue holds the requests that the committer has not taken yet.
type appendQueue struct {
	requests []*request
	bytes    int64
}

func (q *appendQueue) add(r *request) {
	q.requests = append(q.requests, r)
	q.bytes += int64(len(r.record))
}

// withdraw removes a request. It reports false if the committer has taken the request already.
func (q *appendQueue) withdraw(r *request) bool {
	i := slices.Index(q.requests, r)
	if i < 0 {
		return false
	}
	q.requests = slices.Delete(q.requests, i, i+1)
	q.bytes -= int64(len(r.record))
	return true
}

// take empties the queue and returns the requests.
func (q *appendQueue) take() []*request {
	taken := q.requests
	q.requests, q.bytes = nil, 0
	return taken
}

// Open opens the journal in dir, and makes the folder if it does not exist. It returns
// the writes that are not done, in order. It drops an incomplete record at the end of a
// segment, which was never acknowledged.
//
// The journal is open with two kinds of errors as well, and then any write may be missing.
// With ErrDamaged the error names files and offsets, and the entries are the ones that can
// be read. With ErrDisk the disk fails, or a file cannot be used, as when another version of
// likeness wrote it: Append fails at once until a retry succeeds, as when the disk fails later.
// Then the entries are the ones that could be read. If not even the lock could be taken no entry
// is returned, and entries that are found later are dropped. If another process has the lock,
// Open returns filelock.ErrHeld, and the journal is nil.
func Open(dir string, o Options) (*Journal, []Entry, error) {
	j := &Journal{
		dir: dir, o: o.withDefaults(), books: newBooks(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	entries, damage, err := j.claim()
	if err == nil && j.o.Shared {
		err = j.openMark(damage != nil)
	}
	if err == nil {
		err = j.rotate()
	}
	switch {
	case err == nil:
		j.prune()
	case !errors.Is(err, filelock.ErrHeld):
		j.interrupted = false // what is on disk as far as is known; Interrupt then removes the mark
		j.failed = fmt.Errorf("%w: %w", ErrDisk, err)
	default:
		return nil, nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	failed := j.failed // the committer may change j.failed from now on
	go j.run(failed != nil)
	return j, entries, errors.Join(failed, damage)
}

// claim takes the lock and reads the segments. damage is ErrDamaged, or nil.
func (j *Journal) claim() (entries []Entry, damage, err error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err := j.takeLock()
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

// takeLock locks the folder. It tries for lockPatience, because a Reader may hold the lock for a
// moment while it tests whether a process has it.
func (j *Journal) takeLock() (*filelock.Lock, error) {
	retry := time.NewTicker(lockPatience / 50)
	defer retry.Stop()
	for end := time.Now().Add(lockPatience); ; <-retry.C {
		lock, err := filelock.Take(filepath.Join(j.dir, lockName))
		if !j.o.Shared || !errors.Is(err, filelock.ErrHeld) || time.Now().After(end) {
			return lock, err
		}
	}
}

// unlock releases the lock, if it was taken.
func (j *Journal) unlock() error {
	if j.lock == nil {
		return nil
	}
	return j.lock.Close()
}

// Append adds a write and returns its number once the write is durable. Calls that come while the
// disk is busy share the next sync. If ctx ends first, Append withdraws the write, though a crash
// may still bring it back. After an error (ctx's, ErrFull, ErrDisk or ErrClosed) Done need not be
// called.
func (j *Journal) Append(ctx context.Context, w Write) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	r := &request{record: append(record.Begin(nil), body...), committed: make(chan error, 1)}
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
	case j.size+j.queue.bytes+size > j.o.Limit:
		return fmt.Errorf("%w: %s has %d bytes of writes that are not followed, and the limit is %d", ErrFull, j.dir, j.size+j.queue.bytes, j.o.Limit)
	default:
		j.queue.add(r)
		return nil
	}
}

// withdraw takes a request out of the queue. If the committer has taken the request, the write is
// done as soon as it is written.
func (j *Journal) withdraw(ctx context.Context, r *request) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.queue.withdraw(r) {
		r.abandoned = true
		j.forget(r.seq) // the committer may have answered the request in between
	}
	return ctx.Err()
}

// Done removes the write of that number, because all derived data shows it. A crash soon after may
// bring the write back. An unknown number changes nothing.
func (j *Journal) Done(seq uint64) {
	j.mu.Lock()
	j.forget(seq)
	j.mu.Unlock()
	j.signal()
}

// forget marks a write as done. The caller holds the lock.
func (j *Journal) forget(seq uint64) {
	if j.remove(seq) {
		j.done = append(j.done, seq)
	}
}

// add notes where a pending write lies.
func (b *books) add(seq uint64, at location) {
	b.pending[seq] = at
	at.segment.live++
	at.segment.needed += at.size
	b.needed += at.size
}

// remove notes that a write is done. It reports false if the write is unknown.
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

// measure adds up the sizes of the segments.
func (b *books) measure() {
	b.size = 0
	for _, s := range b.segments {
		b.size += s.size
	}
}

// Stats says how full a journal is.
type Stats struct {
	// Pending counts the writes that are not done. Bytes is the size of all files.
	Pending  int
	Bytes    int64
	Segments int
	// Failed is the ErrDisk that Append returns now, or nil.
	Failed error
}

// Stats returns how full the journal is.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Stats{len(j.pending), j.size, len(j.segments), j.failed}
}

// Close waits for the calls of Append under way, saves which writes are done, and closes
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
