package kernel

import (
	"unsafe"

	"github.com/likenessdb/likeness/rerank"
)

// Weights is a matrix packed for products: panels of four rows, the columns of a
// panel one after the other, absent rows of the last panel zero. It is immutable.
type Weights struct {
	rows, cols int
	panels     []float32
}

// Pack packs a matrix.
func Pack(m rerank.Matrix) Weights {
	w := Weights{rows: m.Rows, cols: m.Cols, panels: make([]float32, Padded(m.Rows)*m.Cols)}
	for r := range m.Rows {
		panel := w.panels[r/4*4*m.Cols:]
		for c, v := range m.Row(r) {
			panel[c*4+r%4] = v
		}
	}
	return w
}

// Padded is the number of rows of a product with a packed matrix of rows.
func Padded(rows int) int { return (rows + 3) &^ 3 }

// Product says where a product of packed weights with tiles goes, and what is
// done with it on the way: c = activate(w·b + bias + factor⊙plus), for every
// tile. All distances are in numbers. Each element is a sum that starts with c
// itself (Add), the bias of the row, or zero; then the products of the columns in
// their order, each with one rounding where the processor multiplies and adds at
// once, else two; then factor·plus; then the activation.
type Product struct {
	Tiles int
	// Row r of tile t is C[t·CTile+r·CRow:][:Lanes]; a CRow of 0 is Lanes. There
	// is room for Padded rows.
	C           []float32
	CTile, CRow int
	BTile       int // from one tile of b to the next
	// Groups, if not 0, is how often all this is done, from group to group CGroup and BGroup further. It is for products of
	// bfloat16 without Plus and Narrow.
	Groups, CGroup, BGroup int
	// Add: the result is added to C; Bias is not looked at.
	Add bool
	// Bias has Padded numbers, or none: zero.
	Bias []float32
	// Factor has Padded numbers; row r of tile t of Plus is Plus[t·PlusTile+r·Lanes:][:Lanes].
	// Without Plus nothing is added.
	Factor, Plus []float32
	PlusTile     int
	SiLU         bool
	// Rough: SiLU may be off by RoughSiLU besides what Set.SiLU is.
	Rough bool
	// Narrow, if not nil, gets the result instead of C, which then is room.
	Narrow *Narrow
	// Ahead, if not nil, is brought into the cache on the way.
	Ahead *Ahead
}

// Narrow takes the result of a product of bfloat16 as tiles of bfloat16, for the next:
// pairs of rows as words, tile t at Words[t·Tile:]. Squares has an element a tile, to
// which the squares of every lane are added: of the values as they are rounded
// or before, and of what rounding takes.
type Narrow struct {
	Words   []uint32
	Tile    int
	Squares [][2][Lanes]float32
}

// Multiply computes a product with tiles of float32: as many values a tile as w
// has columns.
func (s *Set) Multiply(w Weights, b []float32, p *Product) {
	rows := Padded(w.rows)
	if rows == 0 || p.Tiles == 0 {
		return
	}
	p.check(rows)
	reach(b, p.reads(w.cols))
	if !s.isa.hasAllAssembly() || w.cols == 0 {
		p.multiplyInSteps(s.isa, w, b)
		return
	}
	var args productArgs
	p.args(&args, rows, w.cols)
	args.w, args.b = unsafe.Pointer(unsafe.SliceData(w.panels)), unsafe.Pointer(unsafe.SliceData(b))
	s.isa.product(&args)
}

// Gemm adds w·b to c: b is a tile of as many values as w has columns, c one of
// Padded(rows of w).
func (s *Set) Gemm(c []float32, w Weights, b []float32) {
	if w.cols > 0 {
		s.Multiply(w, b, &Product{Tiles: 1, C: c, Add: true})
	}
}

// GemmPanels is Gemm with rows that the caller has put into panels, as Pack does:
// m rows, a multiple of four, of k numbers.
func (s *Set) GemmPanels(c, panels, b []float32, m, k int) {
	s.Gemm(c[:m*Lanes], Weights{rows: m, cols: k, panels: panels[:m*k]}, b[:k*Lanes])
}

// check panics, as an index does, where a slice is too short for the assembly.
func (p *Product) check(rows int) {
	last := p.Tiles - 1
	if p.CRow == 0 {
		p.CRow = Lanes
	}
	p.Groups = max(p.Groups, 1)
	_ = p.C[(p.Groups-1)*p.CGroup+last*p.CTile+(rows-1)*p.CRow+Lanes-1]
	if !p.Add && len(p.Bias) > 0 {
		_ = p.Bias[rows-1]
	}
	if len(p.Plus) > 0 {
		_, _ = p.Factor[rows-1], p.Plus[last*p.PlusTile+rows*Lanes-1]
	}
}

// reads is how many numbers of the tiles a product of cols columns reads.
func (p *Product) reads(cols int) int {
	if cols == 0 {
		return 0
	}
	return (p.Groups-1)*p.BGroup + (p.Tiles-1)*p.BTile + cols*Lanes
}

// reach panics, as an index does, unless b has n elements.
func reach[T any](b []T, n int) {
	if n > 0 {
		_ = b[n-1]
	}
}

// Bits of productArgs.flags.
const (
	flagAdd = 1 << iota
	flagSiLU
	flagRough
	flagNarrow
	flagSums // nothing is to be done with the sums
)

// productArgs is what the assembly reads; tools/kernels has its offsets.
type productArgs struct {
	c, w, b, bias, factor, plus  unsafe.Pointer
	ahead                        *Ahead
	steps, rows, tiles           int
	cTile, cRow, bTile, plusTile int // bytes
	flags                        int
	rowC, rowBias, rowFactor     uintptr // the kernel's own, as the next line
	rowPlus, rowsLeft            uintptr
	squares                      unsafe.Pointer
	// Of the unit for matrices: bytes from block to block of the columns of a tile; groups of tiles, and
	// bytes from one to the next; what is the kernel's own; and what its registers hold.
	bStep                   int
	groups, cGroup, bGroup  int
	groupC, groupB, atTiles uintptr
	sums                    [7]uintptr
	config                  [64]byte
}

// args fills in a, which is zero.
func (p *Product) args(a *productArgs, rows, steps int) {
	a.c, a.ahead, a.steps, a.rows, a.tiles = unsafe.Pointer(unsafe.SliceData(p.C)), p.Ahead, steps, rows, p.Tiles
	a.cTile, a.cRow, a.bTile = p.CTile*4, p.CRow*4, p.BTile*4
	if len(p.Plus) > 0 {
		a.factor, a.plus = unsafe.Pointer(unsafe.SliceData(p.Factor)), unsafe.Pointer(unsafe.SliceData(p.Plus))
		a.plusTile = p.PlusTile * 4
	}
	switch {
	case p.Add:
		a.flags |= flagAdd
	case len(p.Bias) > 0:
		a.bias = unsafe.Pointer(unsafe.SliceData(p.Bias))
	}
	if p.SiLU {
		a.flags |= flagSiLU
	}
	if p.Rough {
		a.flags |= flagRough
	}
}

// multiplyInSteps is Multiply one step after the other.
func (p *Product) multiplyInSteps(i isa, w Weights, b []float32) {
	rows := Padded(w.rows)
	for t := range p.Tiles {
		p.start(t, rows)
		i.gemm(p.C[t*p.CTile:], p.CRow, w.panels, b[t*p.BTile:][:w.cols*Lanes], rows, w.cols)
		p.finish(i, t, rows)
	}
}

// row is row r of tile t of the result.
func (p *Product) row(t, r int) []float32 { return p.C[t*p.CTile+r*p.CRow:][:Lanes] }

// start sets the rows to what the sums begin with.
func (p *Product) start(t, rows int) {
	if p.Add {
		return
	}
	for r := range rows {
		c, v := p.row(t, r), float32(0)
		if len(p.Bias) > 0 {
			v = p.Bias[r]
		}
		for l := range c {
			c[l] = v
		}
	}
}

func (p *Product) finish(i isa, t, rows int) {
	for r := range rows {
		c := p.row(t, r)
		if len(p.Plus) > 0 {
			for l, v := range p.Plus[t*p.PlusTile+r*Lanes:][:Lanes] {
				c[l] += p.Factor[r] * v
			}
		}
		if p.SiLU {
			i.silu(c)
		}
	}
}

// Ahead is memory that a product brings into the cache while it computes, a line
// now and then: the rows that are gathered next. It is not safe for concurrent use.
type Ahead struct {
	at         uintptr
	left, step int
	list, end  unsafe.Pointer // of rows
	row        int            // steps a row
	rows       [2*Lanes + 2]uintptr
}

// aheadStep is how far one step of a loop over columns goes, in bytes, for one
// tile: the loops touch a line twice or four times, which costs nothing, and so
// spread what they bring over the whole computation.
const aheadStep = 16

// Rows names the rows of m to bring, as many as two tiles have at most. Of rows
// longer than limit bytes only the beginning is brought.
func (a *Ahead) Rows(s *Set, m rerank.Matrix, rows []int32, limit int) {
	n := 0
	for _, r := range rows[:min(len(rows), 2*Lanes)] {
		a.rows[n] = uintptr(unsafe.Pointer(unsafe.SliceData(m.Row(int(r)))))
		n++
	}
	a.start(s, n, min(m.Cols*4, limit)+63) // a row may begin within a line
}

// Memory names one stretch of memory to bring.
func (a *Ahead) Memory(s *Set, v []float32) {
	a.rows[0] = uintptr(unsafe.Pointer(unsafe.SliceData(v)))
	a.start(s, min(len(v), 1), len(v)*4)
}

// Hurry brings what was named in half as many steps, for products that take no more.
func (a *Ahead) Hurry() { a.step, a.row = 2*a.step, (a.row+1)/2 }

// start begins with the first of n rows.
func (a *Ahead) start(s *Set, n, bytes int) {
	a.step = aheadStep
	if s.isa == avx512 {
		a.step *= 2 // it computes two tiles at once
	}
	a.row = (bytes + a.step - 1) / a.step
	a.list, a.end = unsafe.Pointer(&a.rows[0]), unsafe.Pointer(&a.rows[n])
	a.at, a.left = a.rows[0], 1
	if n == 0 {
		a.step, a.left = 0, 1<<31-1
	}
}
