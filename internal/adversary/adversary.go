// Package adversary generates feature rows on which bounds of rounding errors are nearly
// attained, for tests.
//
// With random rows the errors of single numbers have random signs and cancel, so every
// bound holds by a wide margin. A bound that is halved, or lacks a term, would pass every
// test. In the rows of this package, errors have the same direction, rows tie or differ
// only in the last bit of a number, or norms range from one end of float32 to the other.
package adversary

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/rerank"
)

// share is the distance of each number from the nearest number of the format, relative to
// the step between two of them. Just under one half gives nearly the greatest error.
const share = 0.49

// RoundedDown returns a row whose score is lowered by packing as much as possible. The
// error x − x̂ of every block is parallel to that block of u, so that ⟨u, x⟩ − ⟨u, x̂⟩
// nearly reaches its upper limit ‖u‖·‖x − x̂‖ (Cauchy and Schwarz). size must be a power of
// two; the numbers of the row lie between size and 2·size, or below 128·size for
// FormatInt8. For −u packing raises the score by the same amount. FormatFloat32 loses
// nothing.
func RoundedDown(rng *rand.Rand, p rerank.Packing, u []float32, size float64) []float32 {
	row := make([]float32, p.Cols)
	for b := range p.Blocks() {
		from, to := p.Values(b)
		roundedDown(rng, p.Format, row[from:to], u[from:to], size)
	}
	return row
}

func roundedDown(rng *rand.Rand, f rerank.Format, row, u []float32, size float64) {
	least, most := 0, 0.0
	for i, v := range u {
		if math.Abs(float64(v)) < math.Abs(float64(u[least])) {
			least = i
		}
		most = math.Max(most, math.Abs(float64(v)))
	}
	for i := range row {
		grid, step := gridPoint(rng, f, size)
		if most > 0 {
			grid += share * step * float64(u[i]) / most
		}
		row[i] = float32(grid)
	}
	if f == rerank.FormatInt8 { // the greatest number decides the scale and is stored exactly
		row[least] = float32(127 * size)
	}
}

// gridPoint returns a number that the format can represent, and the step to the next
// number.
func gridPoint(rng *rand.Rand, f rerank.Format, size float64) (x, step float64) {
	switch f {
	case rerank.FormatBFloat16:
		step = size * 0x1p-7
	case rerank.FormatFloat16:
		step = size * 0x1p-10
	case rerank.FormatInt8:
		return size * float64(rng.IntN(201)-100), size
	default:
		step = size * 0x1p-23
	}
	x = size + step*float64(1+rng.IntN(int(size/step)-1))
	return math.Copysign(x, rng.Float64()-0.5), step
}

// ExactlyPacked returns a row that the format can represent exactly, with numbers as in
// RoundedDown.
func ExactlyPacked(rng *rand.Rand, p rerank.Packing, size float64) []float32 {
	return RoundedDown(rng, p, make([]float32, p.Cols), size)
}

// SplitDown returns a query vector of n numbers between 1 and 2 in magnitude that the sum
// of two bfloat16 numbers cannot represent. The error of each number is as large as
// possible and has the sign of the number.
func SplitDown(rng *rand.Rand, n int) []float32 {
	u := make([]float32, n)
	for i := range u {
		// The upper half leaves a remainder just below 2⁻⁸, where bfloat16 has steps of
		// 2⁻¹⁶. Nearly half of such a step is lost.
		low := 0x1p-8 - 0x1p-12*float64(1+rng.IntN(7)) - 0x1p-16 + 0x1p-17 - 0x1p-23
		u[i] = float32(math.Copysign(1+0x1p-7*float64(1+rng.IntN(120))+low, rng.Float64()-0.5))
	}
	return u
}

// Parallel returns a row parallel to v with the given norm, rounded so that the format can
// represent it exactly.
func Parallel(p rerank.Packing, v []float64, norm float64) []float32 {
	var squares float64
	for _, x := range v {
		squares += x * x
	}
	row := make([]float32, len(v))
	for i, x := range v {
		row[i] = float32(x / math.Sqrt(squares) * norm)
	}
	words := make([]uint32, p.RowWords())
	p.Pack(words, row)
	p.Unpack(row, words, 1)
	return row
}

// Kind says in which way a row is unusual.
type Kind int

// The kinds of Mix.
const (
	Plain    Kind = iota // normal numbers
	Tie                  // equal to an earlier row
	NearTie              // one number differs from an earlier row in the last bit
	Zero                 // nothing but zeros
	Huge                 // a norm near 10⁴
	Tiny                 // a norm near 10⁻¹⁸, whose square barely fits float32
	Lone                 // one number far above the others
	Denormal             // subnormal numbers
	Odd                  // a number that is not finite
)

// Finite returns all kinds except Odd.
func Finite() []Kind { return []Kind{Plain, Tie, NearTie, Zero, Huge, Tiny, Lone, Denormal} }

// Mix returns rows of the given kinds, each with the same probability.
func Mix(rng *rand.Rand, rows, cols int, kinds ...Kind) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for r := range rows {
		row := m.Row(r)
		for i := range row {
			row[i] = float32(rng.NormFloat64())
		}
		at := rng.IntN(cols)
		switch kinds[rng.IntN(len(kinds))] {
		case Plain:
		case Tie:
			copy(row, m.Row(rng.IntN(r+1)))
		case NearTie:
			copy(row, m.Row(rng.IntN(r+1)))
			row[at] = math.Nextafter32(row[at], float32(math.Inf(1-2*rng.IntN(2))))
		case Zero:
			clear(row)
		case Huge:
			scale(row, 1e4/rerank.Norm(row))
		case Tiny:
			scale(row, 1e-18/rerank.Norm(row))
		case Lone:
			row[at] *= 1e3
		case Denormal:
			scale(row, 0x1p-140)
		case Odd:
			row[at] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[rng.IntN(3)])
		}
	}
	return m
}

func scale(row []float32, by float64) {
	for i := range row {
		row[i] = float32(float64(row[i]) * by)
	}
}

// Dot returns ⟨a, b⟩ in float64, the reference for every product. Its own error is less
// than len(a)·2⁻⁵³·‖a‖·‖b‖, which is 2⁻²⁹ of the error of float32.
func Dot(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}
