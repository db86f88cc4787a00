package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// tileRows is the number of candidates whose gates are computed together: the
// gates' weights are read once for all of them.
const tileRows = 16

// scratch is what a call needs besides its results. It is pooled.
type scratch struct {
	base, hidden  []float32
	logits, gates []float32
	gateHidden    []float32
}

func (s *Similarity) borrow() *scratch { return s.scratch.Get().(*scratch) }

// grow returns n numbers of *v, which keeps them.
func grow(v *[]float32, n int) []float32 {
	if cap(*v) < n {
		*v = make([]float32, n)
	}
	return (*v)[:n]
}

// rowAt is the feature row of item i.
func rowAt(items rerank.Items, i int) []float32 {
	if items.Rows != nil {
		i = int(items.Rows[i])
	}
	return items.Features.Row(i)
}

// Score implements rerank.Encoded.
func (e *encoded) Score(dst []float32, items rerank.Items) error {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return err
	}
	sc := e.s.borrow()
	defer e.s.scratch.Put(sc)
	for from := 0; from < len(dst); from += tileRows {
		n := min(tileRows, len(dst)-from)
		e.tile(sc, items, from, n)
		pairs := e.s.c.pairs()
		for t := range n {
			dst[from+t] = kernel.Dot(sc.gates[t*pairs:][:pairs], sc.logits[t*pairs:])
		}
	}
	return nil
}

// tile leaves the logits over τ and the gates of n items in the scratch.
func (e *encoded) tile(sc *scratch, items rerank.Items, from, n int) {
	s, pairs := e.s, e.s.c.pairs()
	logits, gates := grow(&sc.logits, tileRows*pairs), grow(&sc.gates, tileRows*pairs)
	inverse := s.ceiling()
	for t := range n {
		e.dots(logits[t*pairs:][:pairs], rowAt(items, from+t))
	}
	for i := range logits[:n*pairs] {
		logits[i] *= inverse
	}
	if !s.c.normalised() {
		e.see(logits[:n*pairs])
	}
	if s.byPair.exists() {
		hidden := grow(&sc.gateHidden, tileRows*s.byPair.hidden())
		s.byPair.apply(gates, pairs, rerank.Matrix{Rows: n, Cols: pairs, Data: logits[:n*pairs]}, hidden)
	} else {
		clear(gates)
	}
	for t := range n {
		gate := gates[t*pairs:][:pairs]
		e.combine(gate, rowAt(items, from+t)[s.c.PairsItem*s.c.Dim:])
		s.probabilities(gate)
	}
}

// dots writes ⟨f_i, g_j⟩ of an item to dst[i·P_X+j].
func (e *encoded) dots(dst, row []float32) {
	c := &e.s.c
	item := rerank.Matrix{Rows: c.PairsItem, Cols: c.Dim, Data: row[:c.PairsItem*c.Dim]}
	kernel.MulT(dst, c.PairsItem, e.components, item, nil)
}

// combine makes the input of the softmax of the logits' part, in place; item is
// the item's part, empty if there is none.
func (e *encoded) combine(gate, item []float32) {
	if e.s.c.Combination == GLUSiLU {
		query, item := e.gate[:len(gate)], item[:len(gate)]
		for l, v := range gate {
			gate[l] = query[l]*item[l] + v
		}
		kernel.SiLU(gate)
		return
	}
	for l, v := range e.gate {
		gate[l] += v
	}
	for l, v := range item {
		gate[l] += v
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
	dots := make([]float32, e.s.c.pairs())
	out := make([]rerank.Explanation, len(scores))
	for i, score := range scores {
		e.tile(sc, items, i, 1)
		e.dots(dots, rowAt(items, i))
		out[i] = e.explain(score, dots, sc.gates)
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
