package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/likenessdb/likeness/internal/record"
)

const (
	segmentMagic   = "LKNSJNL\n"
	segmentVersion = 1
	// segmentHeader is the size of a segment's header: magic, version (u32), the number of
	// the last write that was acknowledged before (u64), and the checksum of these (u32).
	segmentHeader = 8 + 4 + 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errHeader  = errors.New("no header")
	errVersion = errors.New("another version of likeness wrote it")
)

func encodeHeader(durable uint64) []byte {
	b := append(make([]byte, 0, segmentHeader), segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, segmentVersion)
	b = binary.LittleEndian.AppendUint64(b, durable)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader reads a segment's header. It returns errHeader, or errVersion for a whole header of
// another version.
func parseHeader(b []byte) (durable uint64, err error) {
	const sum = segmentHeader - 4
	if len(b) < segmentHeader || string(b[:8]) != segmentMagic || crc32.Checksum(b[:sum], castagnoli) != binary.LittleEndian.Uint32(b[sum:]) {
		return 0, errHeader
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != segmentVersion {
		return 0, fmt.Errorf("%w: format version is %d, want %d", errVersion, v, segmentVersion)
	}
	return binary.LittleEndian.Uint64(b[12:]), nil
}

// The records of a segment have the numbers of their writes. A record without a body says that the
// write is done. A record with number 0 is a trailer: it ends a segment, and its body is the number
// of the next one.

// encodeTrailer returns the record that ends a segment.
func encodeTrailer(next uint64) []byte {
	return record.Append(nil, 0, strconv.AppendUint(nil, next, 10))
}

// nextSegment returns the number of the next segment. ok is false if the record is no trailer.
func nextSegment(r record.Record) (number uint64, ok bool) {
	if r.Number != 0 {
		return 0, false
	}
	number, err := strconv.ParseUint(string(r.Body), 10, 64)
	return number, err == nil
}

// parseWrite reads the body of a record.
func parseWrite(r record.Record) (w Write, err error) {
	err = json.Unmarshal(r.Body, &w)
	return w, err
}
