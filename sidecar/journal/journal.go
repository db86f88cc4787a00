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
	lock  *filelock.Lock
	wake  chan struct{} // tells the committer that there is something to do
	stop  chan struct{} // closed by Close
	ended chan struct{} // closed when the committer has ended

	mu       sync.Mutex
	queue    []*request
	queued   int64            // bytes of queue
	done     []uint64         // not yet written down
	pending  map[uint64]place // the writes that are not done
	needed   int64            // their bytes
	segments []*segment       // oldest first
	active   *segment         // the last of them while it is written
	size     int64            // of all segments
	next     uint64           // the number of the next write
	number   uint64           // of the next segment
	durable  uint64           // the last write that was acknowledged
	failed   error
	closed   bool
}

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
// Where it returns ErrDamaged the journal is open too: the error names files and
// offsets, and the entries are those that can be read, before and behind. Any
// write may be among those that cannot be. With any other error it is nil; one is
// filelock.ErrHeld.
func Open(dir string, o Options) (*Journal, []Entry, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{
		dir: dir, o: o.withDefaults(), lock: lock, pending: map[uint64]place{}, next: 1, number: 1,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	entries, damage, err := j.recover()
	if err == nil {
		err = j.rotate()
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("journal %s: %w", dir, err), lock.Close())
	}
	j.prune()
	go j.run()
	return j, entries, damage
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
func (j *Journal) add(seq uint64, at place) {
	j.pending[seq] = at
	at.segment.live++
	at.segment.needed += at.size
	j.needed += at.size
}

func (j *Journal) remove(seq uint64) bool {
	at, ok := j.pending[seq]
	if !ok {
		return false
	}
	delete(j.pending, seq)
	at.segment.live--
	at.segment.needed -= at.size
	j.needed -= at.size
	return true
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
	return errors.Join(err, j.lock.Close())
}
