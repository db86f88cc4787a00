package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// scratch is the working memory of a call. It is pooled.
type scratch struct {
	base, hidden []float32
	// Each of these holds a batch of tiles: feature rows, a stretch of their columns, the
	// item's part of the gates, the logits over τ, the inputs of the softmax, and the
	// hidden layer of the gates.
	rows, part, item, logits, gates, gateHidden []float32
	words, halves                               []uint32 // tiles of packed rows; tiles in bfloat16
	teams                                       []team
	bounds                                      []*bounds
	// For items in int8: the queries, the errors of their bounds, the products with a tile, and the items that
	// may reach with their bounds.
	panel           panel
	off, nearBounds []float32
	products        []int32
	near, nearRows  []int32
	ahead           kernel.Ahead
	numbers         [kernel.MaxBatch][kernel.Lanes]int32      // row numbers to gather
	narrow          kernel.Narrow                             // a screen's hidden layer in bfloat16
	widths          [kernel.MaxBatch][2][kernel.Lanes]float32 // sums of squares of that layer, and of its rounding errors
	lost            [kernel.MaxBatch][kernel.Lanes]float32    // sums of squares of the logits' rounding errors
}

func (s *Similarity) borrow() *scratch { return s.scratch.Get().(*scratch) }

// grow returns a slice of n elements of *v, which it enlarges if necessary. The contents
// are unspecified.
func grow[T float32 | int32 | uint32](v *[]T, n int) []T {
	if cap(*v) < n {
		*v = make([]T, n)
	}
	return (*v)[:n]
}

// rowAt returns the feature row of item i.
func rowAt(items rerank.Items, i int) []float32 {
	if items.Rows != nil {
		i = int(items.Rows[i])
	}
	if items.Packed != nil {
		return items.Row(i, make([]float32, items.Packed.Cols))
	}
	return items.Features.Row(i)
}

// gateInputs writes the inputs of the softmax for item i to dst.
func (e *encoded) gateInputs(dst []float32, sc *scratch, items rerank.Items, i int) {
	g, alone := e.s.group(sc, items, i, i+1), e.alone()
	e.s.readItemGates(sc, &g)
	alone.computeLogits(sc, &g)
	e.computeGates(sc, &g, sc.logits, e.c.logitTile())
	for l := range dst {
		dst[l] = sc.gates[l*kernel.Lanes]
	}
}

// dots writes ⟨f_i, g_j⟩ of a feature row to dst[i·P_X+j].
func (e *encoded) dots(dst, row []float32) {
	c := e.c
	item := rerank.Matrix{Rows: c.PairsItem, Cols: c.Dim, Data: row[:c.PairsItem*c.Dim]}
	kernel.MulT(dst, c.PairsItem, e.components, item, nil)
}

// toProbabilities applies the softmax in place. Like RAILS, it divides by the sum a second
// time if the model was trained with dropout.
func (c *Config) toProbabilities(gate []float32) {
	kernel.Softmax(gate)
	if c.SoftmaxDropout <= 0 {
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

// Explain implements rerank.Explainer with one term per pair of components.
func (e *encoded) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	scores := make([]float32, items.Len())
	if err := e.Score(scores, items); err != nil {
		return nil, err
	}
	sc := e.s.borrow()
	defer e.s.scratch.Put(sc)
	dots, gates := make([]float32, e.c.pairs()), make([]float32, e.c.pairs())
	out := make([]rerank.Explanation, len(scores))
	for i, score := range scores {
		e.gateInputs(gates, sc, items, i)
		e.c.toProbabilities(gates)
		e.dots(dots, rowAt(items, i))
		out[i] = e.explain(score, dots, gates)
	}
	return out, nil
}

func (e *encoded) explain(score float32, dots, gates []float32) rerank.Explanation {
	terms := make([]rerank.Term, len(dots))
	for l, d := range dots {
		terms[l] = rerank.Term{
			QueryComponent: l / e.c.PairsItem, ItemComponent: l % e.c.PairsItem,
			Dot: d, Logit: d * e.c.maxScore(), Gate: gates[l],
		}
	}
	return rerank.Explanation{Score: score, Terms: terms}
}

func sqrt(n int) float64 { return math.Sqrt(float64(n)) }
