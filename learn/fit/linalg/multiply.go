package linalg

import (
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Multiply works in blocks (K. Goto and R. van de Geijn, Anatomy of
// High-Performance Matrix Multiplication, 2008): a packed block of op(a) stays in
// the second-level cache while tiles of op(b) pass by.
const (
	blockRows  = 384
	blockInner = 512
	// smallProduct is the number of multiplications below which a product runs on
	// one core, because starting others costs more than it saves.
	smallProduct = 1 << 12
)

// panels is a reusable buffer for one packed block of op(a).
type panels struct{ data []float32 }

// tiles holds the buffers of one core: a packed tile of op(b) and a tile of the product.
type tiles struct {
	b, c [blockInner * kernel.Lanes]float32
}

var (
	panelPool = sync.Pool{New: func() any { return new(panels) }}
	tilePool  = sync.Pool{New: func() any { return new(tiles) }}
)

// Multiply writes op(a)·op(b) to dst. op(a) is the transpose of a if transposeA is
// set, otherwise a itself; b likewise. dst must not share memory with a or b. One
// goroutine sums each element, always in the same order, so the result is the same
// to the bit on any number of cores.
func Multiply(dst, a rerank.Matrix, transposeA bool, b rerank.Matrix, transposeB bool) {
	inner := a.Cols
	if transposeA {
		inner = a.Rows
	}
	if inner == 0 || len(dst.Data) == 0 {
		clear(dst.Data)
		return
	}
	p := panelPool.Get().(*panels)
	defer panelPool.Put(p)
	g := product{dst: dst, a: newOperand(a, transposeA), b: newOperand(b, transposeB), kernels: kernel.Best(), panels: p}
	for k := 0; k < inner; k += blockInner {
		for r := 0; r < dst.Rows; r += blockRows {
			g.addBlock(r, min(r+blockRows, dst.Rows), k, min(k+blockInner, inner))
		}
	}
}

// operand is a matrix or its transpose: element (r, c) is data[r·row + c·col].
type operand struct {
	data     []float32
	row, col int
}

// newOperand returns m or its transpose without a copy.
func newOperand(m rerank.Matrix, transposed bool) operand {
	if transposed {
		return operand{data: m.Data, row: 1, col: m.Cols}
	}
	return operand{data: m.Data, row: m.Cols, col: 1}
}

// product is one call of Multiply.
type product struct {
	dst     rerank.Matrix
	a, b    operand
	kernels *kernel.Set
	panels  *panels
}

// addBlock multiplies columns k0 to k1 of op(a) with the same rows of op(b) and adds
// the result to rows r0 to r1 of dst. With k0 = 0 it overwrites those rows.
func (g *product) addBlock(r0, r1, k0, k1 int) {
	rows, inner := kernel.Padded(r1-r0), k1-k0
	if cap(g.panels.data) < rows*inner {
		g.panels.data = make([]float32, blockRows*blockInner)
	}
	g.panels.data = g.panels.data[:rows*inner]
	each, columns := 8, 4
	if (r1-r0)*inner*g.dst.Cols < smallProduct {
		each, columns = rows, g.dst.Cols
	}
	Parallel(rows/4, each, func(from, to int) {
		for p := from; p < to; p++ {
			g.packPanel(g.panels.data[p*4*inner:(p+1)*4*inner], r0+4*p, r1, k0)
		}
	})
	Parallel((g.dst.Cols+kernel.Lanes-1)/kernel.Lanes, columns, func(from, to int) {
		t := tilePool.Get().(*tiles)
		defer tilePool.Put(t)
		for c := from; c < to; c++ {
			g.multiplyTile(t, c*kernel.Lanes, r0, r1, k0, k1)
		}
	})
}

// packPanel copies rows r to r+4 of op(a), from column k0 on, into panel: the four
// rows' elements of one column lie side by side. Rows at or beyond end become zero.
func (g *product) packPanel(panel []float32, r, end, k0 int) {
	inner := len(panel) / 4
	switch {
	case end-r < 4:
		clear(panel)
		for i := range end - r {
			at := (r+i)*g.a.row + k0*g.a.col
			for k := i; k < len(panel); k += 4 {
				panel[k] = g.a.data[at]
				at += g.a.col
			}
		}
	case g.a.row == 1: // op transposes: four rows lie side by side in memory
		for k := range inner {
			at := r + (k0+k)*g.a.col
			*(*[4]float32)(panel[4*k:]) = [4]float32(g.a.data[at : at+4])
		}
	default:
		at := r*g.a.row + k0
		first := g.a.data[at : at+inner]
		second := g.a.data[at+g.a.row:][:inner]
		third := g.a.data[at+2*g.a.row:][:inner]
		fourth := g.a.data[at+3*g.a.row:][:inner]
		for k, v := range first {
			*(*[4]float32)(panel[4*k:]) = [4]float32{v, second[k], third[k], fourth[k]}
		}
	}
}

// multiplyTile multiplies the packed block of op(a) with the tile of op(b) that
// begins at column c, and writes that tile of dst: whole panels of a whole tile in
// place, the rest by way of t.c.
func (g *product) multiplyTile(t *tiles, c, r0, r1, k0, k1 int) {
	width, inner := min(kernel.Lanes, g.dst.Cols-c), k1-k0
	b := t.b[:inner*kernel.Lanes]
	g.packTile(b, c, width, k0)
	rest := r0
	if width == kernel.Lanes {
		rest += (r1 - r0) &^ 3
		g.multiplyPanels(r0, r0, rest, b, &kernel.Product{C: g.dst.Data[r0*g.dst.Cols+c:], CRow: g.dst.Cols, Add: k0 > 0})
	}
	if rest == r1 {
		return
	}
	out := t.c[:kernel.Padded(r1-rest)*kernel.Lanes]
	if k0 > 0 {
		for r := rest; r < r1; r++ {
			copy(out[(r-rest)*kernel.Lanes:][:kernel.Lanes], g.dst.Row(r)[c:c+width])
		}
	}
	g.multiplyPanels(r0, rest, r1, b, &kernel.Product{C: out, Add: k0 > 0})
	for r := rest; r < r1; r++ {
		copy(g.dst.Row(r)[c:c+width], out[(r-rest)*kernel.Lanes:])
	}
}

// multiplyPanels computes p for rows from to end of the packed block of op(a), which
// begins at row r0, and the tile b.
func (g *product) multiplyPanels(r0, from, end int, b []float32, p *kernel.Product) {
	inner := len(b) / kernel.Lanes
	p.Tiles = 1
	g.kernels.MultiplyPanels(g.panels.data[(from-r0)*inner:kernel.Padded(end-r0)*inner], inner, b, p)
}

// packTile copies width columns of op(b), from column c and row k0 on, into b. The
// columns beyond width hold the last column again or zero; nobody reads their products.
func (g *product) packTile(b []float32, c, width, k0 int) {
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
