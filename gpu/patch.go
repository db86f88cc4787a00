package gpu

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
)

// PatchTable implements device.Device. Running calls finish on the old version. While the
// patch waits for them, neither version is available.
func (d *Device) PatchTable(ctx context.Context, p device.Patch) error {
	to := device.Version{Name: p.From.Name, Version: p.Version}
	from, err := d.patchable(p.From, to)
	if err != nil {
		return err
	}
	select {
	case <-from.patching:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { from.patching <- struct{}{} }()
	added, err := p.Added(from.rows, from.model.network.Features)
	if err != nil {
		return fmt.Errorf("table %s: %w", p.From, err)
	}
	next, err := from.successor(ctx, added)
	if err == nil {
		err = d.swap(ctx, p, to, from, next)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", p.From, withContextError(ctx, err))
	}
	return nil
}

func (d *Device) patchable(at, to device.Version) (*table, error) {
	if err := d.owner.err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	from := d.tables[at]
	switch {
	case from == nil:
		return nil, fmt.Errorf("%w: table %s", device.ErrNotLoaded, at)
	case d.tables[to] != nil:
		return nil, fmt.Errorf("%w: table %s", device.ErrLoaded, to)
	}
	return from, nil
}

// successor returns the successor of t before its patch. It shares t's memory if the new rows
// fit. Otherwise it gets new memory, to which the rows are copied.
func (t *table) successor(ctx context.Context, added int) (*table, error) {
	d := t.device
	next := &table{
		device: d, name: t.name, modelVersion: t.modelVersion, model: t.model, onMachine: t.onMachine, capacity: t.capacity, bytes: t.bytes, rows: t.rows + added,
		alive: t.alive, loss: rerank.NewLoss(t.model.packing()), overflow: t.overflow,
		patching: t.patching, rounding: t.rounding, unused: make(chan struct{}), freed: make(chan struct{}),
	}
	next.loss.Merge(t.loss)
	if next.rows <= t.capacity {
		return next, nil
	}
	next.capacity, next.onMachine = capacityOf(next.rows), nil
	next.bytes = d.owner.sizes.TableBytes(t.model.network, next.capacity)
	d.mu.Lock()
	err := d.reserve(next.bytes)
	if err == nil {
		t.model.tables++
	}
	d.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("to move it where it can grow: %w", err)
	}
	err = d.owner.do(ctx, func(m Machine) (err error) {
		if next.onMachine, err = m.NewTable(t.model.onMachine, next.capacity); err != nil {
			return err
		}
		return next.onMachine.CopyFrom(t.onMachine, t.rows)
	})
	if err != nil {
		next.drop()
		return nil, err
	}
	return next, nil
}

// swap removes the old version, waits for its calls, applies the patch, and installs the
// new version.
func (d *Device) swap(ctx context.Context, p device.Patch, to device.Version, from, next *table) error {
	shared := from.onMachine == next.onMachine
	d.mu.Lock()
	if d.tables[p.From] != from || d.tables[to] != nil && d.tables[to] != from {
		d.mu.Unlock()
		if !shared {
			next.drop()
		}
		return fmt.Errorf("%w: it was changed meanwhile", device.ErrNotLoaded)
	}
	delete(d.tables, p.From)
	from.mu.Lock()
	from.moved = shared
	from.mu.Unlock()
	d.mu.Unlock()
	from.drop()
	select {
	case <-from.unused:
	case <-d.owner.failed:
		return d.owner.err()
	}
	// The patch now completes even if the caller stops waiting: half a patch would match no
	// version.
	if err := next.patch(context.WithoutCancel(ctx), p, from.rows); err != nil {
		next.drop()
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tables[to] = next
	return nil
}

// patch applies a verified patch to a version that has `before` rows. If it fails, the
// table has no version left.
func (t *table) patch(ctx context.Context, p device.Patch, before int) error {
	last := make(map[uint32]int, len(p.Numbers)) // if a number occurs twice, the later row counts
	for i, row := range p.Numbers {
		last[row] = i
	}
	var numbers []uint32
	m := rerank.Matrix{Cols: p.Rows.Cols}
	for i, row := range p.Numbers {
		if last[row] == i {
			numbers = append(numbers, row)
			m.Data, m.Rows = append(m.Data, p.Rows.Row(i)...), m.Rows+1
		}
	}
	t.measureLoss(m)
	t.updateAlive(p, before)
	return t.device.owner.do(ctx, func(Machine) error {
		if len(numbers) > 0 {
			if err := t.onMachine.Patch(numbers, m); err != nil {
				return err
			}
		}
		return t.onMachine.Resize(t.rows, t.words)
	})
}

// updateAlive sets which rows a scan returns.
func (t *table) updateAlive(p device.Patch, before int) {
	if t.alive == nil && len(p.Removed) == 0 {
		return
	}
	if t.alive == nil {
		t.alive = scan.NewBitmap(0).Grown(0, t.rows)
	} else {
		t.alive = t.alive.Grown(before, t.rows)
	}
	for _, row := range p.Numbers {
		t.alive.Add(int32(row))
	}
	for _, row := range p.Removed {
		t.alive.Remove(int(row))
	}
	t.words = wordsOf(t.alive, t.rows)
}
