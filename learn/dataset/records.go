package dataset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
)

const (
	// maxRecord is the greatest length of a CSV record, in bytes.
	maxRecord = 1 << 20
	// maxColumns is the greatest number of CSV columns.
	maxColumns = 1000
	// readAhead is the number of bytes that encoding/csv may buffer beyond a record.
	readAhead = 4 << 10
)

var errRecord = errors.New("a record without an end")

// recordReader reads CSV records of at most maxRecord bytes. The limit matters because an
// unclosed quotation mark turns the rest of a file into one record.
type recordReader struct {
	*csv.Reader
	from *limitedReader
}

func newRecordReader(r io.Reader) recordReader {
	from := &limitedReader{r: r, end: maxRecord + readAhead}
	return recordReader{csv.NewReader(from), from}
}

// Read works like csv.Reader.Read, but limits the length of the record.
func (r recordReader) Read() ([]string, error) {
	begins := r.InputOffset()
	record, err := r.Reader.Read()
	if errors.Is(err, errRecord) {
		return nil, fmt.Errorf("the record at byte %d has more than %d bytes; is a quotation mark missing?", begins, maxRecord)
	}
	r.from.end = r.InputOffset() + maxRecord + readAhead
	return record, err
}

// limitedReader is a reader that stops at the offset end.
type limitedReader struct {
	r           io.Reader
	offset, end int64
}

func (s *limitedReader) Read(b []byte) (int, error) {
	if s.offset >= s.end {
		return 0, errRecord
	}
	n, err := s.r.Read(b[:min(int64(len(b)), s.end-s.offset)])
	s.offset += int64(n)
	return n, err
}

// readHeader reads the first record, which names the columns.
func (r recordReader) readHeader() ([]string, error) {
	names, err := r.Read()
	if err == nil && len(names) > maxColumns {
		return nil, fmt.Errorf("line 1 names %d columns, at most %d are allowed", len(names), maxColumns)
	}
	return names, err
}
