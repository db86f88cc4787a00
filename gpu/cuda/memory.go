//go:build cuda

package cuda

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"
)

// number lists the number types that kernels read and write.
type number interface{ uint32 | float32 | uint64 }

func bytesOf[T number](v []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero)))
}

// block is an allocation in the device's memory.
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

// grow makes the block at least `bytes` large. Its content is lost.
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

// uploaded allocates a block and copies numbers to it.
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

// write copies at least one byte to the start of a block and waits for the copy. Without
// waiting, a copy from memory that is not pinned could return early, and a stream that does
// not synchronise with others would read the old content.
func (b *block) write(what string, raw []byte) error {
	err := cu.MemcpyHtoD(b.at, unsafe.Pointer(&raw[0]), int64(len(raw)))
	if err == nil {
		err = cu.Synchronize()
	}
	return judged("writing "+what, err)
}

// arena collects the inputs of a launch in pinned memory and sends them to the device in
// one copy.
type arena struct {
	host []byte
	on   block
	used int
}

// align is the alignment of every array in an arena.
const align = 256

func aligned(n int) int { return (n + align - 1) / align * align }

// reset empties the arena and makes room for `bytes` bytes, including the alignment of each
// array.
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

// room adds an array of n numbers for the caller to fill, and returns it with its address
// on the device, or nil and 0 if n is 0. Its content is undefined.
func room[T number](a *arena, n int) ([]T, uint64) {
	if n == 0 {
		return nil, 0
	}
	var zero T
	at, bytes := a.used, n*int(unsafe.Sizeof(zero))
	a.used += aligned(bytes)
	return numbersOf[T](a.host[at:][:bytes]), uint64(a.on.at) + uint64(at)
}

// put adds an array and returns its address on the device, or 0 for an empty array.
func put[T number](a *arena, v []T) uint64 {
	if len(v) == 0 {
		return 0
	}
	at := a.used
	a.used += aligned(copy(a.host[at:], bytesOf(v)))
	return uint64(a.on.at) + uint64(at)
}

// send enqueues the copy to the device.
func (a *arena) send(s cu.Stream) error {
	if a.used == 0 {
		return nil
	}
	return judged("sending queries", cu.MemcpyHtoDAsync(a.on.at, unsafe.Pointer(&a.host[0]), int64(a.used), s))
}

// staging is an arena for rows on their way to the device. It is reused once the device has
// read it.
type staging struct {
	arena
	read cu.Event // recorded after the last use
	used bool
}

// next returns the staging memory to fill next, while the device reads the other one.
func (m *Machine) next() (*staging, error) {
	s := &m.staging[m.staged%len(m.staging)]
	m.staged++
	if !s.used {
		return s, nil
	}
	return s, judged("waiting for rows", s.read.Synchronize())
}

// sent records the end of a use.
func (s *staging) sent(stream cu.Stream) error {
	s.used = true
	return judged("sending rows", s.read.Record(stream))
}

func (a *arena) free() error { return errors.Join(freePinned(a.host), a.on.free()) }

// inbox is pinned memory for the device's answers.
type inbox struct{ host []byte }

// room returns `bytes` bytes of the inbox.
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

// numbersOf reinterprets aligned bytes from the device as numbers.
func numbersOf[T number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
