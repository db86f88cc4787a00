//go:build cuda

// Package cuda implements gpu.Machine on an NVIDIA device. It uses only the driver, through
// package cu, and package kernels. It needs the build tag cuda. Package cu exits if the
// process has no driver, so only cmd/likeness-gpu may import this package.
package cuda

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank/mol"
)

// Options of a Machine.
type Options struct {
	// Device is the number of the device.
	Device int
	// Scores limits the memory for the scores of one launch. The default is 256 MiB, and
	// never more than 1/32 of the free memory. Tables that need more are scanned in pieces.
	Scores int64
	// Clock enables time measurement of every Run: see Phases.
	Clock bool
}

const (
	maxBatch = kernels.DotQueries
	maxKeep  = 16384
)

// Machine is one device with a context. All calls must come from one thread.
type Machine struct {
	options   Options
	device    cu.Device
	facts     gpu.Facts
	major     int // compute capability
	minor     int
	shared    int // bytes of shared memory available to a block
	context   cu.CUContext
	module    cu.Module
	stream    cu.Stream
	functions map[string]*function

	queries arena
	staging [2]staging // rows on their way to the device, used alternately
	staged  int
	scores  block
	ranked  [2]block // output of top_k, used alternately
	stats   [2]block
	answers inbox
	largest block // counter of rows_pack
	clock   clock
}

var _ gpu.Machine = (*Machine)(nil)

type function struct {
	cu.Function
	shared int // bytes of dynamic shared memory that it may use
}

// Open creates a context on the calling thread, which must make all further calls. Errors
// name the device.
func Open(o Options) (_ *Machine, err error) {
	if o.Scores == 0 {
		o.Scores = 256 << 20
	}
	n, err := cu.NumDevices()
	if err == nil && o.Device >= n {
		err = fmt.Errorf("there are %d devices, the first is number 0", n)
	}
	if err != nil {
		return nil, fmt.Errorf("device %d: %w", o.Device, err)
	}
	dev, err := cu.GetDevice(o.Device)
	if err != nil {
		return nil, fmt.Errorf("device %d: %w", o.Device, err)
	}
	m := &Machine{options: o, device: dev, functions: map[string]*function{}, clock: clock{on: o.Clock}}
	if err := m.describe(dev); err != nil {
		return nil, fmt.Errorf("device %d: %w", o.Device, err)
	}
	if m.context, err = dev.MakeContext(cu.SchedSpin); err != nil {
		return nil, fmt.Errorf("device %d, %s: making a context: %w", o.Device, m.facts.Name, err)
	}
	if err := m.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("device %d, %s: %w", o.Device, m.facts.Name, err), m.context.Destroy())
	}
	return m, nil
}

func (m *Machine) describe(dev cu.Device) error {
	name, err := dev.Name()
	if err != nil {
		return err
	}
	const major, minor, sharedOptIn = 75, 76, 97 // CU_DEVICE_ATTRIBUTE_…
	facts, err := dev.Attributes(major, minor, cu.MultiprocessorCount, sharedOptIn)
	if err != nil {
		return err
	}
	version := cu.Version()
	m.major, m.minor, m.shared = facts[0], facts[1], facts[3]
	m.facts = gpu.Facts{
		Name: name, Driver: fmt.Sprintf("%d.%d", version/1000, version%1000/10), Processors: facts[2],
		Capability: fmt.Sprintf("%d.%d", facts[0], facts[1]), MaxBatch: maxBatch, MaxKeep: maxKeep,
	}
	if facts[0] < 8 {
		return fmt.Errorf("compute capability %s, want 8.0 or above", m.facts.Capability)
	}
	return nil
}

// prepare loads the kernels and allocates the fixed resources.
func (m *Machine) prepare() (err error) {
	if err := m.context.Lock(); err != nil { // binds the calling thread to this context
		return fmt.Errorf("making the context current: %w", err)
	}
	if m.facts.Memory, m.facts.Free, err = memory(); err != nil {
		return fmt.Errorf("asking for the memory: %w", err)
	}
	m.options.Scores = min(m.options.Scores, m.facts.Free/32) // half of the memory that is reserved for launches by default
	if err := m.loadKernels(); err != nil {
		return fmt.Errorf("loading the kernels, which need a driver of CUDA 12.0 or above and have %s: %w", m.facts.Driver, err)
	}
	const nonBlocking = 1
	if m.stream, err = cu.MakeStream(nonBlocking); err != nil {
		return fmt.Errorf("making a stream: %w", err)
	}
	if err := m.clock.start(); err != nil {
		return err
	}
	for i := range m.staging {
		if m.staging[i].read, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return fmt.Errorf("making an event: %w", err)
		}
	}
	m.largest, err = newBlock("a counter", 256)
	return err
}

// loadKernels loads the cubin for the device. If there is none or the driver refuses it, it
// loads the PTX, which takes the driver seconds to compile unless it has done so before.
func (m *Machine) loadKernels() (err error) {
	began := time.Now()
	defer func() { m.facts.LoadSeconds = time.Since(began).Seconds() }()
	m.facts.Kernels = "PTX"
	if architecture, image := kernels.Cubin(m.major, m.minor); image != "" {
		if m.module, m.facts.CompilerLog, err = loadModule(image); err == nil {
			m.facts.Kernels = architecture
			return nil
		}
		m.facts.Kernels = fmt.Sprintf("PTX, because the driver refused %s: %v", architecture, err)
	}
	m.module, m.facts.CompilerLog, err = loadModule(kernels.PTX())
	return err
}

// Facts implements gpu.Machine.
func (m *Machine) Facts() (gpu.Facts, error) { return m.facts, nil }

// Close implements gpu.Machine. Destroying the context frees everything allocated in it.
func (m *Machine) Close() error {
	return errors.Join(m.queries.free(), m.staging[0].free(), m.staging[1].free(), judged("freeing pinned memory", freePinned(m.answers.host)),
		judged("unloading the kernels", m.module.Unload()), judged("ending the context", m.context.Destroy()))
}

// launch enqueues a kernel in the stream.
func (m *Machine) launch(l kernels.Launch, a kernels.Arguments) error {
	f := m.functions[l.Name]
	if f == nil {
		fn, err := m.module.Function(l.Name)
		if err != nil {
			return judgedLaunch("finding the kernel "+l.Name, err)
		}
		f = &function{fn, 48 << 10}
		m.functions[l.Name] = f
	}
	if l.Shared > f.shared {
		if err := allowShared(f.Function, l.Shared); err != nil {
			return judgedLaunch(fmt.Sprintf("giving %s %d bytes of shared memory", l.Name, l.Shared), err)
		}
		f.shared = l.Shared
	}
	values := a.List()
	pointers := make([]unsafe.Pointer, len(values))
	for i := range values {
		pointers[i] = unsafe.Pointer(&values[i])
	}
	if err := f.Launch(l.GridX, l.GridY, 1, l.Block, 1, 1, l.Shared, m.stream, pointers); err != nil {
		what := fmt.Sprintf("launching %s in %d × %d blocks of %d threads with %d bytes of shared memory", l.Name, l.GridX, l.GridY, l.Block, l.Shared)
		return judgedLaunch(what, err)
	}
	return nil
}

// shapeOf returns the shape that selects the kernels of a MoL.
func shapeOf(n *mol.Network) kernels.Shape {
	return kernels.Shape{PairsQuery: n.PairsQuery, PairsItem: n.PairsItem, Dim: n.Dim, Hidden: n.First.Rows}
}

// silu returns 1 for a MoL whose gates are activated, otherwise 0.
func silu(n *mol.Network) uint64 {
	if n.Combination == mol.GLUSiLU {
		return 1
	}
	return 0
}

// tensor reports whether this device has tensor-core kernels for a network.
func (m *Machine) tensor(n *gpu.Network) bool {
	if n.InnerProduct() {
		return kernels.ScreenFits(m.shared)
	}
	return shapeOf(n.MoL).Tensor() && shapeOf(n.MoL).ScanQueries(m.shared) > 0
}

// ModelBytes implements gpu.Machine.
func (m *Machine) ModelBytes(n *gpu.Network) int64 {
	if n.InnerProduct() {
		return 0
	}
	bytes := 4 * int64(len(n.MoL.First.Data)+len(n.MoL.FirstBias)+len(n.MoL.Second.Data))
	if m.tensor(n) {
		bytes += int64(shapeOf(n.MoL).WeightsBytes())
	}
	return bytes
}

// TableBytes implements gpu.Machine.
func (m *Machine) TableBytes(n *gpu.Network, capacity int) int64 {
	return n.RowBytes(m.tensor(n)) * int64(capacity)
}

// network is a model in the device's memory.
type network struct {
	machine             *Machine
	of                  *gpu.Network
	tensor              bool
	first, bias, second block
	weights             block // weights in the format of the tensor-core kernels
}

// LoadModel implements gpu.Machine. It returns device.ErrRequest for a shape that no kernel
// supports on this device.
func (m *Machine) LoadModel(n *gpu.Network) (gpu.Model, error) {
	w := &network{machine: m, of: n, tensor: m.tensor(n)}
	if n.InnerProduct() {
		return w, nil
	}
	shape := shapeOf(n.MoL)
	if _, _, err := shape.ExactScan(1, 1, m.shared); err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrRequest, err)
	}
	err := m.upload(w)
	if err == nil && w.tensor {
		if w.weights, err = newBlock("weights", int64(shape.WeightsBytes())); err == nil {
			err = m.launch(shape.Weights(), kernels.WeightsArgs{
				First: uint64(w.first.at), Bias: uint64(w.bias.at), Second: uint64(w.second.at), Out: uint64(w.weights.at),
				PairsQuery: uint64(shape.PairsQuery), PairsItem: uint64(shape.PairsItem), Hidden: uint64(shape.Hidden), SiLU: silu(n.MoL),
			})
		}
		if err == nil {
			err = judged("packing weights", m.stream.Synchronize())
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.Free())
	}
	return w, nil
}

func (m *Machine) upload(w *network) (err error) {
	n := w.of.MoL
	if w.first, err = uploaded("weights", n.First.Data); err != nil {
		return err
	}
	if w.bias, err = uploaded("weights", n.FirstBias); err != nil {
		return err
	}
	w.second, err = uploaded("weights", n.Second.Data)
	return err
}

// Approximates implements gpu.Model.
func (w *network) Approximates() bool { return w.tensor }

// Free implements gpu.Model.
func (w *network) Free() error {
	return errors.Join(w.first.free(), w.bias.free(), w.second.free(), w.weights.free())
}
