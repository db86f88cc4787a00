package rerank

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank/internal/half"
)

// Format is how the numbers of a feature row are stored.
type Format string

// The formats. A bfloat16 is the upper half of a float32 (8 bits of precision, the
// same range), a float16 has 11 bits of precision and ends at 65,504. Int8 has
// whole numbers from −127 to 127 and a scale for every block of a row.
const (
	FormatFloat32  Format = "float32"
	FormatBFloat16 Format = "bfloat16"
	FormatFloat16  Format = "float16"
	FormatInt8     Format = "int8"
)

// Formats lists every format, the widest first.
func Formats() []Format {
	return []Format{FormatFloat32, FormatBFloat16, FormatFloat16, FormatInt8}
}

// perWord is the number of values in a word of 32 bits; 0: no such format.
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

// Lanes is the number of rows of a tile.
const Lanes = 16

// Packing says how a feature row lies in words of 32 bits: for FormatInt8 the
// scales of its blocks (float32 bits, a word each), then the values of one block
// after the other. A block begins with a new word; what its last word has left
// is zero. Value v of a block lies in word v/2, the lower half first, for the
// formats of 16 bits, and in word v/4, the lowest byte first, for FormatInt8.
type Packing struct {
	Format Format
	// Cols is the length of a row, Block that of a sub-vector, such as a component
	// of a MoL (Spec.Block); the last block may be shorter. 0 is one block.
	Cols, Block int
}

// Check wants a known format, and numbers that are not negative.
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

// Blocks is the number of blocks of a row.
func (p Packing) Blocks() int { return (p.Cols + p.block() - 1) / p.block() }

// Values returns the columns [from, to) of block b.
func (p Packing) Values(b int) (from, to int) {
	return b * p.block(), min((b+1)*p.block(), p.Cols)
}

// Scales is the number of words in front of the values.
func (p Packing) Scales() int {
	if p.Format == FormatInt8 {
		return p.Blocks()
	}
	return 0
}

// Words returns the words [from, to) of the values of block b.
func (p Packing) Words(b int) (from, to int) {
	per, size := p.Format.perWord(), p.block()
	first, last := p.Values(b)
	from = p.Scales() + b*((size+per-1)/per)
	return from, from + (last-first+per-1)/per
}

// RowWords is the number of words of a row.
func (p Packing) RowWords() int {
	_, to := p.Words(p.Blocks() - 1)
	return to
}

// Pack writes row, of Cols numbers, to dst, of RowWords words, each number
// rounded to the nearest one of the format. It reports false if a finite number
// became infinite. A block of FormatInt8 with a number that is not finite has a
// scale that is not.
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

// packInt8 returns the scale.
func packInt8(words []uint32, values []float32) float32 {
	clear(words)
	var top, check float32 // check is NaN if a value is not finite
	for _, v := range values {
		top = max(top, v, -v)
		check += v * 0
	}
	scale := top/127 + check
	if !(scale > 0) { // all zero, too small for a scale, or not finite
		return scale
	}
	for i, v := range values {
		n := int8(max(-127, min(127, math.RoundToEven(float64(v)/float64(scale)))))
		words[i/4] |= uint32(uint8(n)) << (8 * (i & 3))
	}
	return scale
}

// Unpack writes the numbers of a packed row to dst, of Cols numbers. Word w of
// the row is words[w·stride]: 1 for a row, Lanes for a lane of a tile.
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

// Packed is feature rows of a packing, possibly mapped read-only.
type Packed struct {
	Packing
	Rows int
	// Tiled: sixteen rows lie side by side, word w of row r in
	// Words[(r/Lanes·RowWords + w)·Lanes + r%Lanes], absent rows of the last tile
	// zero. Otherwise row r has the words from r·RowWords on.
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

// Tile returns the words of tile t, the rows from t·Lanes on, where Tiled.
func (p *Packed) Tile(t int) []uint32 {
	n := p.RowWords() * Lanes
	return p.Words[t*n : (t+1)*n : (t+1)*n]
}

// Row32 writes row r to dst, of Cols numbers.
func (p *Packed) Row32(dst []float32, r int) {
	words, stride := p.Row(r)
	p.Unpack(dst, words, stride)
}

// Tiles is the number of tiles that hold all rows.
func (p *Packed) Tiles() int { return (p.Rows + Lanes - 1) / Lanes }

// check wants the words of all rows.
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

// Loss says what packing lost of some rows, and how long those are: maxima over
// the rows x, packed to x̂, rounded up. Rows that are not finite do not count.
type Loss struct {
	// Row is of whole rows, Blocks of each block of Block numbers.
	Row    Extent
	Block  int
	Blocks []Extent
}

// Extent is the greatest ‖x − x̂‖, and the greatest ‖x‖ and ‖x̂‖; +Inf: not known.
type Extent struct {
	Lost, Norm float32
}

// NewLoss is the loss of no row.
func NewLoss(p Packing) Loss { return Loss{Block: p.block(), Blocks: make([]Extent, p.Blocks())} }

// Add counts a row x that was packed to y.
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

// Merge makes l the loss of both sets of rows; m has as many blocks, or none.
func (l *Loss) Merge(m Loss) {
	l.Row = l.Row.max(m.Row)
	for b, e := range m.Blocks {
		l.Blocks[b] = l.Blocks[b].max(e)
	}
}

func (e Extent) max(o Extent) Extent { return Extent{max(e.Lost, o.Lost), max(e.Norm, o.Norm)} }

// squareSums is sums of squares.
type squareSums struct{ lost, norm, packed float64 }

func (e Extent) widen(s squareSums) Extent {
	if sum := s.lost + s.norm + s.packed; sum-sum != 0 {
		return e
	}
	return e.max(Extent{Lost: roundUp(math.Sqrt(s.lost)), Norm: roundUp(math.Sqrt(max(s.norm, s.packed)))})
}

// roundUp is a float32 that is not below x, nor below what x was computed from:
// sums of less than 2²⁰ squares in float64.
func roundUp(x float64) float32 {
	f := float32(x * (1 + 1e-9))
	if float64(f) < x*(1+1e-9) {
		return math.Nextafter32(f, math.MaxFloat32)
	}
	return f
}

// Rounder is implemented by an Encoded that bounds what the loss of packed rows
// does to a score.
type Rounder interface {
	// RoundingError bounds |φ(q, x̂) − φ(q, x)|, in units of φ, for rows x that were
	// packed to x̂ with no more than that loss; both are scored without error. +Inf:
	// no bound is known.
	RoundingError(l Loss) float32
}
