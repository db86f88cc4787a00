package mmap

import (
	"fmt"
	"os"
)

// Extended is a mapped part of a file, followed in memory by free space. Writing to its
// bytes changes the memory, not the file.
type Extended struct {
	Bytes []byte
	unmap func() error
}

// Extend maps the bytes [offset, offset+length) of a file and `room` zero bytes after them.
// Pages that are never written take no memory of their own. The file may be closed, but
// must not be changed while it is mapped.
func Extend(f *os.File, offset int64, length, room int) (*Extended, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if offset < 0 || length < 0 || room < 0 || int64(length) > info.Size()-offset {
		return nil, fmt.Errorf("%s has %d bytes, not %d behind %d", f.Name(), info.Size(), length, offset)
	}
	return extend(f, offset, length, room)
}

// Close unmaps the memory. A second Close does nothing.
func (e *Extended) Close() error {
	unmap := e.unmap
	if e.Bytes, e.unmap = nil, nil; unmap == nil {
		return nil
	}
	return unmap()
}
