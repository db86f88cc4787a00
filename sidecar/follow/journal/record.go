package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

const (
	segmentMagic   = "LKNSJNL\n"
	segmentVersion = 1
	// segmentHeader is the size of a segment's header: magic, version (u32), the number of
	// the last write that was acknowledged before (u64), and the checksum of these (u32).
	segmentHeader = 8 + 4 + 8 + 4
	// recordHeader is the size of a record's header: marker and length of the body (u32
	// each), the write's number (u64), and the checksum of length, number and body (u32).
	recordHeader = 4 + 4 + 8 + 4
)

// marker begins a record. It is not valid UTF-8, so no body, which is JSON, contains it,
// and records behind a damaged one can be found.
var marker = []byte{0xF7, 'J', 'R', 0xFD}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errRecord  = errors.New("no complete record")
	errVersion = errors.New("another version of likeness wrote it")
)

func encodeHeader(durable uint64) []byte {
	b := append(make([]byte, 0, segmentHeader), segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, segmentVersion)
	b = binary.LittleEndian.AppendUint64(b, durable)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader reads a segment's header. It returns errRecord, or errVersion for a whole header of
// another version.
func parseHeader(b []byte) (durable uint64, err error) {
	const sum = segmentHeader - 4
	if len(b) < segmentHeader || string(b[:8]) != segmentMagic || crc32.Checksum(b[:sum], castagnoli) != binary.LittleEndian.Uint32(b[sum:]) {
		return 0, errRecord
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != segmentVersion {
		return 0, fmt.Errorf("%w: format version is %d, want %d", errVersion, v, segmentVersion)
	}
	return binary.LittleEndian.Uint64(b[12:]), nil
}

// record is a write with its number. A record without a body says that the write is done. A record
// with number 0 is a trailer: it ends a segment, and its body is the number of the next one.
type record struct {
	seq  uint64
	body []byte
}

// encodeTrailer returns the record that ends a segment.
func encodeTrailer(next uint64) []byte {
	b := appendRecord(nil, strconv.AppendUint(nil, next, 10))
	putSequence(b, 0)
	return b
}

// next returns the number of the next segment. ok is false if the record is no trailer.
func (r record) next() (number uint64, ok bool) {
	if r.seq != 0 {
		return 0, false
	}
	number, err := strconv.ParseUint(string(r.body), 10, 64)
	return number, err == nil
}

// appendRecord appends a record to b. putSequence fills in its number.
func appendRecord(b, body []byte) []byte {
	b = append(b, marker...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(append(b, make([]byte, 12)...), body...)
}

// putSequence completes a record with its number and its checksum.
func putSequence(r []byte, seq uint64) {
	binary.LittleEndian.PutUint64(r[8:], seq)
	binary.LittleEndian.PutUint32(r[16:], checksum(r))
}

func checksum(r []byte) uint32 {
	return crc32.Update(crc32.Checksum(r[4:16], castagnoli), castagnoli, r[recordHeader:])
}

// parseRecord reads the record at the beginning of b. It returns errRecord if b does not begin with
// a whole record. The record's body aliases b.
func parseRecord(b []byte) (r record, length int, err error) {
	if len(b) < recordHeader || !bytes.HasPrefix(b, marker) {
		return r, 0, errRecord
	}
	size := int64(binary.LittleEndian.Uint32(b[4:]))
	if size > int64(len(b)-recordHeader) {
		return r, 0, errRecord
	}
	length = recordHeader + int(size)
	if checksum(b[:length]) != binary.LittleEndian.Uint32(b[16:]) {
		return r, 0, errRecord
	}
	return record{binary.LittleEndian.Uint64(b[8:]), b[recordHeader:length]}, length, nil
}

// contents holds the records that could be read from a segment.
type contents struct {
	records []placedRecord
	damage  []int64 // offsets of bytes that are no record, with records after them
	end     int64   // the offset behind the last record
}

// placedRecord is a record with its offset in the segment and its bytes.
type placedRecord struct {
	record
	at  int64
	raw []byte
}

// readRecords reads the records of a segment from an offset on. It drops bytes at the end that are
// no record: either they were never acknowledged, or the header of the next segment reveals that a
// write is missing.
func readRecords(b []byte, at int) (c contents) {
	c.end = int64(at)
	for at < len(b) {
		r, n, err := parseRecord(b[at:])
		if err == nil {
			c.records = append(c.records, placedRecord{r, int64(at), b[at : at+n]})
			at += n
			c.end = int64(at)
			continue
		}
		next := findRecord(b, at+1)
		if next < 0 {
			return c
		}
		c.damage = append(c.damage, int64(at))
		at = next
	}
	return c
}

// findRecord returns the offset of the first record at or after at, or −1 without one.
func findRecord(b []byte, at int) int {
	for at < len(b) {
		i := bytes.Index(b[at:], marker)
		if i < 0 {
			return -1
		}
		if _, _, err := parseRecord(b[at+i:]); err == nil {
			return at + i
		}
		at += i + 1
	}
	return -1
}

// parseWrite reads the body of a record.
func (r record) parseWrite() (w Write, err error) {
	err = json.Unmarshal(r.body, &w)
	return w, err
}
