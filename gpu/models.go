package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/gpu/bound"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
)

// loaded is a model whose weights are on the machine.
type loaded struct {
	*model.Model
	network   *Network
	bound     *bound.Network
	onMachine Model
	bytes     int64
	tables    int // number of its tables; the weights are freed after the last
	unloaded  bool
}

// packing returns how the kernels round the model's rows.
func (l *loaded) packing() rerank.Packing { return bound.Packing(l.network.MoL, l.network.Features) }

// NetworkOf returns the description of a model for a machine.
func NetworkOf(m *model.Model) *Network {
	n := &Network{Features: m.Spec().Features}
	if s, ok := m.Similarity.(*mol.Similarity); ok {
		network := s.Network()
		n.MoL = &network
	}
	return n
}

// LoadModel implements device.Device. It checks the model's kernels on made-up rows. A model
// that the machine refuses to score, or scores wrongly, is refused from then on.
func (d *Device) LoadModel(ctx context.Context, v device.Version, file []byte) error {
	m, err := device.ReadModel(v, file)
	if err != nil {
		return err
	}
	l := &loaded{Model: m, network: NetworkOf(m)}
	l.bound = bound.New(l.network.MoL)
	l.bytes = d.owner.sizes.ModelBytes(l.network)
	d.mu.Lock()
	err = d.reserveModel(v, l)
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("model %s: %w", v, err)
	}
	err = d.owner.do(ctx, func(machine Machine) (err error) {
		if l.onMachine, err = machine.LoadModel(l.network); err != nil {
			return err
		}
		if err = l.checkKnown(machine, d.facts.MaxBatch); err != nil {
			return errors.Join(err, l.onMachine.Free())
		}
		return nil
	})
	if errors.Is(err, ErrRefused) || errors.Is(err, errWrongScores) {
		err = d.refuse(v, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.models[v] != nil {
		d.free(l.onMachine)
		err = device.ErrLoaded
	}
	if err != nil {
		d.used -= l.bytes
		return fmt.Errorf("model %s: %w", v, asDeviceError(err))
	}
	d.models[v] = l
	return nil
}

// reserveModel reserves a model's memory. The caller holds mu.
func (d *Device) reserveModel(v device.Version, l *loaded) error {
	if d.models[v] != nil {
		return device.ErrLoaded
	}
	if err := d.refused[v]; err != nil {
		return err
	}
	return d.reserve(l.bytes)
}

// maxRefused limits the number of remembered refusals.
const maxRefused = 1000

// refuse unloads a model with its tables and remembers why the machine cannot score it. It
// returns the error of further attempts to load the model. Without this memory, the caller
// would load model and table again after each failure.
func (d *Device) refuse(v device.Version, cause error) error {
	err := fmt.Errorf("%w: the CPU scores this model until likeness-gpu is restarted: %w", device.ErrFailed, cause)
	d.options.Logger.Error("model refused", "model", v.String(), "error", cause)
	d.mu.Lock()
	if len(d.refused) >= maxRefused {
		clear(d.refused)
	}
	d.refused[v] = err
	var tables []device.Version
	for name, t := range d.tables {
		if t.modelVersion == v {
			tables = append(tables, name)
		}
	}
	d.mu.Unlock()
	d.unload([]device.Version{v}, tables)
	return err
}

// freer is a model or table on the machine.
type freer interface{ Free() error }

// free frees memory of the machine in the background, because earlier launches may still
// read it. If that fails, the next call reports the machine's error.
func (d *Device) free(what freer) {
	go func() {
		_ = d.owner.do(context.Background(), func(Machine) error { return what.Free() })
	}()
}

// Unload implements device.Device. Running calls can finish: Unload waits until the last of
// them has ended and its memory is freed.
func (d *Device) Unload(ctx context.Context, models, tables []device.Version) error {
	for _, t := range d.unload(models, tables) {
		select {
		case <-t.freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.owner.failed:
		}
	}
	return d.owner.err()
}

// unload removes models and tables from the device, and returns the removed tables.
func (d *Device) unload(models, tables []device.Version) (gone []*table) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range tables {
		if t := d.tables[v]; t != nil {
			delete(d.tables, v)
			t.drop()
			gone = append(gone, t)
		}
	}
	for _, v := range models {
		if m := d.models[v]; m != nil {
			delete(d.models, v)
			m.unloaded = true
			d.release(m)
		}
	}
	return gone
}

// release frees a model that is unloaded and has no table left. The caller holds mu.
func (d *Device) release(m *loaded) {
	if m.unloaded && m.tables == 0 {
		d.used -= m.bytes
		d.free(m.onMachine)
	}
}
