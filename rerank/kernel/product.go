package kernel

import (
	"unsafe"

	"github.com/likenessdb/likeness/rerank"
)

// Weights is a matrix packed for products: panels of four rows, column after column.
// Missing rows of the last panel are zero. Only Join changes it.
type Weights struct {
	rows, cols int
	panels     []float32
}

// Pack returns the matrix in packed form.
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

// Join makes w the rows of all parts, one part after the other, and reuses w's memory. Each
// part has the same columns, and its rows are padded to whole panels.
func (w *Weights) Join(parts []Weights) {
	*w = Weights{panels: w.panels[:0]}
	for _, p := range parts {
		w.cols, w.rows = p.cols, w.rows+Padded(p.rows)
		w.panels = append(w.panels, p.panels...)
	}
}

// Padded returns the number of rows of a product with a packed matrix, which is rows
// rounded up to whole panels.
func Padded(rows int) int { return (rows + 3) &^ 3 }

// Product describes a product of packed weights with tiles: c = activate(w·b + bias +
// factor⊙plus), for every tile. All distances are in numbers. Each element is a sum that
// starts with c itself (Add), the bias of the row, or zero. It then adds the products of
// the columns in order (with one rounding each if the processor has fused multiply-add,
// otherwise two), then factor·plus, and finally applies the activation.
type Product struct {
	Tiles int
	// Row r of tile t of the result is C[t·CTile+r·CRow:][:Lanes]. A CRow of 0 means Lanes.
	// C needs room for Padded rows.
	C           []float32
	CTile, CRow int
	BTile       int // distance between tiles of b
	// Groups, if not 0, repeats the product that many times. From group to group, C
	// advances by CGroup and b by BGroup. It is only for bfloat16 products without Plus and
	// Narrow.
	Groups, CGroup, BGroup int
	// Add: the result is added to C, and Bias is ignored.
	Add bool
	// Bias has Padded numbers. nil means zero.
	Bias []float32
	// Factor has Padded numbers. Row r of tile t of Plus is
	// Plus[t·PlusTile+r·Lanes:][:Lanes]. If Plus is nil, nothing is added.
	Factor, Plus []float32
	PlusTile     int
	SiLU         bool
	// Rough allows SiLU an additional error of RoughSiLU.
	Rough bool
	// Narrow, if not nil, receives the result. C is then scratch space.
	Narrow *Narrow
	// Ahead, if not nil, names memory that is prefetched during the product.
	Ahead *Ahead
}

// Narrow receives the result of a bfloat16 product as bfloat16 tiles, which are the input
// of the next product. Words holds pairs of rows, tile t at Words[t·Tile:]. Squares has one
// element per tile, to which sums of squares of every lane are added: at index 0 of the
// values (before or after rounding), at index 1 of the rounding errors.
type Narrow struct {
	Words   []uint32
	Tile    int
	Squares [][2][Lanes]float32
}

// Multiply computes a product with float32 tiles. Each tile has as many values per lane as
// w has columns.
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

// Gemm adds w·b to c. b is a tile with as many values as w has columns; c is a tile with
// Padded(rows of w) values.
func (s *Set) Gemm(c []float32, w Weights, b []float32) {
	if w.cols > 0 {
		s.Multiply(w, b, &Product{Tiles: 1, C: c, Add: true})
	}
}

// MultiplyPanels is Multiply with weights that the caller has arranged in panels, as Pack
// does, each of four rows of cols numbers.
func (s *Set) MultiplyPanels(panels []float32, cols int, b []float32, p *Product) {
	s.Multiply(Weights{rows: len(panels) / cols, cols: cols, panels: panels}, b, p)
}

// check panics, as an index expression would, if a slice is too short for the assembly.
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

// reads returns how many numbers of the tiles a product of cols columns reads.
func (p *Product) reads(cols int) int {
	if cols == 0 {
		return 0
	}
	return (p.Groups-1)*p.BGroup + (p.Tiles-1)*p.BTile + cols*Lanes
}

// reach panics, as an index expression would, if b has fewer than n elements.
func reach[T any](b []T, n int) {
	if n > 0 {
		_ = b[n-1]
	}
}

// Flags of productArgs.flags.
const (
	flagAdd = 1 << iota
	flagSiLU
	flagRough
	flagNarrow
	flagSums // the sums need no further processing
)

// productArgs are the arguments of the assembly. tools/kernels knows the offsets.
type productArgs struct {
	c, w, b, bias, factor, plus  unsafe.Pointer
	ahead                        *Ahead
	steps, rows, tiles           int
	cTile, cRow, bTile, plusTile int // bytes
	flags                        int
	rowC, rowBias, rowFactor     uintptr // scratch of the assembly, like the next line
	rowPlus, rowsLeft            uintptr
	squares                      unsafe.Pointer
	// For the matrix unit: bytes between blocks of columns of a tile; the number of groups
	// of tiles and the bytes between groups; scratch of the assembly; and the configuration
	// of its registers.
	bStep                   int
	groups, cGroup, bGroup  int
	groupC, groupB, atTiles uintptr
	sums                    [7]uintptr
	config                  [64]byte
}

// args fills in a, which must be zero.
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

// multiplyInSteps is Multiply in separate steps: initial values, product, activation.
func (p *Product) multiplyInSteps(i isa, w Weights, b []float32) {
	rows := Padded(w.rows)
	for t := range p.Tiles {
		p.start(t, rows)
		i.gemm(p.C[t*p.CTile:], p.CRow, w.panels, b[t*p.BTile:][:w.cols*Lanes], rows, w.cols)
		p.finish(i, t, rows)
	}
}

// row returns row r of tile t of the result.
func (p *Product) row(t, r int) []float32 { return p.C[t*p.CTile+r*p.CRow:][:Lanes] }

// start sets the rows of tile t to the initial values of the sums.
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

// Ahead prefetches memory while a product computes, one cache line every few steps: the
// rows that are gathered next. It is not safe for concurrent use.
type Ahead struct {
	at         uintptr
	left, step int
	list, end  unsafe.Pointer // the current and the end position in rows
	row        int            // steps per row
	rows       [2*Lanes + 2]uintptr
}

// aheadStep is how many bytes one step of a loop over columns advances the prefetch, per
// tile. It is less than a cache line, so that each line is touched two or four times, at no
// cost, and the prefetch is spread over the whole computation.
const aheadStep = 16

// Rows selects rows of m for prefetching, at most as many as two tiles have. Only the first
// limit bytes of each row are prefetched.
func (a *Ahead) Rows(s *Set, m rerank.Matrix, rows []int32, limit int) {
	n := 0
	for _, r := range rows[:min(len(rows), 2*Lanes)] {
		a.rows[n] = uintptr(unsafe.Pointer(unsafe.SliceData(m.Row(int(r)))))
		n++
	}
	a.start(s, n, min(m.Cols*4, limit)+63) // a row may begin inside a cache line
}

// Memory selects one contiguous piece of memory for prefetching.
func (a *Ahead) Memory(s *Set, v []float32) {
	a.rows[0] = uintptr(unsafe.Pointer(unsafe.SliceData(v)))
	a.start(s, min(len(v), 1), len(v)*4)
}

// Hurry completes the prefetch in half as many steps, for products that have fewer.
func (a *Ahead) Hurry() { a.step, a.row = 2*a.step, (a.row+1)/2 }

// start begins the prefetch with the first of n rows.
func (a *Ahead) start(s *Set, n, bytes int) {
	a.step = aheadStep
	if s.isa == avx512 {
		a.step *= 2 // it computes two tiles at a time
	}
	a.row = (bytes + a.step - 1) / a.step
	a.list, a.end = unsafe.Pointer(&a.rows[0]), unsafe.Pointer(&a.rows[n])
	a.at, a.left = a.rows[0], 1
	if n == 0 {
		a.step, a.left = 0, 1<<31-1
	}
}
