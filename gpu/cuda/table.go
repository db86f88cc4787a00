//go:build cuda

package cuda

import (
	"errors"

	"gorgonia.org/cu"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
)

// table contains rows on the device: whole rows in float32 and, for tensor-core kernels,
// the components in float16 and a second copy of the item's part of the gates.
type table struct {
	of                  *network
	capacity, count     int
	rows, halves, gates block
	live                block // one bit per row, set if the row is alive
	some                bool  // whether live is in use
}

// NewTable implements gpu.Machine.
func (m *Machine) NewTable(of gpu.Model, capacity int) (gpu.Table, error) {
	w := of.(*network)
	t := &table{of: w, capacity: capacity}
	var err error
	if t.rows, err = newBlock("a table", 4*int64(w.of.Features)*int64(capacity)); err == nil && w.tensor {
		_, stride := widths(w.of)
		t.halves, err = newBlock("a table", 2*int64(stride)*int64(capacity))
		if n := w.of.MoL; err == nil && n != nil && n.ItemGates {
			t.gates, err = newBlock("a table", 4*int64(n.PairsQuery*n.PairsItem)*int64(capacity))
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.Free())
	}
	return t, nil
}

// widths returns how many numbers of a row tensor cores multiply, and how many a row in
// float16 has, with its zeros.
func widths(n *gpu.Network) (width, stride int) {
	if n.InnerProduct() {
		return n.Features, kernels.ScreenWidth(n.Features)
	}
	width = n.MoL.PairsItem * n.MoL.Dim
	return width, width
}

// pieceBytes is about how many bytes are staged at a time.
const pieceBytes = 8 << 20

// Write implements gpu.Table.
func (t *table) Write(first int, rows rerank.Matrix) error {
	return t.put(rows, func(from, to int) ([]uint32, int) { return nil, first + from })
}

// Patch implements gpu.Table.
func (t *table) Patch(numbers []uint32, rows rerank.Matrix) error {
	return t.put(rows, func(from, to int) ([]uint32, int) { return numbers[from:to], 0 })
}

// put copies rows to the device in pieces, without waiting. While the device copies and
// packs one piece, the next is written to the other staging memory.
func (t *table) put(rows rerank.Matrix, where func(from, to int) (numbers []uint32, first int)) error {
	m := t.of.machine
	some := max(1, pieceBytes/(4*max(rows.Cols, 1)))
	for from := 0; from < rows.Rows; from += some {
		to := min(from+some, rows.Rows)
		numbers, first := where(from, to)
		s, err := m.next()
		if err != nil {
			return err
		}
		data := rows.Slice(from, to).Data
		if err := s.reset(aligned(4*len(data)) + aligned(4*len(numbers))); err != nil {
			return err
		}
		width, stride := widths(t.of.of)
		args := kernels.RowsPackArgs{
			Source: put(&s.arena, data), Numbers: put(&s.arena, numbers),
			Rows: uint64(t.rows.at), Halves: uint64(t.halves.at), Gates: uint64(t.gates.at), Largest: uint64(m.largest.at),
			Count: uint64(to - from), First: uint64(first), Features: uint64(rows.Cols), Width: uint64(width), Stride: uint64(stride),
		}
		if n := t.of.of.MoL; n != nil {
			args.PairsQuery, args.PairsItem = uint64(n.PairsQuery), uint64(n.PairsItem)
		}
		if err := s.send(m.stream); err != nil {
			return err
		}
		if err := m.launch(kernels.RowsPack(to-from), args); err != nil {
			return err
		}
		if err := s.sent(m.stream); err != nil {
			return err
		}
	}
	return nil
}

// CopyFrom implements gpu.Table.
func (t *table) CopyFrom(from gpu.Table, rows int) error {
	o := from.(*table)
	for _, a := range []struct{ to, from block }{{t.rows, o.rows}, {t.halves, o.halves}, {t.gates, o.gates}} {
		bytes := a.from.bytes / int64(max(o.capacity, 1)) * int64(rows)
		if bytes == 0 {
			continue
		}
		if err := judged("copying a table", cu.MemcpyDtoDAsync(a.to.at, a.from.at, bytes, t.of.machine.stream)); err != nil {
			return err
		}
	}
	return judged("copying a table", t.of.machine.stream.Synchronize())
}

// Resize implements gpu.Table.
func (t *table) Resize(rows int, alive []uint32) error {
	t.count, t.some = rows, alive != nil
	if err := judged("waiting for rows", t.of.machine.stream.Synchronize()); err != nil || len(alive) == 0 {
		return err
	}
	raw := bytesOf(alive)
	if err := t.live.grow("a bitmap", int64(len(raw))); err != nil {
		return err
	}
	return t.live.write("a bitmap", raw)
}

// Free implements gpu.Table.
func (t *table) Free() error {
	return errors.Join(t.rows.free(), t.halves.free(), t.gates.free(), t.live.free())
}
