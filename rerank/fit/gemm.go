package fit

import (
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// The blocks of a product (K. Goto and R. van de Geijn, Anatomy of
// High-Performance Matrix Multiplication, 2008): a block of op(a) in panels stays
// in the second cache while tiles of op(b) pass.
const (
	blockRows  = 384
	blockInner = 512
	// smallProduct is the number of multiplications below which packing and more
	// cores do not pay.
	smallProduct = 1 << 12
)

// panels are the buffers of the packed blocks of op(a).
type panels struct{ data []float32 }

// tiles are what one core needs: a packed tile of op(b) and one of the product.
type tiles struct {
	b, c [blockInner * kernel.Lanes]float32
}

var (
	panelPool = sync.Pool{New: func() any { return new(panels) }}
	tilePool  = sync.Pool{New: func() any { return new(tiles) }}
)

// multiply writes op(a)·op(b) to dst, where op transposes on request. dst aliases
// neither. Every element is summed by one goroutine in one order, so that the
// result does not depend on the number of cores.
func multiply(dst, a rerank.Matrix, ta bool, b rerank.Matrix, tb bool) {
	inner := a.Cols
	if ta {
		inner = a.Rows
	}
	if inner == 0 || len(dst.Data) == 0 {
		clear(dst.Data)
		return
	}
	p := panelPool.Get().(*panels)
	defer panelPool.Put(p)
	g := product{dst: dst, a: view(a, ta), b: view(b, tb), kernels: kernel.Best(), panels: p}
	for k := 0; k < inner; k += blockInner {
		for r := 0; r < dst.Rows; r += blockRows {
			g.block(r, min(r+blockRows, dst.Rows), k, min(k+blockInner, inner))
		}
	}
}

// operand is op(m): its element (r, c) is data[r·row + c·col].
type operand struct {
	data     []float32
	row, col int
}

func view(m rerank.Matrix, transposed bool) operand {
	if transposed {
		return operand{data: m.Data, row: 1, col: m.Cols}
	}
	return operand{data: m.Data, row: m.Cols, col: 1}
}

// product is a product under way.
type product struct {
	dst     rerank.Matrix
	a, b    operand
	kernels *kernel.Set
	panels  *panels
}

// block adds the products of the inner numbers from k0 to k1 to the rows from r0
// to r1 of dst; for k0 = 0 it sets them.
func (g *product) block(r0, r1, k0, k1 int) {
	rows, inner := kernel.Padded(r1-r0), k1-k0
	if cap(g.panels.data) < rows*inner {
		g.panels.data = make([]float32, blockRows*blockInner)
	}
	g.panels.data = g.panels.data[:rows*inner]
	each, columns := 8, 4
	if (r1-r0)*inner*g.dst.Cols < smallProduct {
		each, columns = rows, g.dst.Cols
	}
	spread(rows/4, each, func(from, to int) {
		for p := from; p < to; p++ {
			g.pack(g.panels.data[p*4*inner:(p+1)*4*inner], r0+4*p, r1, k0)
		}
	})
	spread((g.dst.Cols+kernel.Lanes-1)/kernel.Lanes, columns, func(from, to int) {
		t := tilePool.Get().(*tiles)
		defer tilePool.Put(t)
		for c := from; c < to; c++ {
			g.column(t, c*kernel.Lanes, r0, r1, k0, k1)
		}
	})
}

// pack writes a panel of four rows: for every inner number those of the rows side
// by side, rows from end on as zero.
func (g *product) pack(panel []float32, r, end, k0 int) {
	if end-r < 4 {
		clear(panel)
	}
	for i := range min(4, end-r) {
		at := (r+i)*g.a.row + k0*g.a.col
		for k := i; k < len(panel); k += 4 {
			panel[k] = g.a.data[at]
			at += g.a.col
		}
	}
}

// column multiplies the block with a tile of sixteen columns.
func (g *product) column(t *tiles, c, r0, r1, k0, k1 int) {
	width, inner := min(kernel.Lanes, g.dst.Cols-c), k1-k0
	b := t.b[:inner*kernel.Lanes]
	g.tile(b, c, width, k0)
	out := t.c[:kernel.Padded(r1-r0)*kernel.Lanes]
	clear(out)
	if k0 > 0 {
		for r := r0; r < r1; r++ {
			copy(out[(r-r0)*kernel.Lanes:][:kernel.Lanes], g.dst.Row(r)[c:c+width])
		}
	}
	g.kernels.GemmPanels(out, g.panels.data, b, kernel.Padded(r1-r0), inner)
	for r := r0; r < r1; r++ {
		copy(g.dst.Row(r)[c:c+width], out[(r-r0)*kernel.Lanes:])
	}
}

// tile packs columns of op(b); those beyond the width repeat the last or are zero.
func (g *product) tile(b []float32, c, width, k0 int) {
	inner := len(b) / kernel.Lanes
	if g.b.row == 1 { // op transposes: a column is a row in memory
		var rows [kernel.Lanes][]float32
		for l := range rows {
			at := min(c+l, c+width-1)*g.b.col + k0
			rows[l] = g.b.data[at : at+inner]
		}
		g.kernels.Tile(b, &rows)
		return
	}
	if width < kernel.Lanes {
		clear(b)
	}
	for k := range inner {
		at := (k0+k)*g.b.row + c
		copy(b[k*kernel.Lanes:][:kernel.Lanes], g.b.data[at:at+width])
	}
}
