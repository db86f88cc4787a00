//go:build cuda

package cuda

import (
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
)

// Details queries the driver. What the driver does not tell is 0.
func (m *Machine) Details() gpu.Details {
	const bus, cache = 37, 38 // CU_DEVICE_ATTRIBUTE_…
	attribute := func(a cu.DeviceAttribute) int {
		x, err := m.device.Attribute(a)
		if err != nil {
			return 0
		}
		return x
	}
	d := gpu.Details{
		ClockMHz: float64(attribute(cu.ClockRate)) / 1e3, MemoryClockMHz: float64(attribute(cu.MemoryClockRate)) / 1e3,
		BusBits: attribute(bus), CacheBytes: attribute(cache), SharedBytes: m.shared,
	}
	if text, err := os.ReadFile("/proc/driver/nvidia/version"); err == nil {
		d.Release = string(regexp.MustCompile(`\d+\.\d+(\.\d+)?`).Find(text))
	}
	return d
}

// Limits measures the limits of a device. It must be used on the goroutine of its Machine,
// and the caller must call Free.
type Limits struct {
	m                *Machine
	module           cu.Module
	out, clocks, all block
	from, to         cu.Event
}

// Limits prepares a measurement with the given amount of memory to read and copy, a
// multiple of 32 bytes.
func (m *Machine) Limits(bytes int64) (*Limits, error) {
	module, _, err := loadModule(kernels.LimitsPTX())
	if err != nil {
		return nil, judged("loading the kernels of limits", err)
	}
	l := &Limits{m: m, module: module}
	if err := l.prepare(bytes); err != nil {
		return nil, errors.Join(err, l.Free())
	}
	return l, nil
}

func (l *Limits) prepare(bytes int64) (err error) {
	how := kernels.LimitFMA.Launch(l.m.facts.Processors)
	if l.out, err = newBlock("sums", 4*int64(how.GridX)*int64(how.Block)); err != nil {
		return err
	}
	if l.clocks, err = newBlock("clocks", 8); err != nil {
		return err
	}
	if l.all, err = newBlock("memory to read", bytes); err != nil {
		return err
	}
	if err := l.fill(); err != nil {
		return err
	}
	if l.from, err = cu.MakeEvent(cu.DefaultEvent); err == nil {
		l.to, err = cu.MakeEvent(cu.DefaultEvent)
	}
	return judged("making an event", err)
}

// fill writes random numbers to the memory to read: zeros cost a device less power, so that
// its clock, and what it measures, would be higher than for data.
func (l *Limits) fill() error {
	random := make([]byte, min(l.all.bytes, 4<<20))
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random) // never fails
	if err := l.all.write("memory to read", random); err != nil {
		return err
	}
	for done := int64(len(random)); done < l.all.bytes; done *= 2 { // copies of what is there
		err := cu.MemcpyDtoDAsync(l.all.at+cu.DevicePtr(done), l.all.at, min(done, l.all.bytes-done), l.m.stream)
		if err != nil {
			return judged("writing memory to read", err)
		}
	}
	return judged("writing memory to read", l.m.stream.Synchronize())
}

// Free frees the memory, the events and the kernels of the measurement.
func (l *Limits) Free() error {
	var events error
	for _, e := range []*cu.Event{&l.from, &l.to} {
		if *e != (cu.Event{}) {
			events = errors.Join(events, judged("ending a clock", cu.DestroyEvent(e)))
		}
	}
	return errors.Join(events, l.out.free(), l.clocks.free(), l.all.free(), judged("unloading the kernels of limits", l.module.Unload()))
}

// Limit runs the kernel of a limit for `amount` rounds, or for LimitRead over `amount`
// bytes. It returns how long the device took and the clock cycles that one block counted.
func (l *Limits) Limit(limit kernels.Limit, amount int64) (took time.Duration, clocks uint64, err error) {
	how := limit.Launch(l.m.facts.Processors)
	fn, err := l.module.Function(how.Name)
	if err != nil {
		return 0, 0, judged("finding the kernel "+how.Name, err)
	}
	a := kernels.LimitArgs{Out: uint64(l.out.at), Clocks: uint64(l.clocks.at), First: uint64(amount), Second: limit.Factor()}
	if limit == kernels.LimitRead {
		a.First, a.Second = uint64(l.all.at), uint64(min(amount, l.all.bytes)/16)
	}
	values := a.List()
	pointers := make([]unsafe.Pointer, len(values))
	for i := range values {
		pointers[i] = unsafe.Pointer(&values[i])
	}
	took, err = l.timed(func() error {
		return judged("launching "+how.Name, fn.Launch(how.GridX, 1, 1, how.Block, 1, 1, 0, l.m.stream, pointers))
	})
	if err != nil {
		return 0, 0, err
	}
	err = judged("reading clocks", cu.MemcpyDtoH(unsafe.Pointer(&clocks), l.clocks.at, 8))
	return took, clocks, err
}

// Copy copies half of the memory to the other half, so that all of it is either read or
// written.
func (l *Limits) Copy() (time.Duration, error) {
	half := l.all.bytes / 2
	return l.timed(func() error {
		return judged("copying", cu.MemcpyDtoDAsync(l.all.at, l.all.at+cu.DevicePtr(half), half, l.m.stream))
	})
}

// timed returns how long the device took for the work that run enqueues.
func (l *Limits) timed(run func() error) (time.Duration, error) {
	if err := judged("starting a clock", l.from.Record(l.m.stream)); err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	if err := judged("stopping a clock", l.to.Record(l.m.stream)); err != nil {
		return 0, err
	}
	if err := judged("waiting for a kernel", l.m.stream.Synchronize()); err != nil {
		return 0, err
	}
	ms, err := l.from.Elapsed(l.to)
	return time.Duration(ms * float64(time.Millisecond)), judged("reading a clock", err)
}
