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

// extend reserves memory for both and maps the file over its beginning: where a large page
// of the file begins, one of the memory does, so that it can be mapped at once.
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
	case offset%int64(page) != 0: // a machine with larger pages
		_, err = f.ReadAt(e.Bytes[:length], offset)
	default:
		_, err = unix.MmapPtr(int(f.Fd()), offset, base, uintptr(length), readWrite, unix.MAP_PRIVATE|unix.MAP_FIXED)
	}
	if err != nil {
		_ = e.Close()
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	largepages.Advise(e.Bytes)
	clear(e.Bytes[length:min((length+page-1)/page*page, length+room)]) // what follows in the file
	return e, nil
}
