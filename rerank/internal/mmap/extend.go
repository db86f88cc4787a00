package mmap

import (
	"fmt"
	"os"
)

// Extended is part of a file in memory with room behind it, as one piece. Its
// bytes can be written, which changes the memory and not the file.
type Extended struct {
	Bytes []byte
	unmap func() error
}

// Extend maps the bytes [offset, offset+length) of a file and room bytes of zeros
// behind them. Pages that nobody wrote take no memory of their own. The file must
// not be changed while it is mapped; it can be closed.
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

// Close gives the memory back. A second Close does nothing.
func (e *Extended) Close() error {
	unmap := e.unmap
	if e.Bytes, e.unmap = nil, nil; unmap == nil {
		return nil
	}
	return unmap()
}
