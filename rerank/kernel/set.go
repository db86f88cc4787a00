package kernel

import (
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// Lanes is the number of candidates in a tile. A tile of n values per candidate has n·Lanes
// numbers; the values with the same index are adjacent.
const Lanes = 16

// Set is one implementation of the operations in which scoring spends its time. The sets
// agree within rounding, because each sums in its own order. Within a set, a candidate gets
// the same score alone and among others. A Set is immutable and safe for concurrent use.
type Set struct {
	name string
	isa  isa
	// bf16 and vnni: the processor has instructions for bfloat16 and int8 products.
	bf16, vnni bool
	// amx: the processor also has a matrix unit for bfloat16.
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

// hasAllAssembly reports whether the instruction set has assembly for every operation.
func (i isa) hasAllAssembly() bool { return i == avx2 || i == avx512 }

// Go returns the plain Go kernels, which are the reference for the others.
func Go() *Set { return &Set{name: "go", isa: plain} }

// Sets returns the implementations that this processor can run, the fastest last.
func Sets() []*Set { return append([]*Set{Go()}, accelerated()...) }

// Best returns the fastest implementation that this processor can run.
func Best() *Set { return best() }

var best = sync.OnceValue(func() *Set {
	sets := Sets()
	return sets[len(sets)-1]
})

// Named returns the implementation with the given name: "go", "avx2", "avx512" or "neon".
// "" means the best. It fails, listing the available names, if the processor cannot run it.
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

// MaxBatch is the greatest value that Batch returns.
const MaxBatch = 16

// Batch returns how many tiles a bfloat16 product should process per call. Two tiles share
// each load of the weights. A matrix unit takes long to start, so it should get more.
func (s *Set) Batch() int {
	if s.amx {
		return MaxBatch
	}
	return 2
}

// Name returns the name by which Named finds the set.
func (s *Set) Name() string { return s.name }

// SiLU replaces every x of v by x·sigmoid(x), with a relative error of at most 5·2⁻²⁴ for x
// ≥ 0 and (5 + 1.25·|x|)·2⁻²⁴ for −80 < x < 0. For smaller x, whose exact result is under
// 2e-33, the magnitude stays under 1e-30·|x|. NaN and infinities stay NaN or infinite.
func (s *Set) SiLU(v []float32) {
	if len(v) > 0 {
		s.isa.silu(v)
	}
}

// Exps replaces every x of v by eˣ for x ≤ 0, with a relative error of at most (5 + 1.25·|x|)·2⁻²⁴ for
// x > −80. For smaller x the result is below 2e-35. NaN stays NaN.
func (s *Set) Exps(v []float32) { s.isa.exps(v) }

// Mix writes Σ_l softmax(gates)_l·logits_l of every lane to out. Both tiles have the same
// number of values. If a gate or logit is not finite, the result is not finite.
func (s *Set) Mix(out *[Lanes]float32, logits, gates []float32) {
	s.isa.mix(out, logits, gates[:len(logits)])
}

// MulAdd adds a·b to c, element by element. The tiles have the same number of values.
func (s *Set) MulAdd(c, a, b []float32) {
	if len(c) > 0 {
		s.isa.madd(c, a[:len(c)], b[:len(c)])
	}
}

// Tile transposes sixteen rows of one length into lanes: dst[c·Lanes+l] = rows[l][c].
func (s *Set) Tile(dst []float32, rows *[Lanes][]float32) {
	n := len(rows[0])
	for l := range rows {
		rows[l] = rows[l][:n]
	}
	if n > 0 {
		s.isa.tile(dst[:n*Lanes], rows)
	}
}

// Normalise computes the same bits as rerank.Normalise.
func (s *Set) Normalise(v []float32) {
	norm := rerank.Norm(v)
	if norm > math.MaxFloat32 {
		rerank.Normalise(v)
		return
	}
	s.isa.divide(v, float32(max(norm, math.SmallestNonzeroFloat32)))
}

// Rows is the function Rows for this set.
func (s *Set) Rows(dst, v []float32, m rerank.Matrix, rows []int32) {
	if len(v) == 0 {
		clear(dst)
		return
	}
	s.isa.rows(dst, v, m, rows)
}

// Squares writes ⟨x, x⟩ of the selected rows x of m to dst. rows has the same meaning as in
// Rows.
func (s *Set) Squares(dst []float32, m rerank.Matrix, rows []int32) {
	if m.Cols == 0 {
		clear(dst)
		return
	}
	s.isa.rows(dst, nil, m, rows)
}

// MulT is the function MulT for this set.
func (s *Set) MulT(dst []float32, stride int, a, b rerank.Matrix, bias []float32) {
	if s.isa == plain { // the function reads each row of b once for two rows of a
		MulT(dst, stride, a, b, bias)
		return
	}
	block := b.Rows
	if a.Rows > 1 { // a block of b stays in the cache for all rows of a
		block = max(4, mulBlock/max(b.Cols, 1)&^3)
	}
	for from := 0; from < b.Rows; from += block {
		to := min(from+block, b.Rows)
		part, r := b.Slice(from, to), 0
		for ; s.isa.hasCached(part) && r+cachedVectors <= a.Rows; r += cachedVectors {
			s.isa.cached(dst[r*stride+from:], stride, a.Slice(r, r+cachedVectors), part)
		}
		for ; r < a.Rows; r++ {
			s.Rows(dst[r*stride+from:][:to-from], a.Row(r), part, nil)
		}
	}
	for r := range a.Rows {
		out := dst[r*stride:][:b.Rows]
		for c, v := range bias {
			out[c] += v
		}
	}
}

// cachedVectors is how many vectors cached multiplies with each row that it loads.
const cachedVectors = 3

// mulBlock is the size of such a block in numbers: about half of a first-level cache.
const mulBlock = 6 << 10

// GatherColumns copies columns [from, to) of sixteen rows of m into lanes:
// dst[(c−from)·Lanes+l] = m.Row(rows[l])[c].
func (s *Set) GatherColumns(dst []float32, m rerank.Matrix, rows *[Lanes]int32, from, to int) {
	if n := to - from; n > 0 {
		for _, r := range rows {
			_ = m.Data[int(r)*m.Cols+to-1] // the assembly does not check bounds
		}
		s.isa.gather(dst[:n*Lanes], m, rows, from)
	}
}
