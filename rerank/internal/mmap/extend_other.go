//go:build !unix

package mmap

import (
	"fmt"
	"os"
)

// extend reads the bytes into memory, for systems without mmap.
func extend(f *os.File, offset int64, length, room int) (*Extended, error) {
	e := &Extended{Bytes: make([]byte, length+room)}
	if _, err := f.ReadAt(e.Bytes[:length], offset); err != nil && length > 0 {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return e, nil
}
