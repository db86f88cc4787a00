//go:build cuda

package cuda

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"
)

// number is what kernels read and write.
type number interface{ uint32 | float32 | uint64 }

func bytesOf[T number](v []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero)))
}

// block is memory of the device.
type block struct {
	at    cu.DevicePtr
	bytes int64
}

func newBlock(what string, bytes int64) (block, error) {
	if bytes == 0 {
		return block{}, nil
	}
	at, err := cu.MemAlloc(bytes)
	if err != nil {
		return block{}, judged("allocating "+what, err)
	}
	return block{at, bytes}, nil
}

func (b *block) free() error {
	if b.bytes == 0 {
		return nil
	}
	at := b.at
	*b = block{}
	return judged("freeing memory", cu.MemFree(at))
}

// grow makes it no smaller than some bytes; what it held is gone.
func (b *block) grow(what string, bytes int64) error {
	if bytes <= b.bytes {
		return nil
	}
	size := int64(1 << 16)
	for size < bytes {
		size *= 2
	}
	if err := b.free(); err != nil {
		return err
	}
	next, err := newBlock(what, size)
	if err == nil {
		*b = next
	}
	return err
}

// uploaded is a block with numbers in it.
func uploaded[T number](what string, v []T) (block, error) {
	raw := bytesOf(v)
	b, err := newBlock(what, int64(len(raw)))
	if err != nil || len(raw) == 0 {
		return b, err
	}
	if err := b.write(what, raw); err != nil {
		return b, errors.Join(err, b.free())
	}
	return b, nil
}

// write puts bytes, one at least, at the begin of a block, and waits until they are
// there: the copy returns before that where the bytes are not pinned, and a stream that
// blocks on no other one would read what was there before.
func (b *block) write(what string, raw []byte) error {
	err := cu.MemcpyHtoD(b.at, unsafe.Pointer(&raw[0]), int64(len(raw)))
	if err == nil {
		err = cu.Synchronize()
	}
	return judged("writing "+what, err)
}

// arena collects what a launch needs in pinned memory and brings it to the device in
// one copy.
type arena struct {
	host []byte
	on   block
	used int
}

// align is where every array of an arena begins.
const align = 256

func aligned(n int) int { return (n + align - 1) / align * align }

// reset makes room for some bytes, each array's aligned.
func (a *arena) reset(bytes int) error {
	a.used = 0
	if bytes > len(a.host) {
		if err := judged("freeing pinned memory", freePinned(a.host)); err != nil {
			return err
		}
		a.host = nil
		size := 1 << 16
		for size < bytes {
			size *= 2
		}
		var err error
		if a.host, err = newPinned(size); err != nil {
			return judged("allocating pinned memory", err)
		}
	}
	return a.on.grow("the queries of a launch", int64(bytes))
}

// put copies an array in and returns its address on the device; 0 for an empty one.
func put[T number](a *arena, v []T) uint64 {
	if len(v) == 0 {
		return 0
	}
	at := a.used
	a.used += aligned(copy(a.host[at:], bytesOf(v)))
	return uint64(a.on.at) + uint64(at)
}

// send copies all of it to the device, behind what the stream does.
func (a *arena) send(s cu.Stream) error {
	if a.used == 0 {
		return nil
	}
	return judged("sending queries", cu.MemcpyHtoDAsync(a.on.at, unsafe.Pointer(&a.host[0]), int64(a.used), s))
}

// staging is an arena for rows on their way; it is used again once the device has read it.
type staging struct {
	arena
	read cu.Event // recorded behind the last use
	used bool
}

// next is the staging memory whose turn it is: while the device reads one, the other is filled.
func (m *Machine) next() (*staging, error) {
	s := &m.staging[m.staged%len(m.staging)]
	m.staged++
	if !s.used {
		return s, nil
	}
	return s, judged("waiting for rows", s.read.Synchronize())
}

// sent ends a use.
func (s *staging) sent(stream cu.Stream) error {
	s.used = true
	return judged("sending rows", s.read.Record(stream))
}

func (a *arena) free() error { return errors.Join(freePinned(a.host), a.on.free()) }

// inbox is pinned memory for what the device answers.
type inbox struct{ host []byte }

// room returns some bytes of it.
func (b *inbox) room(bytes int) ([]byte, error) {
	if bytes > len(b.host) {
		if err := judged("freeing pinned memory", freePinned(b.host)); err != nil {
			return nil, err
		}
		b.host = nil
		var err error
		if b.host, err = newPinned(max(bytes, 1<<16)); err != nil {
			return nil, judged("allocating pinned memory", err)
		}
	}
	return b.host[:bytes], nil
}

// numbersOf looks at bytes of the device as numbers; they begin aligned.
func numbersOf[T number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
