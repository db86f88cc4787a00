package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/record"
)

const (
	suffix = ".events"
	// recordHead is the kind of a file's first record, the head, which identifies the format and
	// the time at which the file was begun.
	recordHead = 3
	headText   = "likeness events 1\n"
	headBytes  = record.HeaderSize + len(headText) + 8
)

// errVersion means that a file is no file of events, or one of another format version.
var errVersion = errors.New("it is not a file of events of this version of likeness")

// segment is one file.
type segment struct {
	number uint64
	path   string
	begun  time.Time
	ended  time.Time // no event of the file is later
	size   int64
}

// files holds the files of a log, oldest first. The last one is written to, if open is set.
type files struct {
	disk     disk.Disk
	dir      string
	segments []*segment
	open     disk.File
	next     uint64 // number of the next file
}

// listSegments returns the files of a folder, in order. A crash can leave a new file without a
// head: it has no events, and its begun is zero.
func listSegments(dir string) (all []*segment, err error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name(), suffix)
		n, err := strconv.ParseUint(base, 10, 64)
		if !ok || err != nil || segmentPath(dir, n) != filepath.Join(dir, e.Name()) {
			continue
		}
		s := &segment{number: n, path: segmentPath(dir, n)}
		if err := s.readHead(); errors.Is(err, fs.ErrNotExist) {
			continue // the sidecar has deleted it
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *segment) int { return int(int64(a.number - b.number)) })
	return all, nil
}

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", number, suffix))
}

func encodeHead(begun time.Time) []byte {
	return record.Append(nil, recordHead, binary.LittleEndian.AppendUint64([]byte(headText), uint64(begun.UnixMilli())))
}

// readHead reads the file's size, and from its head when it was begun. It may return errVersion.
func (s *segment) readHead() error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	head := make([]byte, headBytes)
	switch _, err := io.ReadFull(f, head); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	case err != nil:
		return err
	}
	r, _, err := record.Parse(head)
	if err != nil || r.Number != recordHead || len(r.Body) != len(headText)+8 || string(r.Body[:len(headText)]) != headText {
		return errVersion
	}
	s.begun = time.UnixMilli(int64(binary.LittleEndian.Uint64(r.Body[len(headText):])))
	return nil
}

// openFiles lists the files of a log. It cuts off an incomplete record at the end of the newest
// file, and returns the records of that file.
func openFiles(d disk.Disk, dir string) (f files, newest []record.Placed, err error) {
	f = files{disk: d, dir: dir, next: 1}
	if f.segments, err = listSegments(dir); err != nil || len(f.segments) == 0 {
		return f, nil, err
	}
	last := f.segments[len(f.segments)-1]
	f.next = last.number + 1
	if last.begun.IsZero() { // a crash interrupted its making
		f.segments = f.segments[:len(f.segments)-1]
		if err := d.Remove(last.path); err != nil || len(f.segments) == 0 {
			return f, nil, err
		}
		last = f.segments[len(f.segments)-1]
	}
	for i, following := range f.segments[1:] {
		f.segments[i].ended = following.begun
	}
	newest, err = last.cut(d)
	return f, newest, err
}

// cut removes the bytes behind the last record, and notes when the file ended. It returns the records.
func (s *segment) cut(d disk.Disk) ([]record.Placed, error) {
	b, err := os.ReadFile(s.path)
	if err != nil {
		return nil, err
	}
	c := record.ReadAll(b, 0)
	s.ended = s.begun
	for _, r := range c.Records {
		if at := timeOf(r.Record); at.After(s.ended) {
			s.ended = at
		}
	}
	end := c.End
	if end == int64(len(b)) {
		return c.Records, nil
	}
	f, err := d.OpenFile(s.path, os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = f.Truncate(end); err == nil {
		err = f.Sync()
	}
	s.size = end
	return c.Records, errors.Join(err, f.Close())
}

// rememberBytes is how much of the newest files is read at the start for ids of feedback.
const rememberBytes = 128 << 20

// rememberEvents adds the ids of the feedback in the newest files to a window. newest holds the records
// of the last file.
func (f *files) rememberEvents(w *window, newest []record.Placed) error {
	from, bytes := len(f.segments), int64(0)
	for from > 0 && bytes+f.segments[from-1].size <= rememberBytes {
		from--
		bytes += f.segments[from].size
	}
	for i := from; i < len(f.segments); i++ {
		records := newest
		if i < len(f.segments)-1 {
			b, err := os.ReadFile(f.segments[i].path)
			if err != nil {
				return err
			}
			records = record.ReadAll(b, 0).Records
		}
		var keys []EventKey
		for _, r := range records {
			if r.Number != recordFeedback {
				continue
			}
			if one, err := decodeFeedback(r.Body); err == nil {
				keys = append(keys, one.Key())
			}
		}
		w.add(keys)
	}
	return nil
}

// size returns the bytes of all files.
func (f *files) size() (bytes int64) {
	for _, s := range f.segments {
		bytes += s.size
	}
	return bytes
}

// horizon returns the time before which events were deleted: when the oldest file was begun. It is
// zero if no file was deleted.
func (f *files) horizon() time.Time {
	if len(f.segments) == 0 || f.segments[0].number <= 1 {
		return time.Time{}
	}
	return f.segments[0].begun
}

// isFull reports whether the next records belong into a new file.
func (f *files) isFull(now time.Time, o LogOptions) bool {
	if f.open == nil {
		return true
	}
	last := f.segments[len(f.segments)-1]
	return last.size >= o.Segment || now.Sub(last.begun) >= o.Age
}

// begin makes a durable file that has only a head, and closes the one before.
func (f *files) begin(now time.Time) error {
	s := &segment{number: f.next, path: segmentPath(f.dir, f.next), begun: now, ended: now}
	file, err := f.disk.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	head := encodeHead(now)
	if _, err = file.Write(head); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = f.disk.SyncDir(f.dir)
	}
	f.next++
	if err != nil {
		return errors.Join(fmt.Errorf("making %s: %w", s.path, err), file.Close(), f.disk.Remove(s.path))
	}
	s.size = int64(len(head))
	err = f.close()
	f.segments, f.open = append(f.segments, s), file
	return err
}

// write appends records to the last file, and syncs it. After an error the file is closed, and the
// bytes of the failed write are cut off if the disk permits it.
func (f *files) write(b []byte, now time.Time) error {
	s := f.segments[len(f.segments)-1]
	_, err := f.open.WriteAt(b, s.size)
	if err == nil {
		err = f.open.Sync()
	}
	if err == nil {
		s.size += int64(len(b))
		s.ended = now
		return nil
	}
	_ = f.open.Truncate(s.size)
	_ = f.close()
	return fmt.Errorf("writing %s: %w", s.path, err)
}

// prune deletes the oldest files until the next file fits the size limit, and files with only
// events beyond the retention.
func (f *files) prune(now time.Time, o LogOptions) error {
	for len(f.segments) > 0 {
		s := f.segments[0]
		tooMuch := len(f.segments) > 1 && f.size() > o.Size-o.Segment-int64(o.queueBytes())
		if !tooMuch && now.Sub(s.ended) <= o.Retention {
			return nil
		}
		if len(f.segments) == 1 {
			if err := f.close(); err != nil {
				return err
			}
		}
		if err := f.disk.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deleting %s: %w", s.path, err)
		}
		f.segments = f.segments[1:]
	}
	return nil
}

// close closes the file that is written to, if there is one.
func (f *files) close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}
