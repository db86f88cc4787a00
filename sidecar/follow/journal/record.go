package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	segmentMagic   = "LKNSJNL\n"
	segmentVersion = 1
	// segmentHeader is the size of a segment's header: magic, version (u32), the last
	// write that was acknowledged before (u64) and the checksum of all that (u32).
	segmentHeader = 8 + 4 + 8 + 4
	// recordHeader is the size of a record's header: marker, length of the body (u32
	// each), sequence number (u64) and the checksum of those two and the body (u32).
	recordHeader = 4 + 4 + 8 + 4
)

// marker begins a record. It is no UTF-8, so that no body, which is JSON, holds
// it, and records behind a damaged one can be found.
var marker = []byte{0xF7, 'J', 'R', 0xFD}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errRecord  = errors.New("no whole record")
	errVersion = errors.New("another version of likeness wrote it")
)

func encodeHeader(durable uint64) []byte {
	b := append(make([]byte, 0, segmentHeader), segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, segmentVersion)
	b = binary.LittleEndian.AppendUint64(b, durable)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader returns errRecord, or errVersion for a header that is whole.
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

// record is a write, or says that the write of that number is done: then it has
// no body.
type record struct {
	seq  uint64
	body []byte
}

// appendRecord leaves the number open, which putSequence fills in.
func appendRecord(b, body []byte) []byte {
	b = append(b, marker...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(append(b, make([]byte, 12)...), body...)
}

// putSequence completes one record.
func putSequence(r []byte, seq uint64) {
	binary.LittleEndian.PutUint64(r[8:], seq)
	binary.LittleEndian.PutUint32(r[16:], checksum(r))
}

func checksum(r []byte) uint32 {
	return crc32.Update(crc32.Checksum(r[4:16], castagnoli), castagnoli, r[recordHeader:])
}

// parseRecord reads the record that b begins with; it returns errRecord if there
// is none. Its body aliases b.
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

// contents is what is left of a segment.
type contents struct {
	records []placed
	damage  []int64 // offsets behind which bytes are no record, and records follow
}

// placed is a record and where it lies.
type placed struct {
	record
	at  int64
	raw []byte
}

// read reads the records of a segment from the offset on. What is no record at
// its end was never acknowledged, or the header of the next segment tells.
func read(b []byte, at int) (c contents) {
	for at < len(b) {
		r, n, err := parseRecord(b[at:])
		if err == nil {
			c.records = append(c.records, placed{r, int64(at), b[at : at+n]})
			at += n
			continue
		}
		next := seek(b, at+1)
		if next < 0 {
			return c
		}
		c.damage = append(c.damage, int64(at))
		at = next
	}
	return c
}

// seek finds the next record; it is negative if there is none.
func seek(b []byte, at int) int {
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

// write reads the body of a record.
func (r record) write() (w Write, err error) {
	err = json.Unmarshal(r.body, &w)
	return w, err
}
