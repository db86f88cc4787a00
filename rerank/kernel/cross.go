package kernel

import (
	"unsafe"

	"github.com/likenessdb/likeness/rerank"
)

// Vectors holds vectors of one length in lanes, sixteen side by side, for Cross.
type Vectors struct {
	count, cols int
	lanes       []float32 // [tile][column][lane]
}

// PackVectors packs vectors of one length into v and reuses v's memory.
func (s *Set) PackVectors(v *Vectors, vectors [][]float32) {
	v.count, v.cols = len(vectors), 0
	if v.count == 0 {
		return
	}
	v.cols = len(vectors[0])
	if n := v.Width() * v.cols; cap(v.lanes) < n {
		v.lanes = make([]float32, n)
	} else {
		v.lanes = v.lanes[:n]
	}
	for t := 0; t < v.count; t += Lanes {
		var rows [Lanes][]float32
		for l := range rows { // lanes without a vector repeat the last vector
			rows[l] = vectors[min(t+l, v.count-1)]
		}
		s.Tile(v.lanes[t*v.cols:], &rows)
	}
}

// Width returns the number of products that Cross computes for a row: the number of
// vectors, rounded up to whole lanes.
func (v Vectors) Width() int { return (v.count + Lanes - 1) / Lanes * Lanes }

// Cross writes ⟨m.Row(r), vector i⟩ to c[r·Width+i], for every row and lane. m has as many
// columns as the vectors. Each product is one sum in the order of the columns. Rows sums in
// another order, so the two agree only within rounding.
func (s *Set) Cross(c []float32, v Vectors, m rerank.Matrix) {
	width := v.Width()
	if m.Rows == 0 || width == 0 {
		return
	}
	c = c[:m.Rows*width]
	if !s.isa.hasAllAssembly() || v.cols == 0 {
		crossGo(c, v, m)
		return
	}
	_, _ = m.Data[m.Rows*m.Cols-1], m.Data[v.cols-1]
	tiles := width / Lanes
	for t := 0; t < tiles; {
		n := s.isa.crossTiles(tiles - t)
		args := crossArgs{
			rows: unsafe.Pointer(unsafe.SliceData(m.Data)), stride: m.Cols * 4, count: m.Rows, steps: v.cols,
			q: unsafe.Pointer(&v.lanes[t*v.cols*Lanes]), qTile: v.cols * Lanes * 4,
			c: unsafe.Pointer(&c[t*Lanes]), cRow: width * 4,
		}
		s.isa.cross(&args, n)
		t += n
	}
}

// Crosses reports whether Cross is faster than MulT for many rows and no slower for one
// row.
func (s *Set) Crosses() bool { return s.isa == avx512 }

// crossArgs are the arguments that the assembly reads and modifies. tools/kernels knows the
// offsets.
type crossArgs struct {
	rows                 unsafe.Pointer
	stride, count, steps int
	q                    unsafe.Pointer
	qTile                int
	c                    unsafe.Pointer
	cRow                 int
}

func crossGo(c []float32, v Vectors, m rerank.Matrix) {
	clear(c)
	width := v.Width()
	for r := range m.Rows {
		row := m.Row(r)[:v.cols]
		for t := 0; t < width; t += Lanes {
			out := (*[Lanes]float32)(c[r*width+t:])
			for k, x := range row {
				for l, y := range (*[Lanes]float32)(v.lanes[t*v.cols+k*Lanes:]) {
					out[l] += x * y
				}
			}
		}
	}
}

// Fold writes the maximum of each column of c, a matrix of rows·width numbers, to dst. If a
// column has a number that is not finite, its result is not finite. width is a multiple of
// Lanes.
func (s *Set) Fold(dst, c []float32, width, rows int) {
	if rows < 1 || width == 0 {
		return
	}
	s.isa.fold(dst[:width], c[:rows*width], rows)
}

func foldGo(dst, c []float32, rows int) {
	width := len(dst)
	for i, top := range c[:width] {
		check := top * 0
		for r := 1; r < rows; r++ {
			v := c[r*width+i]
			top, check = max(top, v), check+v*0
		}
		dst[i] = top + check
	}
}

// Spread transposes: dst[i·stride+r] = c[r·width+i], for all rows r and the first count
// columns i.
func (s *Set) Spread(dst []float32, stride int, c []float32, width, rows, count int) {
	if rows == 0 || count == 0 {
		return
	}
	_, _ = dst[(count-1)*stride+rows-1], c[(rows-1)*width+count-1]
	whole, columns := s.isa.spread(dst, stride, c, width, rows, count)
	for i := range count {
		from := 0
		if i < columns {
			from = whole
		}
		for r := from; r < rows; r++ {
			dst[i*stride+r] = c[r*width+i]
		}
	}
}

// Add adds a to dst, element by element.
func (s *Set) Add(dst, a []float32) {
	whole := len(dst) / Lanes * Lanes
	for at := 0; at < whole; at += len(ones) {
		end := min(at+len(ones), whole)
		s.MulAdd(dst[at:end], a[at:end], ones[:end-at])
	}
	for i := whole; i < len(dst); i++ {
		dst[i] += a[i]
	}
}

var ones = func() (v [64 * Lanes]float32) {
	for i := range v {
		v[i] = 1
	}
	return v
}()
