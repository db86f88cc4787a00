//go:build !unix

package mmap

import (
	"io"
	"os"
)

// mapFile reads the file into memory, for systems without mmap.
func mapFile(f *os.File, size int) (*Map, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, err
	}
	return &Map{Bytes: b}, nil
}

func forget([]byte) {}
