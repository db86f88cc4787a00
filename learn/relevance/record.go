package relevance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/likenessdb/likeness/plugin"
)

// A file of scores is a header followed by records. A record holds scores of one query
// from one answer of the ranker, all little-endian:
//
//	marker, length of the body (u32), checksum of length and body (u32, CRC-32C),
//	body: key of the query, then key and score of each item
//
// Records are independent: a damaged or truncated record loses only its own scores.
const (
	fileMagic   = "LKNSREL\n"
	fileVersion = 1
	keySize     = 16
	recordHead  = 4 + 4 + 4
	entrySize   = keySize + 4
	// maxEntries is the greatest number of scores in one record.
	maxEntries = 4096
	maxRecord  = recordHead + keySize + maxEntries*entrySize
	// maxHeader limits the length of a ranker's name and version.
	maxHeader = 1 << 16
)

// marker begins every record, so that the next record after damage can be found.
var marker = []byte{0xF7, 'R', 'L', 0xFD}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRecord = errors.New("no whole record")

// key is the first half of a SHA-256 over everything that a ranker reads of a query or
// an item.
type key [keySize]byte

// record holds some scores of one query.
type record struct {
	query key
	body  []byte // entries; shares memory with the input
}

func (r record) len() int { return len(r.body) / entrySize }

func (r record) entry(i int) (item key, score float32) {
	b := r.body[i*entrySize:]
	return key(b[:keySize]), math.Float32frombits(binary.LittleEndian.Uint32(b[keySize:]))
}

// header returns the start of a file: magic, version (u32), length of the ranker's
// name and version (u32), the name and version separated by a zero byte, and a
// checksum of all of these.
func header(d plugin.Description) ([]byte, error) {
	who := d.Name + "\x00" + d.Version
	if len(who) > maxHeader {
		return nil, fmt.Errorf("%w: name and version of the ranker have %d bytes, at most %d are allowed", ErrCache, len(who), maxHeader)
	}
	b := binary.LittleEndian.AppendUint32([]byte(fileMagic), fileVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(who)))
	b = append(b, who...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// appendRecord appends a record of at most maxEntries scores.
func appendRecord(b []byte, query key, items []key, scores []float32) []byte {
	at := len(b)
	b = append(b, marker...)
	b = binary.LittleEndian.AppendUint32(b, uint32(keySize+len(items)*entrySize))
	b = append(b, 0, 0, 0, 0) // room for the checksum
	b = append(b, query[:]...)
	for i, item := range items {
		b = append(b, item[:]...)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(scores[i]))
	}
	binary.LittleEndian.PutUint32(b[at+8:], checksum(b[at:]))
	return b
}

func checksum(r []byte) uint32 {
	return crc32.Update(crc32.Checksum(r[4:8], castagnoli), castagnoli, r[recordHead:])
}

// parseRecord parses the record at the start of b. It returns errRecord if there is no
// complete record.
func parseRecord(b []byte) (r record, length int, err error) {
	if len(b) < recordHead+keySize || !bytes.HasPrefix(b, marker) {
		return r, 0, errRecord
	}
	size := int64(binary.LittleEndian.Uint32(b[4:]))
	if size < keySize || (size-keySize)%entrySize != 0 || size > maxRecord-recordHead || size > int64(len(b)-recordHead) {
		return r, 0, errRecord
	}
	length = recordHead + int(size)
	if checksum(b[:length]) != binary.LittleEndian.Uint32(b[8:]) {
		return r, 0, errRecord
	}
	body := b[recordHead:length]
	return record{query: key(body[:keySize]), body: body[keySize:]}, length, nil
}

// scanRecords yields the records of a file between two offsets. end is the offset
// after the last record, and lost the number of bytes before end that belong to no
// record.
func scanRecords(r io.ReaderAt, from, size int64, yield func(record)) (end, lost int64, err error) {
	window := make([]byte, 16*maxRecord)
	end = from
	for at := from; at < size; {
		b := window[:min(int64(len(window)), size-at)]
		if _, err := r.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return end, lost, err
		}
		last := at+int64(len(b)) == size
		used := 0
		for used < len(b) && (last || len(b)-used >= maxRecord) {
			rec, n, err := parseRecord(b[used:])
			if err != nil {
				used = nextMarker(b, used+1)
				continue
			}
			lost += at + int64(used) - end
			yield(rec)
			used += n
			end = at + int64(used)
		}
		at += int64(used)
	}
	return end, lost, nil
}

// nextMarker returns the first offset from at on where a record can begin.
func nextMarker(b []byte, at int) int {
	if i := bytes.Index(b[at:], marker[:1]); i >= 0 {
		return at + i
	}
	return len(b)
}
