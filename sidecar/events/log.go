package events

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/record"
)

// LogOptions change the defaults of a Log.
type LogOptions struct {
	// Size is the most bytes that all files take; 0 means 1 GiB. The oldest file is deleted in time.
	Size int64
	// Segment is the size at which a new file begins. It is at most, and by default, an eighth of
	// Size, and at most 64 MiB.
	Segment int64
	// Age is how old a file becomes before a new one begins; 0 means an hour.
	Age time.Duration
	// Retention is how long events are kept; 0 means 30 days.
	Retention time.Duration
	// Flush is how long an impression waits in memory at most; 0 means a second. Feedback never
	// waits for it.
	Flush time.Duration
	// Window is how many ids of the latest feedback are remembered, to recognise what is sent twice; 0
	// means 262,144. The export also drops what was sent twice beyond it.
	Window int
	// Disk holds the files; nil means the operating system's.
	Disk disk.Disk
	// Now tells the time; nil means time.Now.
	Now func() time.Time
}

const (
	maxQueue   = 8 << 20  // bytes of impressions, or of feedback, that wait for the disk
	maxSegment = 64 << 20 // bytes
	retryAfter = time.Second
)

func (o LogOptions) withDefaults() LogOptions {
	o.Size = cmp.Or(o.Size, 1<<30)
	o.Segment = min(cmp.Or(o.Segment, maxSegment), o.Size/8, maxSegment)
	o.Age, o.Retention = cmp.Or(o.Age, time.Hour), cmp.Or(o.Retention, 30*24*time.Hour)
	o.Flush, o.Window = cmp.Or(o.Flush, time.Second), cmp.Or(o.Window, 1<<18)
	o.Disk = disk.OrOS(o.Disk)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// queueBytes returns how many bytes may wait for the disk. One commit must fit a file.
func (o LogOptions) queueBytes() int { return int(min(maxQueue, o.Segment)) }

// Stats says what a Log has written and what it had to leave out, since it was opened.
type Stats struct {
	// Impressions counts the impressions that were written, and Dropped those that were not, because the
	// disk was too slow or failed.
	Impressions, Dropped int64
	// Feedback counts the events that were written, and Repeated the events that were known already.
	Feedback, Repeated int64
	// Bytes is the size of all files, and Segments their number.
	Bytes    int64
	Segments int
	// Failed is the error of the disk, or nil while it works.
	Failed error
}

// Log appends events to the files of a folder. It is safe for concurrent use.
//
// One goroutine, the writer, writes what has come since its last turn and syncs the file once.
// Impressions wait for it in a queue of limited size; callers with feedback wait for the sync.
type Log struct {
	dir   string
	o     LogOptions
	wake  chan struct{} // tells the writer that feedback waits, or that the queue is half full
	stop  chan struct{} // closed by Close
	ended chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	queue   queue
	stats   Stats
	horizon time.Time // answers from before this time may be deleted; zero if no file was deleted
	closed  bool

	// Only the writer uses the rest, after OpenLog.
	spare  []byte // a buffer for the next queue
	files  files
	loaded bool // the folder was read
	recent window
	retry  time.Time // when the writer tries the disk again after a failure
}

// queue holds what waits for the writer.
type queue struct {
	impressions []byte // whole records
	count       int64  // number of impressions
	batches     []*batch
	bytes       int // size of the batches
}

// batch is the feedback of one call, which waits for the writer.
type batch struct {
	records []byte // whole records, one after the other
	ends    []int  // end offset of each record
	keys    []EventKey
	written chan result // buffered, so that the writer never waits
}

// result tells a caller of Feed whether its batch was written, and how many of its events were known.
type result struct {
	repeated int
	err      error
}

// OpenLog opens the log in dir, and makes the folder if it does not exist. It cuts off a record
// that a crash left incomplete. The error says why the folder cannot be used; the log is open all the
// same, refuses feedback, and tries again until the folder can be used.
func OpenLog(dir string, o LogOptions) (*Log, error) {
	l := &Log{
		dir: dir, o: o.withDefaults(), wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	l.recent = newWindow(l.o.Window)
	err := l.load()
	if err != nil {
		err = fmt.Errorf("events %s: %w", dir, err)
		l.fail(err)
	}
	go l.run()
	return l, err
}

// load reads the folder.
func (l *Log) load() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	f, newest, err := openFiles(l.o.Disk, l.dir)
	if err != nil {
		return err
	}
	if err := f.rememberEvents(&l.recent, newest); err != nil {
		return err
	}
	l.files, l.loaded = f, true
	l.noteFiles()
	return nil
}

// Show queues an impression. It reports false if the queue is full; the impression is then dropped.
func (l *Log) Show(m *Impression) bool {
	b, _ := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	r := appendImpression(record.Begin((*b)[:0]), m)
	*b = r
	record.Finish(r, recordImpression)
	l.mu.Lock()
	q, most := &l.queue, l.o.queueBytes()
	if l.closed || len(q.impressions)+len(r) > most {
		l.stats.Dropped++
		l.mu.Unlock()
		return false
	}
	half := len(q.impressions) <= most/2
	q.impressions = append(q.impressions, r...)
	q.count++
	half = half && len(q.impressions) > most/2
	l.mu.Unlock()
	if half {
		l.signal()
	}
	return true
}

// buffers holds scratch space for records.
var buffers = sync.Pool{New: func() any { return new([]byte) }} //nolint:gochecknoglobals // it holds no state

// Feed appends feedback and returns once it is durable. repeated counts events that were known
// already. It returns ErrFull, ErrDisk, ErrClosed, or the context's error, after which the feedback
// may have been written or not; it is safe to send it again.
func (l *Log) Feed(ctx context.Context, all []Feedback) (repeated int, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	b := &batch{written: make(chan result, 1), ends: make([]int, len(all)), keys: make([]EventKey, len(all))}
	for i := range all {
		at := len(b.records)
		b.records = appendFeedback(record.Begin(b.records), &all[i])
		record.Finish(b.records[at:], recordFeedback)
		b.ends[i], b.keys[i] = len(b.records), all[i].Key()
	}
	if err := l.enqueue(b); err != nil {
		return 0, err
	}
	l.signal()
	select {
	case r := <-b.written:
		return r.repeated, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (l *Log) enqueue(b *batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.o.queueBytes()
	switch {
	case l.closed:
		return ErrClosed
	case l.stats.Failed != nil:
		return l.stats.Failed
	case l.queue.bytes+len(b.records) > most:
		return fmt.Errorf("%w: %d bytes wait and %d come, at most %d; send smaller batches, or later", ErrFull, l.queue.bytes, len(b.records), most)
	}
	l.queue.batches, l.queue.bytes = append(l.queue.batches, b), l.queue.bytes+len(b.records)
	return nil
}

// signal wakes the writer.
func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the writer.
func (l *Log) run() {
	defer close(l.ended)
	flush := time.NewTicker(l.o.Flush)
	defer flush.Stop()
	for {
		select {
		case <-l.wake:
		case <-flush.C:
		case <-l.stop:
			l.commit()
			return
		}
		l.commit()
	}
}

// commit writes the queued impressions and feedback, and tells the callers of Feed.
func (l *Log) commit() {
	l.mu.Lock()
	q := l.queue
	l.queue = queue{impressions: l.spare[:0]}
	l.mu.Unlock()
	l.spare = q.impressions
	var fresh []EventKey
	repeated := make([]int, len(q.batches))
	b := q.impressions
	if len(q.batches) > 0 {
		fresh, b = l.addFeedback(b, q.batches, repeated)
		l.spare = b
	}
	err := l.write(b)
	if err == nil {
		l.recent.add(fresh)
	} else {
		l.fail(err)
	}
	l.finish(q, repeated, int64(len(fresh)), err)
}

// addFeedback appends to b the events of the batches that were not written before. For each batch
// it counts the events that were.
func (l *Log) addFeedback(b []byte, batches []*batch, repeated []int) (fresh []EventKey, out []byte) {
	inCommit := map[EventKey]bool{}
	for n, of := range batches {
		from := 0
		for i, end := range of.ends {
			key := of.keys[i]
			if inCommit[key] || l.recent.has(key) {
				repeated[n]++
			} else {
				inCommit[key] = true
				fresh, b = append(fresh, key), append(b, of.records[from:end]...)
			}
			from = end
		}
	}
	return fresh, b
}

// write appends records durably. Before that it begins a new file and deletes old ones, if either
// is due.
func (l *Log) write(b []byte) error {
	now := l.o.Now()
	if now.Before(l.retry) {
		if len(b) == 0 {
			return nil
		}
		return l.failure()
	}
	if !l.loaded {
		if err := l.load(); err != nil {
			return err
		}
	}
	if len(b) > 0 || l.failure() != nil { // a new file shows that the disk works again
		if l.files.isFull(now, l.o) {
			if err := l.files.begin(now); err != nil {
				return err
			}
		}
		if err := l.files.write(b, now); err != nil {
			return err
		}
		l.setFailure(nil)
	}
	err := l.files.prune(now, l.o)
	l.noteFiles()
	return err
}

func (l *Log) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats.Failed
}

func (l *Log) setFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Failed = err
}

// fail notes a failure of the disk. Nothing is tried again before retryAfter.
func (l *Log) fail(err error) {
	if errors.Is(err, ErrDisk) {
		return // it was noted before
	}
	l.setFailure(fmt.Errorf("%w: %w", ErrDisk, err))
	l.retry = l.o.Now().Add(retryAfter)
}

// noteFiles copies what is known of the files to where other goroutines read it.
func (l *Log) noteFiles() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Bytes, l.stats.Segments = l.files.size(), len(l.files.segments)
	l.horizon = l.files.horizon()
}

// finish adds a commit to the statistics, and tells the callers of Feed its result.
func (l *Log) finish(q queue, repeated []int, written int64, err error) {
	l.mu.Lock()
	if err != nil {
		err = l.stats.Failed
		l.stats.Dropped += q.count
	} else {
		l.stats.Impressions += q.count
		l.stats.Feedback += written
		for _, n := range repeated {
			l.stats.Repeated += int64(n)
		}
	}
	l.mu.Unlock()
	for n, b := range q.batches {
		b.written <- result{repeated[n], err}
	}
}

// Stats returns the counts since OpenLog.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Keeps returns ErrExpired if the impression of an answer of that time has been deleted.
func (l *Log) Keeps(answered time.Time) error {
	l.mu.Lock()
	horizon := l.horizon
	l.mu.Unlock()
	switch {
	case l.o.Now().Sub(answered) > l.o.Retention:
		return fmt.Errorf("%w: the answer is of %s, and events.retention is %s", ErrExpired, answered.UTC().Format(time.RFC3339), l.o.Retention)
	case answered.Before(horizon):
		return fmt.Errorf("%w: the answer is of %s, and events.size left room for what came after %s only", ErrExpired,
			answered.UTC().Format(time.RFC3339), horizon.UTC().Format(time.RFC3339))
	}
	return nil
}

// Close writes what is queued, and closes the files. A second Close does nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	close(l.stop)
	<-l.ended
	return l.files.close()
}

// EventKey is a hash that identifies an event.
type EventKey [16]byte

// Key hashes the answer and the id of the event, or, if it has none, its item and kind. An id counts
// within its answer, so that nobody can use up the ids of events on other people's answers.
func (f *Feedback) Key() (k EventKey) {
	var scratch [256]byte
	b := scratch[:0]
	if f.ID != "" {
		b = append(appendAnswer(append(b, 'i'), f.Answer), f.ID...)
	} else {
		b = appendText(appendID(appendAnswer(append(b, 'a'), f.Answer), f.Item), f.Kind)
	}
	sum := sha256.Sum256(b)
	copy(k[:], sum[:])
	return k
}

// window remembers the keys that were added last.
type window struct {
	most  int
	keys  map[EventKey]struct{}
	order []EventKey // a ring once it has most elements
	next  int        // the oldest key of a full ring
}

func newWindow(most int) window { return window{most: most, keys: map[EventKey]struct{}{}} }

func (w *window) has(k EventKey) bool {
	_, ok := w.keys[k]
	return ok
}

func (w *window) add(keys []EventKey) {
	for _, k := range keys {
		if w.has(k) {
			continue
		}
		w.keys[k] = struct{}{}
		if len(w.order) < w.most {
			w.order = append(w.order, k)
			continue
		}
		delete(w.keys, w.order[w.next])
		w.order[w.next] = k
		w.next = (w.next + 1) % w.most
	}
}
