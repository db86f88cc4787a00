package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

const (
	logMagic   = "LKNSLOG\n"
	logVersion = 1
	// logHeader is the size of a log's header. Its fields are: magic, version and length of
	// a row (u32 each), generation (u64), lineage (16 bytes), and the checksum of all of
	// them (u32).
	logHeader = 64
	// recordAlign is the multiple of bytes at which records begin. A record's header has
	// the same size, so no header spans two disk sectors.
	recordAlign = 32
)

// The kinds of records.
const (
	recordUpsert = 1
	recordDelete = 2
)

// change is the content of a record: items that were written or deleted.
type change struct {
	sequence uint64
	ids      []rerank.ID
	// rows holds the feature rows of the items in float32. Item i owns rows
	// starts[i]:starts[i+1]. starts is nil if the items were deleted.
	rows   rerank.Matrix
	starts []int32
}

func (c *change) deletes() bool { return c.starts == nil }

// logIdentity identifies the table that a log continues.
type logIdentity struct {
	features   int
	generation uint64
	lineage    string // lineageSize bytes
}

const lineageSize = 16

func (l logIdentity) encode() []byte {
	b := append(make([]byte, 0, logHeader), logMagic...)
	b = binary.LittleEndian.AppendUint32(b, logVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.features))
	b = binary.LittleEndian.AppendUint64(b, l.generation)
	b = append(b, l.lineage[:lineageSize]...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:logHeader]
}

func parseLogHeader(b []byte) (l logIdentity, err error) {
	const sum = len(logMagic) + 16 + lineageSize
	if len(b) < logHeader || string(b[:len(logMagic)]) != logMagic {
		return l, errors.New("it does not begin with a log's magic")
	}
	if have := crc32.Checksum(b[:sum], castagnoli); have != binary.LittleEndian.Uint32(b[sum:]) {
		return l, errors.New("the checksum of its header is wrong")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != logVersion {
		return l, fmt.Errorf("format version is %d, want %d", v, logVersion)
	}
	l.features, l.generation = int(binary.LittleEndian.Uint32(b[12:])), binary.LittleEndian.Uint64(b[16:])
	l.lineage = string(b[24 : 24+lineageSize])
	return l, nil
}

// appendRecord appends a record: its header, its body, and zeros up to a multiple of
// recordAlign. The header holds kind and number of items (u32 each), length of the body and
// sequence number (u64 each), and the checksums of body and header (u32 each). For every
// item, the body holds the number of its rows and the length of its tagged id (varints),
// then that id. For an upsert, zeros up to a multiple of 4 bytes follow, and then all rows.
func appendRecord(b []byte, c change) []byte {
	start, kind := len(b), uint32(recordUpsert)
	if c.deletes() {
		kind = recordDelete
	}
	b = append(b, make([]byte, recordAlign)...)
	for i, id := range c.ids {
		rows := 0
		if !c.deletes() {
			rows = int(c.starts[i+1] - c.starts[i])
		}
		b = binary.AppendUvarint(b, uint64(rows))
		tagged := appendID(nil, id)
		b = append(binary.AppendUvarint(b, uint64(len(tagged))), tagged...)
	}
	if !c.deletes() {
		b = append(b, make([]byte, -(len(b)-start)&3)...)
		b = append(b, floatBytes(c.rows.Data)...)
	}
	body, h := b[start+recordAlign:], b[start:start+recordAlign]
	binary.LittleEndian.PutUint32(h, kind)
	binary.LittleEndian.PutUint32(h[4:], uint32(len(c.ids)))
	binary.LittleEndian.PutUint64(h[8:], uint64(len(body)))
	binary.LittleEndian.PutUint64(h[16:], c.sequence)
	binary.LittleEndian.PutUint32(h[24:], crc32.Checksum(body, castagnoli))
	binary.LittleEndian.PutUint32(h[28:], crc32.Checksum(h[:28], castagnoli))
	return append(b, make([]byte, -(len(b)-start)&(recordAlign-1))...)
}

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// errTorn: the log ends within a record, which was therefore never acknowledged.
var errTorn = errors.New("the last record is not whole")

// parseRecord decodes the record at the start of b and returns its length. It returns
// errTorn if b ends within the record, and another error if the record is damaged. The
// change aliases b.
func parseRecord(b []byte, features int) (c change, length int, err error) {
	if len(b) < recordAlign || zeros(b[:recordAlign]) {
		return c, 0, errTorn
	}
	h := b[:recordAlign]
	if crc32.Checksum(h[:28], castagnoli) != binary.LittleEndian.Uint32(h[28:]) {
		return c, 0, errors.New("the checksum of a record's header is wrong")
	}
	size := binary.LittleEndian.Uint64(h[8:])
	if size > uint64(len(b)-recordAlign) {
		return c, 0, errTorn
	}
	body := b[recordAlign : recordAlign+int(size)]
	length = min(recordAlign+(int(size)+recordAlign-1)/recordAlign*recordAlign, len(b))
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(h[24:]) {
		if zeros(b[length:]) {
			return c, 0, errTorn
		}
		return c, 0, errors.New("the checksum of a record is wrong, and others follow it")
	}
	c.sequence = binary.LittleEndian.Uint64(h[16:])
	return c, length, c.parse(binary.LittleEndian.Uint32(h), int(binary.LittleEndian.Uint32(h[4:])), body, features)
}

// parse decodes the body of a record.
func (c *change) parse(kind uint32, count int, body []byte, features int) error {
	if kind != recordUpsert && kind != recordDelete {
		return fmt.Errorf("a record has the kind %d", kind)
	}
	if count > len(body)/2 { // every item takes at least two bytes
		return fmt.Errorf("a record of %d bytes claims %d items", len(body), count)
	}
	c.ids = make([]rerank.ID, 0, count)
	if kind == recordUpsert {
		c.starts = append(make([]int32, 0, count+1), 0)
	}
	rest, rows := body, uint64(0)
	for i := range count {
		n, used := binary.Uvarint(rest)
		size, more := binary.Uvarint(rest[max(used, 0):])
		if used <= 0 || more <= 0 || size > uint64(len(rest)-used-more) || n > uint64(len(body)) {
			return fmt.Errorf("item %d of a record has %d rows and an id of %d bytes", i, n, size)
		}
		rest = rest[used+more:]
		id, err := parseID(string(rest[:size]))
		if err != nil {
			return fmt.Errorf("item %d of a record: %w", i, err)
		}
		rest = rest[size:]
		c.ids = append(c.ids, id)
		if kind == recordDelete {
			continue
		}
		if rows += n; n < 1 || rows > min(uint64(len(body)), MaxRows) {
			return fmt.Errorf("item %d of a record owns %d rows", i, n)
		}
		c.starts = append(c.starts, int32(rows))
	}
	return c.parseRows(body, rest, int(rows), features)
}

func (c *change) parseRows(body, rest []byte, rows, features int) error {
	if !c.deletes() {
		rest = rest[min(-(len(body)-len(rest))&3, len(rest)):]
	}
	if len(rest) != rows*features*4 {
		return fmt.Errorf("%d rows of %d numbers have %d bytes in a record", rows, features, len(rest))
	}
	c.rows = rerank.Matrix{Rows: rows, Cols: features, Data: numbers[float32](rest)}
	return nil
}

// segment is a log that is open for writing.
type segment struct {
	file   disk.File
	length int64
	buf    []byte
	failed error // set when a failed write could not be undone
	sync   bool
}

func logPath(path string, generation uint64) string {
	return path + ".log." + strconv.FormatUint(generation, 10)
}

// createLog creates an empty log and makes its name durable. The header becomes durable
// with the first record. A power failure before that can leave zeros, which readLog accepts
// as an empty log.
func createLog(d disk.Disk, path string, id logIdentity, sync bool) (*segment, error) {
	name := logPath(path, id.generation)
	if err := removeAll(d, name); err != nil {
		return nil, err
	}
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(id.encode()); err == nil {
		err = d.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", name, err), f.Close(), removeAll(d, name))
	}
	return &segment{file: f, length: logHeader, sync: sync}, nil
}

// append writes a record durably. If that fails, the log is restored, or, if that is
// impossible, rejects all further records.
func (s *segment) append(c change) error {
	if s.failed != nil {
		return s.failed
	}
	s.buf = appendRecord(s.buf[:0], c)
	_, err := s.file.WriteAt(s.buf, s.length)
	if err == nil && s.sync {
		err = s.file.Sync()
		s.failed = err // the state on disk is unknown
	}
	if err != nil {
		err = fmt.Errorf("writing %s: %w", s.file.Name(), err)
		if s.failed != nil || s.file.Truncate(s.length) != nil {
			s.failed = err
		}
		return err
	}
	s.length += int64(len(s.buf))
	return nil
}

// readLog applies every record of a log and returns the length of the complete records.
// Only the last log may end within a record. *sequence is the number of the last applied
// record, and is advanced.
func readLog(name string, id logIdentity, last bool, sequence *uint64, apply func(change) error) (length int64, err error) {
	file, err := mmap.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if last && (len(file.Bytes) < logHeader || zeros(file.Bytes[:logHeader])) {
		return 0, nil // its creation was interrupted
	}
	have, err := parseLogHeader(file.Bytes)
	if err == nil && have != id {
		err = fmt.Errorf("it continues %+v, not %+v", have, id)
	}
	rest := file.Bytes[min(logHeader, len(file.Bytes)):]
	for err == nil && len(rest) > 0 {
		var c change
		var n int
		if c, n, err = parseRecord(rest, id.features); err != nil {
			break
		}
		if c.sequence != *sequence+1 {
			err = fmt.Errorf("record %d follows record %d", c.sequence, *sequence)
			break
		}
		if err = apply(c); err == nil {
			*sequence, rest = c.sequence, rest[n:]
		}
	}
	if last && errors.Is(err, errTorn) {
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s at byte %d: %w; build the table again with `likeness index`", ErrTable, name, len(file.Bytes)-len(rest), err)
	}
	return int64(len(file.Bytes) - len(rest)), nil
}

// listLogs returns the generations of the logs beside path, in ascending order.
func listLogs(path string) ([]uint64, error) {
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, e := range names {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".log.")
		if n, err := strconv.ParseUint(suffix, 10, 64); ok && err == nil && suffix == strconv.FormatUint(n, 10) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}
