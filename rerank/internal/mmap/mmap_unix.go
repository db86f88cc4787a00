//go:build unix

package mmap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) (*Map, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	return &Map{Bytes: b, unmap: unix.Munmap}, nil
}

func forget(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
