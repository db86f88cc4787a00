package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/internal/disk"
)

const suffix = ".journal"

// segment is one file of the journal.
type segment struct {
	number uint64
	path   string
	file   disk.File // nil if the segment is complete
	size   int64
	end    int64 // where the records end in a segment that an earlier process wrote; 0 means at size
	sealed bool  // it ends in a trailer
	live   int   // how many pending writes it holds
	needed int64 // their bytes
}

// segmentPath returns the path of a segment. Numbers have one length, so that names sort
// by number.
func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", number, suffix))
}

// listSegments returns the numbers of the segments in dir, in order.
func listSegments(dir string) ([]uint64, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name(), suffix)
		if n, err := strconv.ParseUint(base, 10, 64); ok && err == nil && segmentPath(dir, n) == filepath.Join(dir, e.Name()) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// createSegment makes a durable segment that has only a header.
func createSegment(d disk.Disk, dir string, number, durable uint64) (*segment, error) {
	s := &segment{number: number, path: segmentPath(dir, number)}
	f, err := d.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(encodeHeader(durable)); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making %s: %w", s.path, err), f.Close(), d.Remove(s.path))
	}
	s.file, s.size = f, segmentHeader
	return s, nil
}

// write appends records. After an error the caller has to call abandon.
func (s *segment) write(b []byte, sync bool) error {
	if len(b) == 0 {
		return nil
	}
	_, err := s.file.WriteAt(b, s.size)
	if err == nil && sync {
		err = s.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}
	s.size += int64(len(b))
	return nil
}

// seal ends a finished segment with a trailer, which names the segment where a Reader goes on. It
// cuts off an incomplete record first.
func (s *segment) seal(d disk.Disk, next uint64) (err error) {
	if s.sealed {
		return nil
	}
	f := s.file
	if f == nil {
		if f, err = d.OpenFile(s.path, os.O_RDWR, 0o600); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	end, trailer := s.size, encodeTrailer(next)
	if s.end > 0 {
		end = s.end
	}
	if err = f.Truncate(end); err == nil {
		_, err = f.WriteAt(trailer, end)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("sealing %s: %w", s.path, err)
	}
	s.size, s.end, s.sealed = end+int64(len(trailer)), 0, true
	return nil
}

// complete closes the file of a segment.
func (s *segment) complete() {
	_ = s.file.Close()
	s.file = nil
}

// abandon closes the file of a segment after an error. It tries to cut off the bytes of the failed
// write, whose callers were told of the error. If the segment then has no record, abandon removes
// the file. It reports whether the file is gone.
func (s *segment) abandon(d disk.Disk) (gone bool) {
	_ = s.file.Truncate(s.size)
	s.complete()
	return s.size == segmentHeader && d.Remove(s.path) == nil
}
