// Package cpu implements device.Device in main memory, with the kernels of package rerank.
// It serves as a scorer on another machine, and as the reference for other devices.
package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
)

// Options are the optional parameters of a Device.
type Options struct {
	// Kernels compute the scores. nil means the fastest that the processor can run.
	Kernels *kernel.Set
	// Memory limits the bytes of all models and tables together. 0 means no limit.
	Memory int64
	// MaxK limits the rows of one answer. 0 means 65,536.
	MaxK int
	// Version is the program's version, for Describe.
	Version string
}

// Device scores in this process. It is safe for concurrent use: a call keeps reading the
// version that it names while others are loaded, patched and unloaded.
type Device struct {
	options Options

	mu     sync.Mutex
	models map[device.Version]*loaded
	tables map[device.Version]*table
	used   int64
}

// loaded is a model and the size of its file.
type loaded struct {
	*model.Model
	bytes int64
}

var _ device.Device = (*Device)(nil)

// New returns a device without models and tables.
func New(o Options) *Device {
	if o.MaxK == 0 {
		o.MaxK = 1 << 16
	}
	if o.Kernels == nil {
		o.Kernels = kernel.Best()
	}
	return &Device{options: o, models: map[device.Version]*loaded{}, tables: map[device.Version]*table{}}
}

// Describe implements device.Device.
func (d *Device) Describe(context.Context) (device.Description, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := device.Description{
		Name:    fmt.Sprintf("%d cores, kernels %s", runtime.GOMAXPROCS(0), d.options.Kernels.Name()),
		Version: d.options.Version, MaxK: d.options.MaxK,
		Kinds: []rerank.Kind{rerank.KindDot, rerank.KindBilinear, rerank.KindMoL, rerank.KindMaxSim, rerank.KindRBE},
	}
	if d.options.Memory > 0 {
		out.Memory, out.Free = d.options.Memory, max(0, d.options.Memory-d.used)
	}
	out.Models = device.Versions(d.models)
	out.Tables = device.Versions(d.tables)
	return out, nil
}

// LoadModel implements device.Device.
func (d *Device) LoadModel(_ context.Context, v device.Version, file []byte) error {
	m, err := device.ReadModel(v, file)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.models[v] != nil {
		return fmt.Errorf("%w: model %s", device.ErrLoaded, v)
	}
	if err := d.reserve(int64(len(file))); err != nil {
		return fmt.Errorf("model %s: %w", v, err)
	}
	d.models[v] = &loaded{m.WithKernels(d.options.Kernels), int64(len(file))}
	return nil
}

// reserve counts memory as used. The caller holds mu.
func (d *Device) reserve(bytes int64) error {
	if d.options.Memory > 0 && bytes > d.options.Memory-d.used {
		return fmt.Errorf("%w: it needs %d bytes and %d of %d are free", device.ErrMemory, bytes, max(0, d.options.Memory-d.used), d.options.Memory)
	}
	d.used += bytes
	return nil
}

func (d *Device) unreserve(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= bytes
}

// LoadTable implements device.Device.
func (d *Device) LoadTable(ctx context.Context, h device.TableHead, rows device.Rows) (err error) {
	m, err := d.admit(h)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.unreserve(size(h.Rows, h.Cols))
		}
	}()
	all, err := collect(ctx, h, rows)
	if err != nil {
		return fmt.Errorf("table %s: %w", h.Table, err)
	}
	t, err := newTable(h.Model, m, all)
	if err != nil {
		return fmt.Errorf("table %s: %w", h.Table, err)
	}
	return d.addTable(h.Table, t)
}

// admit checks the description of a table and reserves its memory.
func (d *Device) admit(h device.TableHead) (*model.Model, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.models[h.Model]
	switch {
	case d.tables[h.Table] != nil:
		return nil, fmt.Errorf("%w: table %s", device.ErrLoaded, h.Table)
	case m == nil:
		return nil, fmt.Errorf("%w: model %s of table %s", device.ErrNotLoaded, h.Model, h.Table)
	case h.Cols != m.Spec().Features:
		return nil, fmt.Errorf("%w: table %s has rows of %d numbers, model %s has feature rows of %d",
			device.ErrRequest, h.Table, h.Cols, h.Model, m.Spec().Features)
	}
	if err := d.reserve(size(h.Rows, h.Cols)); err != nil {
		return nil, fmt.Errorf("table %s: %w", h.Table, err)
	}
	return m.Model, nil
}

func size(rows, cols int) int64 { return 4 * int64(rows) * int64(cols) }

// collect reads rows into memory that grows as they arrive.
func collect(ctx context.Context, h device.TableHead, rows device.Rows) (rerank.Matrix, error) {
	const first = 16 << 20 // numbers allocated in advance, before any row has arrived
	all := make([]float32, 0, min(h.Rows*h.Cols, first))
	for chunk, err := range rows {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && len(all)+len(chunk) > h.Rows*h.Cols {
			err = fmt.Errorf("%w: more than %d rows", device.ErrRequest, h.Rows)
		}
		if err != nil {
			return rerank.Matrix{}, err
		}
		if need := len(all) + len(chunk); need > cap(all) {
			all = append(make([]float32, 0, min(max(2*cap(all), need), h.Rows*h.Cols)), all...)
		}
		all = append(all, chunk...)
	}
	if len(all) != h.Rows*h.Cols {
		return rerank.Matrix{}, fmt.Errorf("%w: %d numbers came of %d rows of %d", device.ErrRequest, len(all), h.Rows, h.Cols)
	}
	return rerank.Matrix{Rows: h.Rows, Cols: h.Cols, Data: all}, nil
}

func (d *Device) addTable(v device.Version, t *table) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables[v] != nil {
		return fmt.Errorf("%w: table %s", device.ErrLoaded, v)
	}
	d.tables[v] = t
	return nil
}

// PatchTable implements device.Device. Running calls finish on the old version.
func (d *Device) PatchTable(_ context.Context, p device.Patch) error {
	to := device.Version{Name: p.From.Name, Version: p.Version}
	d.mu.Lock()
	from := d.tables[p.From]
	taken := d.tables[to] != nil
	d.mu.Unlock()
	switch {
	case from == nil:
		return fmt.Errorf("%w: table %s", device.ErrNotLoaded, p.From)
	case taken:
		return fmt.Errorf("%w: table %s", device.ErrLoaded, to)
	}
	from.patching.Lock() // patches of one table run one after the other
	defer from.patching.Unlock()
	added, err := p.Added(from.rows.Rows, from.rows.Cols)
	if err != nil {
		return fmt.Errorf("table %s: %w", p.From, err)
	}
	d.mu.Lock()
	err = d.reserve(size(added, from.rows.Cols))
	d.mu.Unlock()
	if err == nil {
		err = d.replace(p.From, to, from, p, added)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", p.From, err)
	}
	return nil
}

// replace installs the patched table in place of the old version.
func (d *Device) replace(at, to device.Version, from *table, p device.Patch, added int) error {
	next, err := from.patched(p, added)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
	case d.tables[at] != from:
		err = fmt.Errorf("%w: it was changed meanwhile", device.ErrNotLoaded)
	case d.tables[to] != nil:
		err = fmt.Errorf("%w: table %s", device.ErrLoaded, to)
	}
	if err != nil {
		d.used -= size(added, from.rows.Cols)
		return err
	}
	delete(d.tables, at)
	d.tables[to] = next
	return nil
}

// Unload implements device.Device.
func (d *Device) Unload(_ context.Context, models, tables []device.Version) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range tables {
		if t := d.tables[v]; t != nil {
			d.used -= size(t.rows.Rows, t.rows.Cols)
			delete(d.tables, v)
		}
	}
	for _, v := range models {
		if m := d.models[v]; m != nil {
			d.used -= m.bytes
			delete(d.models, v)
		}
	}
	return nil
}

// find returns the table of an ask and its encoded query.
func (d *Device) find(a device.Ask) (*table, rerank.Encoded, error) {
	d.mu.Lock()
	m, t := d.models[a.Model], d.tables[a.Table]
	d.mu.Unlock()
	var of device.Version
	if t != nil {
		of = t.model
	}
	if err := a.Check(m != nil, t != nil, of, d.options.MaxK); err != nil {
		return nil, nil, err
	}
	enc, err := m.Encode(a.Query)
	if errors.Is(err, rerank.ErrQuery) {
		err = fmt.Errorf("%w: %w", device.ErrRequest, err)
	}
	return t, enc, err
}

// Rescore implements device.Device.
func (d *Device) Rescore(ctx context.Context, a device.Ask, rows []uint32) (device.Best, error) {
	t, enc, err := d.find(a)
	if err != nil {
		return device.Best{}, err
	}
	return t.rescore(ctx, enc, rows, a.K)
}

// Scan implements device.Device.
func (d *Device) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	t, enc, err := d.find(a)
	if err != nil {
		return device.Best{}, err
	}
	return t.scan(ctx, enc, bitmap, a.K)
}
