package kernel

import (
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// Lanes is the number of candidates in a tile. A tile of n values a candidate is
// n·Lanes numbers: the values of one index side by side.
const Lanes = 16

// Set is one implementation of the loops that scoring spends its time in. The
// sets agree within rounding, since each sums in its own order; in every one of
// them a candidate scores the same alone and among others. A Set is immutable
// and safe for concurrent use.
type Set struct {
	name string
	isa  isa
	// bf16, vnni: the processor multiplies bfloat16, int8.
	bf16, vnni bool
	// amx: it has a unit for matrices of bfloat16, too.
	amx bool
}

// isa is an instruction set.
type isa int

const (
	plain isa = iota
	avx2
	avx512
	neon
)

// hasAllAssembly: the instruction set has assembly for everything.
func (i isa) hasAllAssembly() bool { return i == avx2 || i == avx512 }

// Go returns the plain Go kernels, which the others are tested against.
func Go() *Set { return &Set{name: "go", isa: plain} }

// Sets returns the implementations that this processor runs, the fastest last.
func Sets() []*Set { return append([]*Set{Go()}, accelerated()...) }

// Best returns the fastest implementation that this processor runs.
func Best() *Set { return best() }

var best = sync.OnceValue(func() *Set {
	sets := Sets()
	return sets[len(sets)-1]
})

// Named returns the implementation of a name, "go", "avx2", "avx512" or
// "neon"; the best
// one for "". It fails, with the names there are, where the processor lacks it.
func Named(name string) (*Set, error) {
	if name == "" {
		return Best(), nil
	}
	var have []string
	for _, s := range Sets() {
		if s.name == name {
			return s, nil
		}
		have = append(have, s.name)
	}
	return nil, fmt.Errorf("kernel %q: this processor runs %q", name, have)
}

// MaxBatch is the most that Batch returns.
const MaxBatch = 16

// Batch is how many tiles products of bfloat16 should get at once: two share what is loaded of the weights; a unit
// for matrices takes as long to begin as to multiply some.
func (s *Set) Batch() int {
	if s.amx {
		return MaxBatch
	}
	return 2
}

// Name is what Named finds the set by.
func (s *Set) Name() string { return s.name }

// SiLU replaces every x of v by x·sigmoid(x), with a relative error of at most
// 5·2⁻²⁴ for x ≥ 0 and (5 + 1.25·|x|)·2⁻²⁴ for −80 < x < 0; below, where the value is
// under 2e-33, it stays under 1e-30·|x|. What is not finite stays so.
func (s *Set) SiLU(v []float32) {
	if len(v) > 0 {
		s.isa.silu(v)
	}
}

// Mix writes Σ_l softmax(gates)_l·logits_l of every lane to out; both are tiles
// of as many values. A gate or logit that is not finite gives a result that is not.
func (s *Set) Mix(out *[Lanes]float32, logits, gates []float32) {
	s.isa.mix(out, logits, gates[:len(logits)])
}

// MulAdd adds a·b to c, element by element, of tiles of as many values.
func (s *Set) MulAdd(c, a, b []float32) {
	if len(c) > 0 {
		s.isa.madd(c, a[:len(c)], b[:len(c)])
	}
}

// Tile puts sixteen rows of one length into lanes: dst[c·Lanes+l] = rows[l][c].
func (s *Set) Tile(dst []float32, rows *[Lanes][]float32) {
	n := len(rows[0])
	for l := range rows {
		rows[l] = rows[l][:n]
	}
	if n > 0 {
		s.isa.tile(dst[:n*Lanes], rows)
	}
}

// Normalise is rerank.Normalise, to the bit.
func (s *Set) Normalise(v []float32) {
	norm := rerank.Norm(v)
	if norm > math.MaxFloat32 {
		rerank.Normalise(v)
		return
	}
	s.isa.divide(v, float32(max(norm, math.SmallestNonzeroFloat32)))
}

// Rows is the function Rows.
func (s *Set) Rows(dst, v []float32, m rerank.Matrix, rows []int32) {
	if len(v) == 0 {
		clear(dst)
		return
	}
	s.isa.rows(dst, v, m, rows)
}

// Squares writes ⟨x, x⟩ of the rows x of m to dst, as Rows does their products.
func (s *Set) Squares(dst []float32, m rerank.Matrix, rows []int32) {
	if m.Cols == 0 {
		clear(dst)
		return
	}
	s.isa.rows(dst, nil, m, rows)
}

// MulT is the function MulT.
func (s *Set) MulT(dst []float32, stride int, a, b rerank.Matrix, bias []float32) {
	if s.isa == plain { // its tiles read every row of b for two rows of a
		MulT(dst, stride, a, b, bias)
		return
	}
	block := b.Rows
	if a.Rows > 1 { // the rows that one row of a brought into the cache serve the others
		block = max(4, mulBlock/max(b.Cols, 1)&^3)
	}
	for from := 0; from < b.Rows; from += block {
		to := min(from+block, b.Rows)
		for r := range a.Rows {
			s.Rows(dst[r*stride+from:][:to-from], a.Row(r), b.Slice(from, to), nil)
		}
	}
	for r := range a.Rows {
		out := dst[r*stride:][:b.Rows]
		for c, v := range bias {
			out[c] += v
		}
	}
}

// mulBlock is how many numbers MulT reads for all rows in turn: half of a first cache.
const mulBlock = 6 << 10

// GatherColumns puts columns [from, to) of sixteen rows of m into lanes:
// dst[(c−from)·Lanes+l] = m.Row(rows[l])[c].
func (s *Set) GatherColumns(dst []float32, m rerank.Matrix, rows *[Lanes]int32, from, to int) {
	if n := to - from; n > 0 {
		for _, r := range rows {
			_ = m.Data[int(r)*m.Cols+to-1] // the assembly does not look
		}
		s.isa.gather(dst[:n*Lanes], m, rows, from)
	}
}
