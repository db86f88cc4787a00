//go:build unix

package mmap

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/likenessdb/likeness/internal/largepages"
)

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// extend reserves address space for the file's bytes and the free space, then maps the file
// over the beginning. It aligns the two so that large pages of the file fall on large pages
// of memory.
func extend(f *os.File, offset int64, length, room int) (*Extended, error) {
	page := os.Getpagesize()
	whole := (length+room+2*page-1)/page*page + largepages.Size
	start, err := unix.MmapPtr(-1, 0, nil, uintptr(whole), readWrite, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %s with room for %d bytes: %w", f.Name(), room, err)
	}
	base := unsafe.Add(start, (uintptr(offset)-uintptr(start))%largepages.Size/uintptr(page)*uintptr(page))
	e := &Extended{
		Bytes: unsafe.Slice((*byte)(base), length+room),
		unmap: func() error { return unix.MunmapPtr(start, uintptr(whole)) },
	}
	switch {
	case length == 0:
		return e, nil
	case offset%int64(page) != 0: // the machine has larger pages
		_, err = f.ReadAt(e.Bytes[:length], offset)
	default:
		_, err = unix.MmapPtr(int(f.Fd()), offset, base, uintptr(length), readWrite, unix.MAP_PRIVATE|unix.MAP_FIXED)
	}
	if err != nil {
		_ = e.Close()
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	largepages.Advise(e.Bytes)
	clear(e.Bytes[length:min((length+page-1)/page*page, length+room)]) // clear the file's content after the mapped part
	return e, nil
}
