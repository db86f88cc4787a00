package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// scratch is what a call needs besides its results. It is pooled.
type scratch struct {
	base, hidden []float32
	// Tiles of sixteen candidates: feature rows, the logits of one item
	// component, all logits over τ, the gates and their hidden layer.
	rows, block, logits, gates, gateHidden []float32
	words                                  []uint32 // a tile of packed rows
}

// lanes puts the feature rows of the items from one on, at most sixteen, into a
// tile; lanes behind the last repeat it.
func (s *Similarity) lanes(sc *scratch, items rerank.Items, from, end int) []float32 {
	x := grow(&sc.rows, s.spec.Features*kernel.Lanes)
	var numbers [kernel.Lanes]int32
	for l := range numbers {
		i := min(from+l, end-1)
		numbers[l] = int32(i)
		if items.Rows != nil {
			numbers[l] = items.Rows[i]
		}
	}
	if p := items.Packed; p != nil {
		words := grow(&sc.words, p.RowWords()*kernel.Lanes)
		s.kernels.Gather(words, p, &numbers)
		s.kernels.Widen(x, p.Packing, words)
		return x
	}
	var rows [kernel.Lanes][]float32
	for l, r := range numbers {
		rows[l] = items.Features.Row(int(r))
	}
	s.kernels.Tile(x, &rows)
	return x
}

func (s *Similarity) borrow() *scratch { return s.scratch.Get().(*scratch) }

// grow returns n numbers of *v, which keeps them.
func grow[T float32 | uint32](v *[]T, n int) []T {
	if cap(*v) < n {
		*v = make([]T, n)
	}
	return (*v)[:n]
}

// rowAt is the feature row of item i.
func rowAt(items rerank.Items, i int) []float32 {
	if items.Rows != nil {
		i = int(items.Rows[i])
	}
	if items.Packed != nil {
		return items.Row(i, make([]float32, items.Packed.Cols))
	}
	return items.Features.Row(i)
}

// Score implements rerank.Encoded. Candidates lie in the lanes of tiles, so that
// the gates' weights are read once for sixteen. The renormalisation of models
// trained with dropout of the softmax changes one rounding and is left out.
func (e *encoded) Score(dst []float32, items rerank.Items) error {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return err
	}
	sc := e.s.borrow()
	defer e.s.scratch.Put(sc)
	var out [kernel.Lanes]float32
	for from := 0; from < len(dst); from += kernel.Lanes {
		e.tile(sc, items, from, len(dst))
		e.s.kernels.Mix(&out, sc.logits, sc.gates)
		copy(dst[from:], out[:])
	}
	return nil
}

// tile leaves the logits over τ and the inputs of the softmax of the items from
// one on, at most sixteen, in the scratch; lanes behind the last repeat it.
func (e *encoded) tile(sc *scratch, items rerank.Items, from, end int) {
	s, n := e.s, e.s.c.pairs()*kernel.Lanes
	x := s.lanes(sc, items, from, end)
	sc.logits = grow(&sc.logits, n)
	e.logitTile(sc, x)
	if !s.c.normalised() {
		e.see(sc.logits)
	}
	gates := grow(&sc.gates, kernel.Padded(s.c.pairs())*kernel.Lanes)
	if s.byPair.exists() {
		s.byPair.tile(s.kernels, gates, sc.logits, grow(&sc.gateHidden, kernel.Padded(s.byPair.hidden())*kernel.Lanes))
	} else {
		clear(gates)
	}
	sc.gates = gates[:n]
	e.combine(sc.gates, x[s.c.PairsItem*s.c.Dim*kernel.Lanes:])
}

// logitTile computes the logits of one item component after the other and puts
// them in the order i·P_X + j.
func (e *encoded) logitTile(sc *scratch, x []float32) {
	c := &e.s.c
	block, size := grow(&sc.block, kernel.Padded(c.PairsQuery)*kernel.Lanes), c.Dim*kernel.Lanes
	for j := range c.PairsItem {
		clear(block)
		e.s.kernels.Gemm(block, e.scaled, x[j*size:(j+1)*size])
		for i := range c.PairsQuery {
			copy(sc.logits[(i*c.PairsItem+j)*kernel.Lanes:][:kernel.Lanes], block[i*kernel.Lanes:])
		}
	}
}

// lane writes the values of one lane of a tile to dst.
func (s *Similarity) lane(dst, tile []float32, l int) {
	for i := range dst {
		dst[i] = tile[i*kernel.Lanes+l]
	}
}

// dots writes ⟨f_i, g_j⟩ of an item to dst[i·P_X+j].
func (e *encoded) dots(dst, row []float32) {
	c := &e.s.c
	item := rerank.Matrix{Rows: c.PairsItem, Cols: c.Dim, Data: row[:c.PairsItem*c.Dim]}
	kernel.MulT(dst, c.PairsItem, e.components, item, nil)
}

// combine makes the inputs of the softmax of the logits' part, in place; item is
// the item's part, empty if there is none. All are tiles.
func (e *encoded) combine(gates, item []float32) {
	if e.s.c.Combination == GLUSiLU {
		e.s.kernels.MulAdd(gates, e.gates, item)
		e.s.kernels.SiLU(gates)
		return
	}
	for i, v := range e.gates {
		gates[i] += v
	}
	for i, v := range item {
		gates[i] += v
	}
}

// probabilities is the softmax; with dropout in training, RAILS divides by the
// sum once more.
func (s *Similarity) probabilities(gate []float32) {
	kernel.Softmax(gate)
	if s.c.SoftmaxDropout <= 0 {
		return
	}
	var sum float32
	for _, v := range gate {
		sum += v
	}
	scale := 1 / max(sum, 1e-6)
	for l := range gate {
		gate[l] *= scale
	}
}

// Explain implements rerank.Explainer with one term a pair of components.
func (e *encoded) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	scores := make([]float32, items.Len())
	if err := e.Score(scores, items); err != nil {
		return nil, err
	}
	sc := e.s.borrow()
	defer e.s.scratch.Put(sc)
	dots, gates := make([]float32, e.s.c.pairs()), make([]float32, e.s.c.pairs())
	out := make([]rerank.Explanation, len(scores))
	for i, score := range scores {
		e.tile(sc, items, i, i+1)
		e.s.lane(gates, sc.gates, 0)
		e.s.probabilities(gates)
		e.dots(dots, rowAt(items, i))
		out[i] = e.explain(score, dots, gates)
	}
	return out, nil
}

func (e *encoded) explain(score float32, dots, gates []float32) rerank.Explanation {
	terms := make([]rerank.Term, len(dots))
	for l, d := range dots {
		terms[l] = rerank.Term{
			QueryComponent: l / e.s.c.PairsItem, ItemComponent: l % e.s.c.PairsItem,
			Dot: d, Logit: d * e.s.ceiling(), Gate: gates[l],
		}
	}
	return rerank.Explanation{Score: score, Terms: terms}
}

func sqrt(n int) float64 { return math.Sqrt(float64(n)) }
