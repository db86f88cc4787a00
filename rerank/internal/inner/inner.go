// Package inner implements the query's side of every similarity that is one inner product,
// φ = scale·⟨u, features⟩: dot, bilinear, max-sim, and MoL whose gates depend on the query
// alone.
package inner

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Product is an encoded query. Its fields are set once, before it is used.
type Product struct {
	Spec rerank.Spec
	// Kernels compute the inner products.
	Kernels *kernel.Set
	// U is multiplied with the feature row, and the result with Scale.
	U     []float32
	Scale float32
	// Stored makes the probe for the stored vector. It is a function because a scan does
	// not need the probe. It is nil if there is no such probe, and NoStored says why.
	Stored   func() (rerank.Probe, error)
	NoStored string
	// Field is the derived field that holds feature rows, or "".
	Field string
	// Norm bounds the norm of every feature row; 0 if no bound is known.
	Norm float64
	// Rounded: the stored probe is U transformed for the stored vector, which rounded each
	// element a second time.
	Rounded bool
	// Query is the query vector, as learned probes need it.
	Query     []float32
	Distilled *distilled.Probes

	parts atomic.Pointer[parts] // for Screen: U in the format of the rows that were screened last

	seen atomic.Uint32 // largest row norm scored so far, as float32 bits; used if Norm is 0
}

var (
	_ rerank.Encoded    = (*Product)(nil)
	_ rerank.Explainer  = (*Product)(nil)
	_ rerank.PullBacker = (*Product)(nil)
)

// Probes returns one probe for φ itself for every first-stage strategy, the learned probe
// for Distilled, and no probe for Scan.
func (p *Product) Probes(plan rerank.Plan) ([]rerank.Probe, error) {
	switch plan.Strategy {
	case rerank.Scan:
		return nil, nil
	case rerank.Distilled:
		probe, err := p.Distilled.Probe(p.Query, plan)
		if err != nil {
			return nil, err
		}
		return []rerank.Probe{probe}, nil
	case rerank.Companion:
		return nil, fmt.Errorf("%w: %s is for similarities that are no inner product; use %s, which finds the best by this one's own",
			rerank.ErrStrategy, plan.Strategy, rerank.Average)
	case rerank.PerEmbedding, rerank.Average, rerank.Combined:
	default:
		return nil, fmt.Errorf("%w: %q is none of %q", rerank.ErrStrategy, plan.Strategy, rerank.Strategies())
	}
	var probe rerank.Probe
	switch {
	case plan.Derived && p.Field == "":
		return nil, fmt.Errorf("%w: the kind %s derives no field for %s; search the stored vectors",
			rerank.ErrStrategy, p.Spec.Kind, plan.Strategy)
	case plan.Derived:
		probe = rerank.Probe{Field: p.Field, Vector: p.U, Target: rerank.TargetScore, Scale: p.Scale}
	case p.Stored == nil:
		return nil, fmt.Errorf("%w: %s on the stored vectors: %s", rerank.ErrStrategy, plan.Strategy, p.NoStored)
	default:
		var err error
		if probe, err = p.Stored(); err != nil {
			return nil, err
		}
	}
	probe.Depth = plan.Depth
	return []rerank.Probe{probe}, nil
}

// PullBack implements rerank.PullBacker. Of an item with several rows it is the inner
// product with each. The base vectors of RBE are a ranker's answers, which need not be
// the stored vectors.
func (p *Product) PullBack() (rerank.InnerProduct, bool) {
	if p.Stored == nil || p.Spec.Kind == rerank.KindRBE {
		return rerank.InnerProduct{}, false
	}
	probe, err := p.Stored()
	if err != nil || probe.Target != rerank.TargetScore {
		return rerank.InnerProduct{}, false
	}
	offset := float32(float64(probe.Scale) * float64(probe.Offset))
	ok := probe.Scale > 0 && rerank.IsFinite(probe.Scale) && rerank.IsFinite(offset) && rerank.CheckFinite("vector", probe.Vector) == nil
	return rerank.InnerProduct{Vector: probe.Vector, Scale: probe.Scale, Offset: offset}, ok
}

// Score implements rerank.Encoded. The score of an item with several rows is the greatest
// score of its rows.
func (p *Product) Score(dst []float32, items rerank.Items) error {
	if err := items.Check(len(dst), p.Spec); err != nil {
		return err
	}
	switch {
	case items.Packed != nil:
		p.scorePacked(dst, items)
	case items.Starts != nil:
		p.scoreGroups(dst, items)
	default:
		p.scoreRows(dst, items.Features, items.Rows)
	}
	return nil
}

func (p *Product) scoreRows(dst []float32, m rerank.Matrix, scoreRows []int32) {
	p.Kernels.Rows(dst, p.U, m, scoreRows)
	if p.Scale != 1 {
		for i := range dst {
			dst[i] *= p.Scale
		}
	}
	if p.Norm > 0 {
		return
	}
	kernel.RaiseMax(&p.seen, largest(p.Kernels, m, scoreRows, len(dst)))
}

// scoreGroups scores the rows of each item in blocks and writes the best score per item. If
// one row's score is not finite, the item's score is not finite.
func (p *Product) scoreGroups(dst []float32, items rerank.Items) {
	var block [256]float32
	for i := range dst {
		best := float32(math.Inf(-1))
		for from, to := int(items.Starts[i]), int(items.Starts[i+1]); from < to; from += len(block) {
			scores := block[:min(len(block), to-from)]
			if items.Rows != nil {
				p.scoreRows(scores, items.Features, items.Rows[from:from+len(scores)])
			} else {
				p.scoreRows(scores, items.Features.Slice(from, from+len(scores)), nil)
			}
			best = fold(best, scores)
		}
		dst[i] = best
	}
}

func fold(best float32, scores []float32) float32 {
	var check float32 // NaN if a score is not finite
	for _, s := range scores {
		best = max(best, s)
		check += s * 0
	}
	return best + check
}

// Bound implements rerank.Encoded.
//
// Max is the lowest threshold of the lists that measure φ itself. Without such a list (a
// learned probe), Max is |scale|·‖u‖·N, where N bounds the norms of feature rows, or +Inf
// if no bound is known. If a list is exhausted, it contains every item, and Max is −Inf.
//
// Epsilon is the sum of |scale| times the greatest Epsilon of the lists (twice that if the
// probe and its offset were rounded a second time), and |scale|·γ_{d+2}·‖u‖·N for the
// kernel (kernel.Gamma), and one unit in the last place for each kernel operation, which
// subnormal results can lose. If no bound of the norms is known, N is the greatest norm
// among the rows that this query has scored.
func (p *Product) Bound(probes []rerank.Probe, lists []rerank.List) rerank.Bound {
	scale := math.Abs(float64(p.Scale))
	norm := p.LongestRow()
	ceiling := math.Inf(1)
	if p.Norm > 0 {
		ceiling = scale * rerank.Norm(p.U) * norm
	}
	var listed float64
	for i, l := range lists[:min(len(lists), len(probes))] {
		if l.Exhausted {
			ceiling = math.Inf(-1)
		}
		if probes[i].Target != rerank.TargetScore {
			continue
		}
		threshold := float64(probes[i].Scale) * (float64(l.Threshold()) + float64(probes[i].Offset))
		ceiling = min(ceiling, threshold)
		e := scale * float64(l.Epsilon)
		if p.Rounded && probes[i].Field == "" {
			e *= 2
		}
		listed = max(listed, e+scale*math.Abs(float64(probes[i].Offset))*0x1p-24)
	}
	kernelError := scale*kernel.Gamma(len(p.U)+2)*rerank.Norm(p.U)*norm + (scale*float64(len(p.U))+1)*math.SmallestNonzeroFloat32
	return rerank.Bound{Max: float32(ceiling), Epsilon: float32(listed + kernelError), Lists: float32(listed)}
}

// LongestRow bounds the norms of feature rows: of all rows if a bound is known, otherwise of the rows
// that this query has scored.
func (p *Product) LongestRow() float64 {
	if p.Norm > 0 {
		return p.Norm
	}
	return float64(math.Float32frombits(p.seen.Load()))
}

// Explain implements rerank.Explainer with one term per item, for the item's best row.
func (p *Product) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	scores := make([]float32, items.Len())
	if err := p.Score(scores, items); err != nil {
		return nil, err
	}
	out := make([]rerank.Explanation, len(scores))
	for i, s := range scores {
		out[i] = rerank.Explanation{Score: s, Terms: []rerank.Term{{Dot: s / p.Scale, Logit: s, Gate: 1}}}
	}
	return out, nil
}
