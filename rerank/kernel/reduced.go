package kernel

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/likenessdb/likeness/rerank"
)

// Reduced precision: a word of a bfloat16 tile holds two values, a word of an int8 tile
// four. Word k·Lanes+l of a bfloat16 tile holds value 2k of lane l in its low half and
// value 2k+1 in its high half. In an int8 tile it holds values 4k to 4k+3, the first in the
// low byte. A tile of n values per lane has n/2·Lanes or n/4·Lanes words. n is a multiple
// of 2 or 4 (pad with zeros).
//
// Error bounds of the products:
//
//  - bfloat16: a product of two bfloat16 numbers is exact in float32. For each pair of
//    values, in order, the second product is added first, then the first, each rounded to
//    nearest even: c = fl(fl(c + x₁y₁) + x₀y₀). So n values cost n roundings: |computed −
//    exact| ≤ Gamma(n)·(|c| + Σ|xᵢyᵢ|), which is at most Gamma(n)·‖x‖·‖y‖ for c = 0.
//    VDPBF16PS treats subnormal numbers as zero, which adds at most n·2⁻¹²⁶. Without
//    subnormal numbers all sets give the same bits, except one with a matrix unit: in
//    blocks of p pairs, the unit sums the first and the second products separately, then
//    adds the two sums to each other and to c, which is p + n/2p ≤ n roundings.
//  - int8: sums are int32 and exact in every set if a row has at most MaxInt8 values.
//  - Rounding to bfloat16 is to nearest even: |rounded − x| ≤ 2⁻⁸·|x| (UnitBFloat16), plus
//    2⁻¹²⁶ for subnormal x, which become zero. Quantize rounds x/scale to nearest even:
//    |scale·q − x| ≤ scale/2·(1 + 2⁻²⁰).

// UnitBFloat16 is the relative rounding error of bfloat16.
const UnitBFloat16 = 1.0 / (1 << 8)

// RoughSiLU bounds the error of the approximate SiLU (Product.Rough), for any argument. The
// error of its piecewise linear sigmoid is 0.0026 near ±1.9 and 0.0028 near −8, below which
// the sigmoid is zero.
const RoughSiLU = 0.003

// MaxInt8 is the most values per row of an int8 product, so that 255·128·MaxInt8 fits an
// int32.
const MaxInt8 = 1 << 16

// ErrTooLong: an int8 product has so many values that its sums could overflow.
var ErrTooLong = errors.New("too many values for an int8 product")

// RoundBFloat16 rounds to nearest even. A subnormal number becomes zero with the same sign,
// NaN stays NaN, and a number above the greatest bfloat16 becomes infinite.
func RoundBFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	switch {
	case b&0x7f800000 == 0:
		return uint16(b >> 16 & 0x8000)
	case x != x:
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// WidenBFloat16 converts a bfloat16 to float32, exactly.
func WidenBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// WeightsBFloat16 is a matrix of bfloat16, packed like Weights. It is immutable.
type WeightsBFloat16 struct {
	rows, cols int       // cols is even
	panels     []uint32  // pairs: low half first
	wide       []float32 // the same, as float32: second, first
	blocks     []uint32  // the same, in the form that the matrix unit reads
}

// PackBFloat16 rounds and packs a matrix. An odd last column is paired with zeros.
func PackBFloat16(m rerank.Matrix) WeightsBFloat16 {
	w := WeightsBFloat16{rows: m.Rows, cols: (m.Cols + 1) &^ 1}
	w.panels = make([]uint32, Padded(m.Rows)*w.cols/2)
	w.wide = make([]float32, Padded(m.Rows)*w.cols)
	for r := range m.Rows {
		at := r / 4 * 4 * w.cols / 2
		for c, v := range m.Row(r) {
			h, word := RoundBFloat16(v), at+c/2*4+r%4
			w.panels[word] |= uint32(h) << (c % 2 * 16)
			w.wide[word*2+1-c%2] = WidenBFloat16(h)
		}
	}
	if hasMatrixUnit() {
		w.packBlocks()
	}
	return w
}

// MultiplyBFloat16 is Multiply with bfloat16 tiles that have as many values as w has
// columns. BTile is in words. C, Plus and the activation are float32.
func (s *Set) MultiplyBFloat16(w WeightsBFloat16, b []uint32, p *Product) {
	rows := Padded(w.rows)
	if rows == 0 || p.Tiles == 0 {
		return
	}
	p.check(rows)
	reach(b, p.reads(w.cols/2))
	if p.Narrow != nil {
		p.Narrow.check(p.Tiles, rows)
	}
	if p.Groups > 1 && !s.amx {
		s.multiplyGroups(w, b, *p)
		return
	}
	if !s.isa.hasAllAssembly() || w.cols == 0 {
		p.plainBFloat16(s.isa, w, b)
		p.narrow(s, rows)
		return
	}
	var args productArgs
	p.args(&args, rows, w.cols/2)
	args.w, args.b = unsafe.Pointer(unsafe.SliceData(w.wide)), unsafe.Pointer(unsafe.SliceData(b))
	if s.bf16 {
		args.w = unsafe.Pointer(unsafe.SliceData(w.panels))
		p.Narrow.into(&args)
	}
	if s.amx {
		w.inBlocks(&args, p, rows)
		s.isa.productMatrix(&args)
		return
	}
	s.isa.productBFloat16(&args, s.bf16)
	if !s.bf16 {
		p.narrow(s, rows)
	}
}

// multiplyGroups computes one group after the other.
func (s *Set) multiplyGroups(w WeightsBFloat16, b []uint32, p Product) {
	c, groups := p.C, p.Groups
	p.Groups = 1
	for g := range groups {
		p.C = c[g*p.CGroup:]
		s.MultiplyBFloat16(w, b[g*p.BGroup:], &p)
	}
}

// check panics, as an index expression would, if a slice is too short for the assembly.
func (n *Narrow) check(tiles, rows int) {
	_, _ = n.Words[(tiles-1)*n.Tile+rows/2*Lanes-1], n.Squares[tiles-1]
}

// into sets the arguments with which the assembly stores bfloat16 words. Two rows of values
// share one row of words.
func (n *Narrow) into(a *productArgs) {
	if n == nil {
		return
	}
	a.c, a.cTile, a.cRow = unsafe.Pointer(unsafe.SliceData(n.Words)), n.Tile*4, Lanes*4/2
	a.squares = unsafe.Pointer(unsafe.SliceData(n.Squares))
	a.flags |= flagNarrow
}

// narrow rounds the contents of C to p.Narrow.
func (p *Product) narrow(s *Set, rows int) {
	if p.Narrow == nil {
		return
	}
	var extent [3][Lanes]float32
	for t := range p.Tiles {
		tile, sum := p.C[t*p.CTile:][:rows*Lanes], &p.Narrow.Squares[t]
		s.Round(p.Narrow.Words[t*p.Narrow.Tile:][:rows/2*Lanes], &sum[1], tile)
		s.Extent(&extent, tile)
		for l, v := range extent[2] {
			sum[0][l] += v
		}
	}
}

// GemmBFloat16 is Gemm with a bfloat16 tile.
func (s *Set) GemmBFloat16(c []float32, w WeightsBFloat16, b []uint32) {
	if w.cols > 0 {
		s.MultiplyBFloat16(w, b, &Product{Tiles: 1, C: c, Add: true})
	}
}

func (p *Product) plainBFloat16(i isa, w WeightsBFloat16, b []uint32) {
	rows := Padded(w.rows)
	for t := range p.Tiles {
		p.start(t, rows)
		for r := range rows {
			c := p.row(t, r)
			for k := range w.cols / 2 {
				at := 2 * (r/4*4*w.cols/2 + k*4 + r%4)
				second, first := w.wide[at], w.wide[at+1]
				for l, v := range b[t*p.BTile+k*Lanes:][:Lanes] {
					c[l] += second * math.Float32frombits(v&0xffff0000)
					c[l] += first * math.Float32frombits(v<<16)
				}
			}
		}
		p.finish(i, t, rows)
	}
}

// BFloat16 rounds a tile with an even number of values to bfloat16, in half as many words.
func (s *Set) BFloat16(dst []uint32, tile []float32) {
	var lost [Lanes]float32
	s.Round(dst, &lost, tile)
}

// Round is BFloat16 and also adds the squares of the rounding errors to lost, per lane. For
// a value that is not finite, lost becomes not finite.
func (s *Set) Round(dst []uint32, lost *[Lanes]float32, tile []float32) {
	pairs := len(tile) / (2 * Lanes)
	if dst = dst[:pairs*Lanes]; pairs == 0 {
		return
	}
	if s.bf16 {
		s.isa.narrow(dst, lost, tile)
		return
	}
	for i := range dst {
		at := i/Lanes*2*Lanes + i%Lanes
		low, high := RoundBFloat16(tile[at]), RoundBFloat16(tile[at+Lanes])
		dst[i] = uint32(low) | uint32(high)<<16
		x, y := tile[at]-WidenBFloat16(low), tile[at+Lanes]-WidenBFloat16(high)
		lost[i%Lanes] += x*x + y*y
	}
}

// WeightsInt8 is a matrix of int8, packed like Weights. It is immutable.
type WeightsInt8 struct {
	rows, cols int      // cols is a multiple of four
	panels     []uint32 // fours: low byte first
	wide       []uint32 // the same, widened to 16 bits: the second and the fourth, then the first and the third
	// −128·Σ of each row, for kernels that read the tile as unsigned, and zeros for others.
	bias, zeros []int32
}

// PackInt8 packs a matrix, given row by row in v. It adds zero columns up to a multiple of
// four. It returns ErrTooLong for more than MaxInt8 columns.
func PackInt8(rows, cols int, v []int8) (WeightsInt8, error) {
	w := WeightsInt8{rows: rows, cols: (cols + 3) &^ 3}
	if w.cols > MaxInt8 {
		return WeightsInt8{}, fmt.Errorf("%w: %d, at most %d; multiply in parts", ErrTooLong, w.cols, MaxInt8)
	}
	words := Padded(rows) * w.cols / 4
	w.panels, w.wide = make([]uint32, words), make([]uint32, 2*words)
	w.bias, w.zeros = make([]int32, Padded(rows)), make([]int32, Padded(rows))
	for r := range rows {
		at := r / 4 * w.cols
		for c, x := range v[r*cols:][:cols] {
			word := at + c/4*4 + r%4
			w.panels[word] |= uint32(uint8(x)) << (c % 4 * 8)
			w.wide[word*2+1-c%2] |= uint32(uint16(int16(x))) << (c % 4 / 2 * 16)
			w.bias[r] -= 128 * int32(x)
		}
	}
	return w, nil
}

// ProductInt8 describes a product of int8 weights with tiles. The fields have the same
// meaning as in Product.
type ProductInt8 struct {
	Tiles       int
	C           []int32
	CTile, CRow int
	Add         bool
	BTile       int // in words
	Ahead       *Ahead
}

// MultiplyInt8 computes the exact product with int8 tiles, which have as many values as w
// has columns.
func (s *Set) MultiplyInt8(w WeightsInt8, b []uint32, p *ProductInt8) {
	rows := Padded(w.rows)
	if rows == 0 || p.Tiles == 0 {
		return
	}
	if p.CRow == 0 {
		p.CRow = Lanes
	}
	last := p.Tiles - 1
	reach(b, last*p.BTile+w.cols/4*Lanes)
	_ = p.C[last*p.CTile+(rows-1)*p.CRow+Lanes-1]
	if !s.isa.hasAllAssembly() || w.cols == 0 {
		p.plain(w, b)
		return
	}
	args := productArgs{
		c: unsafe.Pointer(unsafe.SliceData(p.C)), w: unsafe.Pointer(unsafe.SliceData(w.wide)), b: unsafe.Pointer(unsafe.SliceData(b)),
		ahead: p.Ahead, steps: w.cols / 4, rows: rows, tiles: p.Tiles, cTile: p.CTile * 4, cRow: p.CRow * 4, bTile: p.BTile * 4,
	}
	if s.vnni {
		args.w, args.bias = unsafe.Pointer(unsafe.SliceData(w.panels)), unsafe.Pointer(unsafe.SliceData(w.bias))
	} else {
		args.bias = unsafe.Pointer(unsafe.SliceData(w.zeros))
	}
	if p.Add {
		args.flags = flagAdd
	}
	s.isa.productInt8(&args, s.vnni)
}

// GemmInt8 adds the exact product w·b to c. b is a tile with as many values as w has
// columns, c a tile with Padded(rows of w) values.
func (s *Set) GemmInt8(c []int32, w WeightsInt8, b []uint32) {
	s.MultiplyInt8(w, b, &ProductInt8{Tiles: 1, C: c, Add: true})
}

func (p *ProductInt8) plain(w WeightsInt8, b []uint32) {
	for t := range p.Tiles {
		for r := range Padded(w.rows) {
			c := p.C[t*p.CTile+r*p.CRow:][:Lanes]
			if !p.Add {
				clear(c)
			}
			for k := range w.cols / 4 {
				x := w.panels[r/4*w.cols+k*4+r%4]
				for l, y := range b[t*p.BTile+k*Lanes:][:Lanes] {
					for shift := 0; shift < 32; shift += 8 {
						c[l] += int32(int8(x>>shift)) * int32(int8(y>>shift))
					}
				}
			}
		}
	}
}

// Quantize writes v to dst as multiples of the returned scale, which is max |v| / 127. It
// rounds to nearest even, so that |scale·dst[i] − v[i]| ≤ scale/2·(1 + 2⁻²⁰). A vector of
// zeros has scale 0. If v has a number that is not finite, the scale is not finite.
func Quantize(dst []int8, v []float32) (scale float32) {
	var top, check float32
	for _, x := range v {
		top = max(top, x, -x)
		check += x * 0
	}
	scale = top/127 + check
	if !(scale > 0) || math.IsInf(float64(scale), 0) {
		clear(dst[:len(v)])
		return scale
	}
	inverse := 1 / float64(scale)
	for i, x := range v {
		dst[i] = int8(min(max(math.RoundToEven(float64(x)*inverse), -127), 127))
	}
	return scale
}
