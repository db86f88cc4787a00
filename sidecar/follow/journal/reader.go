package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/record"
)

// Reader follows the shared journal of another process. It opens its files at every call, so
// that a network file system with close-to-open consistency shows what the other process
// synced before. It writes nothing. One goroutine uses it at a time.
type Reader struct {
	dir     string
	mark    string // the content of the mark; empty before the first read
	segment uint64 // the number of the segment to read on in
	offset  int64  // how much of the segment was read; 0 if nothing was
	last    uint64 // the number of the last write that was read
}

// NewReader returns a reader of the journal in dir.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Event is a write that was added to a journal or, if Done, a write that its process has followed:
// reads of the database show it.
type Event struct {
	Entry
	Done bool
}

// Read returns what came into the journal since the last call, in order. lost says that
// writes may be missing among the events of all calls so far: the caller has to compare all
// rows. A write may come twice.
//
// With ErrInterrupted the process sends writes to the database that are in no journal. With
// ErrIncomplete the journal has more that cannot be read, or not yet. With these errors, or
// another, the journal may have writes that no call has returned.
func (r *Reader) Read() (events []Event, lost bool, err error) {
	mark, err := readMark(r.dir)
	if err != nil {
		return nil, false, err
	}
	if mark == r.mark {
		events, lost, err = r.follow()
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
			return events, lost, err
		}
	}
	events, isWhole, err := r.readAll()
	if err != nil && !errors.Is(err, ErrIncomplete) {
		r.mark = "" // the next call begins again at the oldest segment
		return nil, true, err
	}
	lost = !isWhole || r.mark != "" // the reader lost its place, or the mark was replaced
	r.mark = mark
	return events, lost, err
}

// IsHeld reports whether a process has the journal open.
func (r *Reader) IsHeld() (bool, error) { return filelock.IsHeld(filepath.Join(r.dir, lockName)) }

// Remove deletes the journal in dir, whose process is gone for good. It returns
// filelock.ErrHeld, and deletes nothing, if a process has the journal open. Files that are no
// journal's stay. Only one process at a time may call Remove for a folder.
func Remove(dir string) error {
	path := filepath.Join(dir, lockName)
	lock, err := filelock.Share(path) // not Take: other sidecars would believe that the process runs
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	numbers, err := listSegments(dir)
	if err != nil {
		return err
	}
	var files []string
	for _, n := range numbers {
		files = append(files, segmentPath(dir, n))
	}
	for _, file := range append(files, filepath.Join(dir, markName), path) { // the lock last: it keeps a new process out
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(dir)
}

// readAll reads all segments from the oldest on. isWhole says that the journal still holds every
// record that was ever written to it.
func (r *Reader) readAll() (events []Event, isWhole bool, err error) {
	numbers, err := listSegments(r.dir)
	if err != nil {
		return nil, false, err
	}
	if len(numbers) == 0 {
		return nil, false, fmt.Errorf("%w: %s has no segments", ErrIncomplete, r.dir)
	}
	isWhole, r.last = true, 0
	for _, n := range numbers[:len(numbers)-1] {
		r.segment, r.offset = n, 0
		some, lost, err := r.readOn()
		if err != nil && !slices.ContainsFunc([]error{fs.ErrNotExist, errTrailer, ErrIncomplete}, func(of error) bool { return errors.Is(err, of) }) {
			return nil, false, err
		}
		events, isWhole = append(events, some...), isWhole && errors.Is(err, errTrailer) && !lost
	}
	r.segment, r.offset = numbers[len(numbers)-1], 0
	some, lost, err := r.follow()
	return append(events, some...), isWhole && !lost, err
}

// follow reads on from the current position, segment by segment.
func (r *Reader) follow() (events []Event, lost bool, err error) {
	for {
		some, lostHere, err := r.readOn()
		events, lost = append(events, some...), lost || lostHere
		if !errors.Is(err, errTrailer) {
			return events, lost, err
		}
	}
}

// errTrailer says that a segment has ended, and that the next one follows.
var errTrailer = errors.New("the segment has ended")

// readOn reads the rest of a segment. It returns errTrailer at the segment's trailer, and
// ErrIncomplete if the segment goes on with bytes that are no record.
func (r *Reader) readOn() (events []Event, lost bool, err error) {
	b, err := r.readSegment()
	if err != nil || len(b) == 0 {
		return nil, false, err
	}
	at := 0
	if r.offset == 0 {
		at = min(segmentHeader, len(b))
		durable, err := parseHeader(b)
		if errors.Is(err, errVersion) {
			return nil, false, fmt.Errorf("%s: %w", r.dir, err)
		}
		lost = err != nil || durable > r.last
		r.last = max(r.last, durable)
	}
	c := record.ReadAll(b, at)
	r.offset += c.End
	events, failed := eventsOf(c.Records)
	for _, e := range events {
		r.last = max(r.last, e.Seq)
	}
	lost = lost || failed != nil || len(c.Damage) > 0
	if n := len(c.Records); n > 0 {
		if next, ok := nextSegment(c.Records[n-1].Record); ok {
			r.segment, r.offset = next, 0
			return events, lost, errTrailer
		}
	}
	if c.End < int64(len(b)) {
		err = fmt.Errorf("%w: %s at byte %d", ErrIncomplete, segmentPath(r.dir, r.segment), r.offset)
	}
	return events, lost, err
}

// readSegment returns the bytes of the segment that were not read yet. It returns ErrDamaged if the
// segment has become shorter.
func (r *Reader) readSegment() ([]byte, error) {
	path := segmentPath(r.dir, r.segment)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	is, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case is.Size() < r.offset:
		return nil, fmt.Errorf("%w: %s has %d bytes, and had %d", ErrDamaged, path, is.Size(), r.offset)
	case is.Size() == r.offset:
		return nil, nil
	}
	b := make([]byte, is.Size()-r.offset)
	if _, err = f.ReadAt(b, r.offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// eventsOf converts records to events. It leaves out trailers, and records that it cannot read; for
// these it returns an error.
func eventsOf(records []record.Placed) (events []Event, err error) {
	for _, p := range records {
		if p.Number == 0 {
			continue
		}
		e := Event{Entry: Entry{Seq: p.Number}, Done: len(p.Body) == 0}
		if !e.Done {
			var failed error
			if e.Write, failed = parseWrite(p.Record); failed != nil {
				err = fmt.Errorf("write %d: %w", p.Number, failed)
				continue
			}
		}
		events = append(events, e)
	}
	return events, err
}
