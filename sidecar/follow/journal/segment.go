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
	file   disk.File // nil: it is not written any more
	size   int64
	live   int   // writes in it that are not done
	needed int64 // their bytes
}

// segmentPath has numbers of one length, so that names are in order.
func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", number, suffix))
}

// listSegments returns the numbers of the segments of dir, in order.
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

// createSegment makes a segment durably, with nothing but its header.
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

// write appends records. Behind an error the segment is to be given up.
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

// end ends the writing of a segment whose records are synced.
func (s *segment) end() {
	_ = s.file.Close()
	s.file = nil
}

// abandon ends the writing of a segment behind an error, and cuts off what lies
// behind its size if that can be done: it is no record, or one that nobody was
// told of. It reports whether nothing is left of the segment.
func (s *segment) abandon(d disk.Disk) (gone bool) {
	_ = s.file.Truncate(s.size)
	s.end()
	return s.size == segmentHeader && d.Remove(s.path) == nil
}
