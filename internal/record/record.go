// Package record frames the records of a log file: each has a number and a checksum, and
// records behind damaged bytes are found again.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// HeaderSize is the size of a record's header: marker and length of the body (u32 each), the
// record's number (u64), and the checksum of length, number and body (u32).
const HeaderSize = 4 + 4 + 8 + 4

// Marker begins a record. It is not valid UTF-8, so no body of text contains it, and the next
// record after a damaged one can be found.
const Marker = "\xF7JR\xFD"

// ErrIncomplete means that bytes do not begin with a whole record.
var ErrIncomplete = errors.New("no complete record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is a numbered body.
type Record struct {
	Number uint64
	Body   []byte
}

// Begin appends a header to b, behind which the caller appends the body. Finish completes the record.
func Begin(b []byte) []byte {
	return append(append(b, Marker...), make([]byte, HeaderSize-len(Marker))...)
}

// Finish completes the record r, a header and its body, with the length, a number and the checksum.
func Finish(r []byte, number uint64) {
	binary.LittleEndian.PutUint32(r[4:], uint32(len(r)-HeaderSize))
	binary.LittleEndian.PutUint64(r[8:], number)
	binary.LittleEndian.PutUint32(r[16:], checksum(r))
}

// Append appends a whole record to b.
func Append(b []byte, number uint64, body []byte) []byte {
	at := len(b)
	b = append(Begin(b), body...)
	Finish(b[at:], number)
	return b
}

func checksum(r []byte) uint32 {
	return crc32.Update(crc32.Checksum(r[4:16], castagnoli), castagnoli, r[HeaderSize:])
}

// Parse reads the record at the beginning of b, and returns its length with the header. It returns
// ErrIncomplete if b does not begin with a whole record. The record's body aliases b.
func Parse(b []byte) (r Record, length int, err error) {
	if len(b) < HeaderSize || string(b[:4]) != Marker {
		return r, 0, ErrIncomplete
	}
	size := int64(binary.LittleEndian.Uint32(b[4:]))
	if size > int64(len(b)-HeaderSize) {
		return r, 0, ErrIncomplete
	}
	length = HeaderSize + int(size)
	if checksum(b[:length]) != binary.LittleEndian.Uint32(b[16:]) {
		return r, 0, ErrIncomplete
	}
	return Record{binary.LittleEndian.Uint64(b[8:]), b[HeaderSize:length]}, length, nil
}

// Contents holds the records that could be read from a file.
type Contents struct {
	Records []Placed
	Damage  []int64 // offsets of bytes that are no record, with records after them
	End     int64   // the offset behind the last record
}

// Placed is a record with its offset in the file and its bytes.
type Placed struct {
	Record
	At  int64
	Raw []byte
}

// ReadAll reads the records of a file from an offset on. It drops bytes at the end that are no
// record: a crash can cut off the last one.
func ReadAll(b []byte, at int) (c Contents) {
	c.End = int64(at)
	for at < len(b) {
		r, n, err := Parse(b[at:])
		if err == nil {
			c.Records = append(c.Records, Placed{r, int64(at), b[at : at+n]})
			at += n
			c.End = int64(at)
			continue
		}
		next := find(b, at+1)
		if next < 0 {
			return c
		}
		c.Damage = append(c.Damage, int64(at))
		at = next
	}
	return c
}

// find returns the offset of the first record at or after at, or −1 without one.
func find(b []byte, at int) int {
	for at < len(b) {
		i := bytes.Index(b[at:], []byte(Marker))
		if i < 0 {
			return -1
		}
		if _, _, err := Parse(b[at+i:]); err == nil {
			return at + i
		}
		at += i + 1
	}
	return -1
}
