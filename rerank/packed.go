package rerank

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/internal/half"
)

// Format is the number format of a stored feature row.
type Format string

// The formats. bfloat16 is the upper half of a float32: 8 bits of precision and the range
// of float32. float16 has 11 bits of precision and a largest value of 65,504. int8 stores
// integers from −127 to 127 and one scale for each block of a row.
const (
	FormatFloat32  Format = "float32"
	FormatBFloat16 Format = "bfloat16"
	FormatFloat16  Format = "float16"
	FormatInt8     Format = "int8"
)

// Formats lists every format, the most precise first.
func Formats() []Format {
	return []Format{FormatFloat32, FormatBFloat16, FormatFloat16, FormatInt8}
}

// perWord returns how many values a 32-bit word holds; 0 for an unknown format.
func (f Format) perWord() int {
	switch f {
	case FormatFloat32:
		return 1
	case FormatBFloat16, FormatFloat16:
		return 2
	case FormatInt8:
		return 4
	default:
		return 0
	}
}

// Lanes is the number of rows in a tile.
const Lanes = 16

// Packing is the layout of a feature row in 32-bit words. A FormatInt8 row begins with the
// scales of its blocks (float32 bits, one word each); the values follow, block after block.
// Each block starts at a new word, and unused bits of its last word are zero. Value v of a
// block lies in word v/2, lower half first, for the 16-bit formats, and in word v/4, lowest
// byte first, for FormatInt8.
type Packing struct {
	Format Format
	// Cols is the length of a row, Block the length of a sub-vector, such as a component of
	// a MoL (Spec.Block). The last block may be shorter. Block 0 makes the whole row one
	// block.
	Cols, Block int
}

// Check returns an error if the format is unknown or the sizes are out of range.
func (p Packing) Check() error {
	switch {
	case p.Format.perWord() == 0:
		return fmt.Errorf("format %q is none of %q", p.Format, Formats())
	case p.Cols < 1 || p.Block < 0 || p.Block > p.Cols:
		return fmt.Errorf("rows of %d numbers in blocks of %d", p.Cols, p.Block)
	}
	return nil
}

func (p Packing) block() int {
	if p.Block == 0 {
		return p.Cols
	}
	return p.Block
}

// Blocks returns the number of blocks of a row.
func (p Packing) Blocks() int { return (p.Cols + p.block() - 1) / p.block() }

// Values returns the columns [from, to) of block b.
func (p Packing) Values(b int) (from, to int) {
	return b * p.block(), min((b+1)*p.block(), p.Cols)
}

// Scales returns the number of words in front of the values.
func (p Packing) Scales() int {
	if p.Format == FormatInt8 {
		return p.Blocks()
	}
	return 0
}

// Words returns the range [from, to) of the words that hold the values of block b.
func (p Packing) Words(b int) (from, to int) {
	per, size := p.Format.perWord(), p.block()
	first, last := p.Values(b)
	from = p.Scales() + b*((size+per-1)/per)
	return from, from + (last-first+per-1)/per
}

// RowWords returns the number of words of a row.
func (p Packing) RowWords() int {
	_, to := p.Words(p.Blocks() - 1)
	return to
}

// Pack rounds row (Cols numbers) to the format and writes it to dst (RowWords words). It
// reports false if a finite number became infinite. If a FormatInt8 block contains a NaN or
// an infinity, its scale is not finite.
func (p Packing) Pack(dst []uint32, row []float32) bool {
	fits := true
	for b := range p.Blocks() {
		first, last := p.Values(b)
		from, to := p.Words(b)
		switch values, words := row[first:last], dst[from:to]; p.Format {
		case FormatFloat32:
			for i, v := range values {
				words[i] = math.Float32bits(v)
			}
		case FormatInt8:
			dst[b] = math.Float32bits(packInt8(words, values))
		case FormatBFloat16:
			fits = packHalves(words, values, half.ToBFloat16, half.BFloat16) && fits
		default:
			fits = packHalves(words, values, half.ToFloat16, half.Float16) && fits
		}
	}
	return fits
}

func packHalves(words []uint32, values []float32, narrow func(float32) uint16, widen func(uint16) float32) bool {
	clear(words)
	fits := true
	for i, v := range values {
		h := narrow(v)
		words[i/2] |= uint32(h) << (16 * (i & 1))
		fits = fits && (v-v != 0 || widen(h)-widen(h) == 0)
	}
	return fits
}

// packInt8 rounds values into words and returns their scale.
func packInt8(words []uint32, values []float32) float32 {
	clear(words)
	var top, check float32 // check is NaN if a value is not finite
	for _, v := range values {
		top = max(top, v, -v)
		check += v * 0
	}
	scale := top/127 + check
	if math.IsInf(float64(scale*127), 1) { // the greatest number would become infinite
		scale = math.Nextafter32(scale, 0)
	}
	if !(scale > 0) { // all zero, too small for a scale, or not finite
		return scale
	}
	for i, v := range values {
		n := int8(max(-127, min(127, math.RoundToEven(float64(v)/float64(scale)))))
		words[i/4] |= uint32(uint8(n)) << (8 * (i & 3))
	}
	return scale
}

// Unpack writes the numbers of a packed row to dst (Cols numbers). Word w of the row is
// words[w·stride]; stride is 1 for a row on its own and Lanes for a row of a tile.
func (p Packing) Unpack(dst []float32, words []uint32, stride int) {
	for b := range p.Blocks() {
		first, last := p.Values(b)
		from, _ := p.Words(b)
		values, src := dst[first:last], words[from*stride:]
		switch p.Format {
		case FormatFloat32:
			for i := range values {
				values[i] = math.Float32frombits(src[i*stride])
			}
		case FormatInt8:
			scale := math.Float32frombits(words[b*stride])
			for i := range values {
				values[i] = float32(int8(src[i/4*stride]>>(8*(i&3)))) * scale
			}
		case FormatBFloat16:
			for i := range values {
				values[i] = half.BFloat16(uint16(src[i/2*stride] >> (16 * (i & 1))))
			}
		default:
			for i := range values {
				values[i] = half.Float16(uint16(src[i/2*stride] >> (16 * (i & 1))))
			}
		}
	}
}

// Packed holds feature rows in a Packing. Its memory may be mapped read-only.
type Packed struct {
	Packing
	Rows int
	// Tiled means that sixteen rows are interleaved: word w of row r is
	// Words[(r/Lanes·RowWords + w)·Lanes + r%Lanes], and missing rows of the last tile are
	// zero. Otherwise row r starts at word r·RowWords.
	Tiled bool
	Words []uint32
}

// Row returns the words of row r, and the stride between them for Unpack.
func (p *Packed) Row(r int) (words []uint32, stride int) {
	n := p.RowWords()
	if p.Tiled {
		return p.Words[r/Lanes*n*Lanes+r%Lanes : (r/Lanes+1)*n*Lanes], Lanes
	}
	return p.Words[r*n : (r+1)*n], 1
}

// Tile returns the words of tile t, which holds the rows from t·Lanes on. It needs Tiled.
func (p *Packed) Tile(t int) []uint32 {
	n := p.RowWords() * Lanes
	return p.Words[t*n : (t+1)*n : (t+1)*n]
}

// Row32 unpacks row r into dst (Cols numbers).
func (p *Packed) Row32(dst []float32, r int) {
	words, stride := p.Row(r)
	p.Unpack(dst, words, stride)
}

// Tiles returns how many tiles all rows fill.
func (p *Packed) Tiles() int { return (p.Rows + Lanes - 1) / Lanes }

// check returns ErrItems if Words is too short for all rows.
func (p *Packed) check() error {
	rows := p.Rows
	if p.Tiled {
		rows = p.Tiles() * Lanes
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrItems, err)
	}
	if want := rows * p.RowWords(); p.Rows < 0 || len(p.Words) < want {
		return fmt.Errorf("%w: %d words are less than the %d of %d packed rows", ErrItems, len(p.Words), want, p.Rows)
	}
	return nil
}

// Loss records the rounding error of packed rows and the rows' norms. Each number is a
// maximum over the rows x, packed to x̂, rounded up. Rows that are not finite are ignored.
type Loss struct {
	// Row is the loss of whole rows; Blocks[b] is the loss of block b, which has Block
	// numbers.
	Row    Extent
	Block  int
	Blocks []Extent
}

// Extent holds two maxima: Lost over ‖x − x̂‖, and Norm over both ‖x‖ and ‖x̂‖. +Inf means
// unknown.
type Extent struct {
	Lost, Norm float32
}

// NewLoss returns the loss of an empty set of rows.
func NewLoss(p Packing) Loss { return Loss{Block: p.block(), Blocks: make([]Extent, p.Blocks())} }

// Add records a row x whose packed numbers are y.
func (l *Loss) Add(p Packing, x, y []float32) {
	var row squareSums
	for b := range l.Blocks {
		first, last := p.Values(b)
		var e squareSums
		for i, v := range x[first:last] {
			w := y[first+i]
			d := float64(v) - float64(w)
			e.lost += d * d
			e.norm += float64(v) * float64(v)
			e.packed += float64(w) * float64(w)
		}
		l.Blocks[b] = l.Blocks[b].widen(e)
		row = squareSums{row.lost + e.lost, row.norm + e.norm, row.packed + e.packed}
	}
	l.Row = l.Row.widen(row)
}

// Merge adds the rows that m has recorded to l. m has as many blocks as l, or none.
func (l *Loss) Merge(m Loss) {
	l.Row = l.Row.max(m.Row)
	for b, e := range m.Blocks {
		l.Blocks[b] = l.Blocks[b].max(e)
	}
}

func (e Extent) max(o Extent) Extent { return Extent{max(e.Lost, o.Lost), max(e.Norm, o.Norm)} }

// squareSums holds sums of squares over a row or a block: of x − x̂, of x and of x̂.
type squareSums struct{ lost, norm, packed float64 }

func (e Extent) widen(s squareSums) Extent {
	if sum := s.lost + s.norm + s.packed; sum-sum != 0 {
		return e
	}
	return e.max(Extent{Lost: roundUp(math.Sqrt(s.lost)), Norm: roundUp(math.Sqrt(max(s.norm, s.packed)))})
}

// roundUp returns a float32 that is at least x, and at least the exact sum of fewer than
// 2²⁰ squares that x rounds to float64.
func roundUp(x float64) float32 {
	f := float32(x * (1 + 1e-9))
	if float64(f) < x*(1+1e-9) {
		return math.Nextafter32(f, math.MaxFloat32)
	}
	return f
}

// Rounder is implemented by an Encoded that bounds how packing moves a score.
type Rounder interface {
	// RoundingError bounds |φ(q, x̂) − φ(q, x)|, in units of φ, for all rows x packed to x̂
	// within the given loss, when both are scored in exact arithmetic. +Inf means that no
	// bound is known.
	RoundingError(l Loss) float32
}
