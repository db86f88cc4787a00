package gpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	rows "github.com/likenessdb/likeness/rerank/table"
)

// table is one version of a table. Versions that arise by patches can share the memory on
// the machine.
type table struct {
	device       *Device
	name         string
	modelVersion device.Version
	model        *loaded
	onMachine    Table
	capacity     int
	bytes        int64
	rows         int
	alive        *scan.Bitmap // nil: all rows
	words        []uint32     // alive as a machine reads it; nil: all rows
	loss         rerank.Loss
	overflow     bool          // a finite number is too large for float16
	patching     chan struct{} // holds one token, which a patch takes
	seen         rowSet        // used by the owner
	*rounding

	mu      sync.Mutex
	users   int // number of running calls
	dropped bool
	moved   bool          // the memory now belongs to another version
	unused  chan struct{} // closed when the version is dropped and no call uses it
	freed   chan struct{} // closed when its memory is freed or belongs to another version
}

// rounding holds the experience of searches with Approximate and Bounded. All versions of a
// table share it.
type rounding struct {
	mostKept    int
	wantedPairs int          // pairs to measure; 0 disables measuring
	skipBounds  atomic.Int64 // number of next searches that skip the bounds

	mu    sync.Mutex
	count int
	worst float64
}

// canApproximate reports whether rows can be scored from float16.
func (t *table) canApproximate() bool { return t.model.onMachine.Approximates() && !t.overflow }

// capacityOf returns the number of rows to allocate, with spare room for added rows.
func capacityOf(rows int) int { return (rows + rows/16 + 1023) / 1024 * 1024 }

// LoadTable implements device.Device. Memory is only allocated after it was reserved.
func (d *Device) LoadTable(ctx context.Context, h device.TableHead, chunks device.Rows) error {
	t, err := d.admit(h)
	if err != nil {
		return fmt.Errorf("table %s: %w", h.Table, err)
	}
	err = d.owner.do(ctx, func(m Machine) (err error) {
		t.onMachine, err = m.NewTable(t.model.onMachine, t.capacity)
		return err
	})
	if err == nil {
		err = t.fill(ctx, h, chunks)
	}
	if err == nil {
		err = t.resize(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.tables[h.Table] != nil {
		err = device.ErrLoaded
	}
	if err != nil {
		t.drop()
		return fmt.Errorf("table %s: %w", h.Table, withContextError(ctx, err))
	}
	d.tables[h.Table] = t
	return nil
}

// admit checks the description of a table and reserves its memory.
func (d *Device) admit(h device.TableHead) (*table, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.models[h.Model]
	switch {
	case d.tables[h.Table] != nil:
		return nil, device.ErrLoaded
	case m == nil:
		return nil, fmt.Errorf("%w: model %s", device.ErrNotLoaded, h.Model)
	case h.Cols != m.network.Features:
		return nil, fmt.Errorf("%w: rows of %d numbers, model %s has feature rows of %d", device.ErrRequest, h.Cols, h.Model, m.network.Features)
	case h.Rows < 0 || h.Rows > rows.MaxRows:
		return nil, fmt.Errorf("%w: %d rows, want 0 to %d", device.ErrRequest, h.Rows, rows.MaxRows)
	}
	t := &table{
		device: d, name: h.Table.Name, modelVersion: h.Model, model: m, capacity: capacityOf(h.Rows), rows: h.Rows,
		loss: rerank.NewLoss(m.packing()), patching: make(chan struct{}, 1), unused: make(chan struct{}), freed: make(chan struct{}),
		rounding: &rounding{mostKept: min(maxKeep, d.facts.MaxKeep), wantedPairs: d.options.Measured},
	}
	t.patching <- struct{}{}
	t.bytes = d.owner.sizes.TableBytes(m.network, t.capacity)
	if err := d.reserve(t.bytes); err != nil {
		return nil, err
	}
	m.tables++
	return t, nil
}

// maxKeep limits K′, the number of rows that a search scores in float32.
const maxKeep = 8192

// fill uploads the rows as they arrive.
func (t *table) fill(ctx context.Context, h device.TableHead, chunks device.Rows) error {
	first, cols := 0, h.Cols
	for chunk, err := range chunks {
		if err == nil {
			err = ctx.Err()
		}
		n := len(chunk) / cols
		if err == nil && first+n > h.Rows {
			err = fmt.Errorf("%w: more than %d rows", device.ErrRequest, h.Rows)
		}
		if err != nil {
			return err
		}
		m := rerank.Matrix{Rows: n, Cols: cols, Data: chunk[:n*cols]}
		t.measureLoss(m)
		if err := t.device.owner.do(ctx, func(Machine) error { return t.onMachine.Write(first, m) }); err != nil {
			return err
		}
		first += n
	}
	if first != h.Rows {
		return fmt.Errorf("%w: %d rows came, and the head says %d", device.ErrRequest, first, h.Rows)
	}
	return nil
}

// measureLoss adds the rounding errors of rows in float16 to the table's loss.
func (t *table) measureLoss(m rerank.Matrix) {
	if !t.model.onMachine.Approximates() { // only the norms matter
		for r := range m.Rows {
			row := m.Row(r)
			t.loss.Add(t.model.packing(), row, row)
		}
		return
	}
	p := t.model.packing()
	words, back := make([]uint32, p.RowWords()), make([]float32, m.Cols)
	for r := range m.Rows {
		row := m.Row(r)
		t.overflow = !p.Pack(words, row) || t.overflow
		p.Unpack(back, words, 1)
		if t.model.network.MoL != nil { // item gates stay float32
			first := t.model.network.MoL.PairsItem * t.model.network.MoL.Dim
			copy(back[first:], row[first:])
		}
		t.loss.Add(p, row, back)
	}
}

// resize sets the rows of the table on the machine.
func (t *table) resize(ctx context.Context) error {
	return t.device.owner.do(ctx, func(Machine) error { return t.onMachine.Resize(t.rows, t.words) })
}

// wordsOf converts a set of n rows to the machine's format. nil stays nil.
func wordsOf(b *scan.Bitmap, n int) []uint32 {
	if b == nil {
		return nil
	}
	words, raw := make([]uint32, (n+31)/32), b.Bytes(n)
	for i, x := range raw {
		words[i/4] |= uint32(x) << (8 * (i % 4))
	}
	return words
}

// enter looks up the model and the table of an Ask, and holds the table until leave.
func (d *Device) enter(a device.Ask) (*loaded, *table, error) {
	if err := d.owner.err(); err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m, t := d.models[a.Model], d.tables[a.Table]
	var of device.Version
	if t != nil {
		of = t.modelVersion
	}
	if err := a.Check(m != nil, t != nil, of, d.options.MaxK); err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	t.users++
	t.mu.Unlock()
	return m, t, nil
}

// leave ends a call's use of the table.
func (t *table) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users--
	t.settle()
}

// drop frees the table as soon as no call uses it. It must have been removed from the
// device's tables.
func (t *table) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = true
	t.settle()
}

// settle frees the table if it is dropped and unused. The caller holds mu.
func (t *table) settle() {
	if !t.dropped || t.users > 0 {
		return
	}
	select {
	case <-t.unused:
		return
	default:
		close(t.unused)
	}
	if t.moved {
		close(t.freed)
		return
	}
	go t.freeMemory()
}

// freeMemory frees the table's memory and then counts it as free.
func (t *table) freeMemory() {
	defer close(t.freed)
	d := t.device
	var err error
	if t.onMachine != nil {
		err = d.owner.do(context.Background(), func(Machine) error { return t.onMachine.Free() })
	}
	if err != nil && !errors.Is(err, device.ErrUnavailable) {
		d.options.Logger.Error("table memory not freed", "error", err, "bytes", t.bytes)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= t.bytes
	t.model.tables--
	d.release(t.model)
}

// checkRows verifies that all row numbers exist.
func (t *table) checkRows(numbers []uint32) error {
	if len(numbers) > t.rows {
		return fmt.Errorf("%w: %d rows of a table of %d; name each once", device.ErrRequest, len(numbers), t.rows)
	}
	for i, row := range numbers {
		if int64(row) >= int64(t.rows) {
			return fmt.Errorf("%w: rows[%d] is row %d of %d", device.ErrRequest, i, row, t.rows)
		}
	}
	return nil
}

// scanRows returns the set of rows that a scan visits (nil for all that are alive), and its
// size.
func (t *table) scanRows(bitmap []byte) ([]uint32, int, error) {
	if len(bitmap) == 0 {
		if t.alive == nil {
			return nil, t.rows, nil
		}
		return nil, t.alive.Len(), nil
	}
	wanted, err := scan.ParseBitmap(bitmap, t.rows)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", device.ErrRequest, err)
	}
	if t.alive != nil {
		wanted = t.alive.And(wanted)
	}
	return wordsOf(wanted, t.rows), wanted.Len(), nil
}

// sample holds rows for measuring the error of Approximate.
type sample struct {
	rows  []uint32
	rough Survivors
}

const sampleSize = 1024

// sampleRows returns random rows, each once.
func (t *table) sampleRows() []uint32 {
	n := min(sampleSize, t.rows, t.mostKept)
	out := make([]uint32, n)
	for i, r := range rand.Perm(t.rows)[:n] {
		out[i] = uint32(r)
	}
	return out
}
