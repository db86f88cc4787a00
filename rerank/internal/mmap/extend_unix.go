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
// over the beginning, from the page on in which offset lies. It aligns the two so that large
// pages of the file fall on large pages of memory.
func extend(f *os.File, offset int64, length, room int) (*Extended, error) {
	page := os.Getpagesize()
	skip := int(offset % int64(page)) // bytes of the first page in front of offset
	whole := (skip+length+room+2*page-1)/page*page + largepages.Size
	start, err := unix.MmapPtr(-1, 0, nil, uintptr(whole), readWrite, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %s with room for %d bytes: %w", f.Name(), room, err)
	}
	base := unsafe.Add(start, (uintptr(offset-int64(skip))-uintptr(start))%largepages.Size/uintptr(page)*uintptr(page))
	e := &Extended{
		Bytes: unsafe.Slice((*byte)(unsafe.Add(base, skip)), length+room),
		unmap: func() error { return unix.MunmapPtr(start, uintptr(whole)) },
	}
	if length == 0 {
		return e, nil
	}
	if _, err = unix.MmapPtr(int(f.Fd()), offset-int64(skip), base, uintptr(skip+length), readWrite, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		_ = e.Close()
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	largepages.Advise(unsafe.Slice((*byte)(base), skip+length+room))
	end := (skip+length+page-1)/page*page - skip // of the last page
	clear(e.Bytes[length:min(end, length+room)]) // clear the file's content after the mapped part
	return e, nil
}
