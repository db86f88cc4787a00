// Package mmap maps files into memory.
package mmap

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"github.com/likenessdb/likeness/rerank/internal/regular"
)

// Map is a file mapped read-only. Its bytes must not be written, nor be read after Close.
//
// The file must not be changed while it is mapped: reading a page that was truncated away
// kills the process. Replace a file by renaming a new one over it (package atomicfile).
type Map struct {
	Bytes []byte
	unmap func([]byte) error
}

// Open maps a whole file. The Map of an empty file has no bytes.
func Open(path string) (*Map, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch {
	case size == 0:
		return &Map{}, nil
	case size > math.MaxInt:
		return nil, fmt.Errorf("%s has %d bytes, more than this machine can address", path, size)
	}
	return mapFile(f, int(size))
}

// Close unmaps the file. A second Close does nothing.
func (m *Map) Close() error {
	b := m.Bytes
	if m.Bytes = nil; b == nil || m.unmap == nil {
		return nil
	}
	return m.unmap(b)
}

// Forget gives the pages that lie wholly within the bytes [from, to) back to the system. They are read
// from the file again when they are next used.
func (m *Map) Forget(from, to int64) {
	page := int64(os.Getpagesize())
	from, to = (from+page-1)/page*page, to/page*page
	if m.unmap != nil && from < to {
		forget(m.Bytes[from:to])
	}
}

// ForgetAll gives all pages back to the system, as Forget does.
func (m *Map) ForgetAll() { m.Forget(0, int64(len(m.Bytes))) }

// number lists the types to which View can reinterpret bytes.
type number interface {
	~int32 | ~uint32 | ~int64 | ~uint64 | ~float32
}

// View reinterprets little-endian bytes as numbers without copying them. It reports false
// if the machine is big-endian or the bytes are not aligned to the size of a number.
func View[T number](b []byte) ([]T, bool) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if len(b) < size {
		return nil, len(b) == 0
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if !littleEndian() || uintptr(p)%uintptr(size) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), len(b)/size), true
}

// AsBytes reinterprets numbers as the bytes that they occupy in memory. It reports false if
// the machine is big-endian.
func AsBytes[T number](v []T) ([]byte, bool) {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero))), littleEndian()
}

func littleEndian() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}
