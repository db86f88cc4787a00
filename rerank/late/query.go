package late

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// encoded is the query's side.
type encoded struct {
	s        *Similarity
	vectors  rerank.Matrix
	products []*inner.Product // one for each query vector: max_j ⟨q_i, x_j⟩
	norms    float64          // Σ ‖q_i‖
	pooled   []float32        // for the first stage
}

var (
	_ rerank.Encoded   = (*encoded)(nil)
	_ rerank.Explainer = (*encoded)(nil)
	_ rerank.Rounder   = (*encoded)(nil)
)

// Probes implements rerank.Encoded. Average searches by the mean of the query vectors, normalised, and
// Companion by ψ of them. Both only suggest candidates.
func (e *encoded) Probes(plan rerank.Plan) ([]rerank.Probe, error) {
	switch plan.Strategy {
	case rerank.Scan:
		return nil, nil
	case rerank.Distilled:
		probe, err := e.s.probes.Probe(e.pooled, plan)
		if err != nil {
			return nil, err
		}
		return []rerank.Probe{probe}, nil
	case rerank.Companion:
		probe, err := e.s.learned.Probe(e.vectors, plan)
		if err != nil {
			return nil, err
		}
		return []rerank.Probe{probe}, nil
	case rerank.Average:
		return []rerank.Probe{{Vector: e.pooled, Depth: plan.Depth}}, nil
	default:
		return nil, fmt.Errorf("%w: late interaction has no probes for %q; use %s, which searches by the mean of the query vectors, or %s",
			rerank.ErrStrategy, plan.Strategy, rerank.Average, rerank.Scan)
	}
}

// Score implements rerank.Encoded.
func (e *encoded) Score(dst []float32, items rerank.Items) error {
	return e.s.ScoreBatch(dst, []rerank.Encoded{e}, items)
}

// Bound implements rerank.Encoded.
//
// Max is Σ_i ‖q_i‖·N, where N bounds the norms of feature rows, +Inf if no bound is known, and −Inf
// if a list is exhausted. Epsilon is the sum of the errors of max_j ⟨q_i, x_j⟩ (inner.Product), and
// one rounding of the sum to float32.
func (e *encoded) Bound(_ []rerank.Probe, lists []rerank.List) rerank.Bound {
	var upper, epsilon float64
	for _, p := range e.products {
		b := p.Bound(nil, nil)
		upper, epsilon = upper+float64(b.Max), epsilon+float64(b.Epsilon)
	}
	epsilon += e.rounding()
	for _, l := range lists {
		if l.Exhausted {
			upper = math.Inf(-1)
		}
	}
	return rerank.Bound{Max: inner.RoundUp(upper), Epsilon: inner.RoundUp(epsilon)}
}

// rounding bounds the error of adding the products in float64 and rounding the sum to float32. It
// follows from |φ| ≤ Σ_i ‖q_i‖·N, where N is the greatest norm of a row that was scored.
func (e *encoded) rounding() float64 {
	return 0x1.01p-24 * e.norms * e.products[0].LongestRow()
}

// RoundingError implements rerank.Rounder. A maximum moves by no more than its terms do.
func (e *encoded) RoundingError(l rerank.Loss) float32 {
	var sum float64
	for _, p := range e.products {
		sum += float64(p.RoundingError(l))
	}
	return inner.RoundUp(sum)
}

// meeting says which row of an item a query vector met, and their inner product. The row is −1 if
// the item has no rows.
type meeting struct {
	row int
	dot float64
}

// meet finds the best row for each query vector in float64. Only rows whose float32 product can be
// the greatest are multiplied again. longest is the greatest norm of a row.
func (e *encoded) meet(dst []meeting, own rows) (longest float64) {
	n, cols := own.to-own.from, e.vectors.Cols
	m := rerank.NewMatrix(n, cols)
	for r := range n {
		copy(m.Row(r), own.row(r, m.Row(r)))
		longest = max(longest, rerank.Norm(m.Row(r)))
	}
	dots := make([]float32, n)
	for i := range dst {
		q := e.vectors.Row(i)
		e.s.kernels.Rows(dots, q, m, nil)
		top := float32(math.Inf(-1))
		for _, v := range dots {
			top = max(top, v)
		}
		reach := float64(top) - 2*(kernel.Gamma(cols+2)*rerank.Norm(q)*longest+float64(cols)*math.SmallestNonzeroFloat32)
		dst[i] = meeting{-1, math.Inf(-1)}
		for r, v := range dots {
			if float64(v) < reach {
				continue
			}
			if x := kernel.DotWide(q, m.Row(r)); x > dst[i].dot || x-x != 0 {
				dst[i] = meeting{r, x}
			}
			if v-v != 0 {
				dst[i].dot = math.NaN()
				break
			}
		}
	}
	return longest
}

// ScoreWide implements rerank.Encoded. epsilon covers the sums in float64, and four roundings to
// float32 of each element of both sides, which their norms may have divided.
func (e *encoded) ScoreWide(dst []float64, items rerank.Items) (epsilon float64, err error) {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return 0, err
	}
	const unit, encoding = 0x1p-53, 4 * 0x1p-24
	terms := float64(e.vectors.Cols + e.vectors.Rows + 4)
	met := make([]meeting, e.vectors.Rows)
	for i := range dst {
		longest := e.meet(met, rowsOf(items, i))
		dst[i] = 0
		for _, m := range met {
			dst[i] += m.dot
		}
		if dst[i]-dst[i] == 0 {
			epsilon = max(epsilon, (terms*unit/(1-terms*unit)+encoding)*e.norms*longest)
		}
	}
	return epsilon, nil
}

// Explain implements rerank.Explainer with one term for each query vector: the item's vector that it
// met, and their inner product.
func (e *encoded) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	scores := make([]float32, items.Len())
	if err := e.Score(scores, items); err != nil {
		return nil, err
	}
	out := make([]rerank.Explanation, len(scores))
	met := make([]meeting, e.vectors.Rows)
	for i, score := range scores {
		e.meet(met, rowsOf(items, i))
		out[i].Score = score
		for q, m := range met {
			if m.row < 0 {
				continue // the item has no vectors
			}
			dot := float32(m.dot)
			out[i].Terms = append(out[i].Terms, rerank.Term{QueryComponent: q, ItemComponent: m.row, Dot: dot, Logit: dot, Gate: 1})
		}
	}
	return out, nil
}
