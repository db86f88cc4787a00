package dataset

import (
	"errors"
	"fmt"
	"math"
)

// compact walks bytes in Thrift's compact protocol, in which Parquet writes its footer
// and its page headers. It checks every length against the number of bytes left, so
// bytes that it has walked can be decoded without allocating memory for a false
// length.
type compact struct {
	data   []byte
	offset int
	depth  int
}

// Type codes of the compact protocol.
const (
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactI64    = 6
	compactDouble = 7
	compactBinary = 8
	compactList   = 9
	compactSet    = 10
	compactMap    = 11
	compactStruct = 12
)

var errShort = errors.New("it ends in the middle")

const (
	// maxDepth limits nesting, far above what Parquet needs.
	maxDepth = 32
	// maxStructs limits the number of structs, far above the columns and row groups of
	// any file. A struct can take one byte in the file and hundreds in memory.
	maxStructs = 1 << 15
)

func (c *compact) byte() (byte, error) {
	if c.offset >= len(c.data) {
		return 0, errShort
	}
	c.offset++
	return c.data[c.offset-1], nil
}

func (c *compact) varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := c.byte()
		if err != nil {
			return 0, err
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("a number is too long")
}

func (c *compact) zigzag() (int64, error) {
	v, err := c.varint()
	return int64(v>>1) ^ -int64(v&1), err
}

// length reads a length. It fails if the length exceeds the number of bytes left.
func (c *compact) length() (int, error) {
	n, err := c.varint()
	if err != nil {
		return 0, err
	}
	if n > uint64(len(c.data)-c.offset) {
		return 0, errShort
	}
	return int(n), nil
}

// walkFields walks a struct and calls visit for each field. visit either walks the field's
// value and returns true, or returns false to have the value skipped.
func (c *compact) walkFields(visit func(id int64, kind byte) (bool, error)) error {
	if c.depth++; c.depth > maxDepth {
		return errors.New("it nests too deeply")
	}
	defer func() { c.depth-- }()
	id := int64(0)
	seen := map[int64]bool{}
	for {
		head, err := c.byte()
		if err != nil {
			return err
		}
		if head == 0 {
			return nil
		}
		if delta := int64(head >> 4); delta > 0 {
			id += delta
		} else if id, err = c.zigzag(); err != nil {
			return err
		}
		if id < 0 || id > math.MaxInt16 || seen[id] {
			return fmt.Errorf("field %d is unknown or occurs twice", id)
		}
		seen[id] = true
		known := false
		if visit != nil {
			if known, err = visit(id, head&0x0f); err != nil {
				return err
			}
		}
		if known {
			continue
		}
		if err := c.skip(head & 0x0f); err != nil {
			return err
		}
	}
}

// skip walks past a value. A boolean field has no bytes to skip.
func (c *compact) skip(kind byte) error {
	var err error
	switch {
	case kind == compactTrue || kind == compactFalse:
	case kind == compactByte:
		_, err = c.byte()
	case kind > compactByte && kind <= compactI64:
		_, err = c.varint()
	case kind == compactDouble:
		err = c.advance(8)
	case kind == compactBinary:
		var n int
		if n, err = c.length(); err == nil {
			err = c.advance(n)
		}
	case kind == compactList || kind == compactSet:
		err = c.skipList()
	case kind == compactStruct:
		err = c.walkFields(nil)
	default: // Parquet has no maps
		err = fmt.Errorf("a value has type %d", kind)
	}
	return err
}

func (c *compact) advance(n int) error {
	if n > len(c.data)-c.offset {
		return errShort
	}
	c.offset += n
	return nil
}

func (c *compact) skipList() error {
	if c.depth++; c.depth > maxDepth {
		return errors.New("it nests too deeply")
	}
	defer func() { c.depth-- }()
	head, err := c.byte()
	if err != nil {
		return err
	}
	n, kind := int(head>>4), head&0x0f
	if n == 15 {
		if n, err = c.length(); err != nil {
			return err
		}
	}
	if n > len(c.data)-c.offset { // every element takes at least one byte
		return errShort
	}
	if kind == compactStruct && n > maxStructs {
		return fmt.Errorf("a list claims %d structures, at most %d are allowed", n, maxStructs)
	}
	for range n {
		if kind == compactTrue || kind == compactFalse {
			kind = compactByte
		}
		if err := c.skip(kind); err != nil {
			return err
		}
	}
	return nil
}
