package search_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

var (
	_ rerank.Similarity = (*toy)(nil)
	_ rerank.Deriver    = (*toy)(nil)
	_ rerank.Explainer  = (*toyQuery)(nil)
)

// toy is a mixture small enough to check by hand: vectors are cut in blocks, a
// logit is the inner product of a block of each side, and φ = Σ softmax(l / 10)_p l_p.
// With one block it is an inner product; with more, its gates are flat and the
// bound by thresholds seldom closes. Every number is made in float64.
type toy struct {
	dim, blocks int
	normalise   bool
	grouped     bool
	broken      error // EncodeItems and Score fail with it
}

func (t *toy) Spec() rerank.Spec {
	s := rerank.Spec{
		Kind: rerank.KindMoL, QueryDim: t.dim, ItemDim: t.dim, Features: t.dim, Normalise: t.normalise,
		SingleInnerProduct: t.blocks == 1, MaxScore: float32(math.Inf(1)), GroupedRows: t.grouped,
		PairsQuery: t.blocks, PairsItem: 1,
	}
	if t.normalise {
		s.MaxScore = 1.0001
	}
	return s
}

func (t *toy) Encode(q rerank.Query) (rerank.Encoded, error) {
	if len(q.Vector) != t.dim {
		return nil, fmt.Errorf("%w: vector has %d elements, the model takes %d", rerank.ErrQuery, len(q.Vector), t.dim)
	}
	if err := rerank.CheckFinite("vector", q.Vector); err != nil {
		return nil, err
	}
	v := slices.Clone(q.Vector)
	if t.normalise {
		rerank.Normalise(v)
	}
	return &toyQuery{t, v}, nil
}

func (t *toy) EncodeItems(dst, base rerank.Matrix) error {
	copy(dst.Data, base.Data)
	if t.normalise {
		for r := range dst.Rows {
			rerank.Normalise(dst.Row(r))
		}
	}
	return t.broken
}

func (t *toy) width() int         { return t.dim / t.blocks }
func (t *toy) field(p int) string { return fmt.Sprintf("c%d", p) }
func (t *toy) score(l []float64) (phi float64, gates []float64) {
	var sum float64
	gates = make([]float64, len(l))
	most := slices.Max(l)
	for p, x := range l {
		gates[p] = math.Exp((x - most) / 10)
		sum += gates[p]
	}
	for p, x := range l {
		gates[p] /= sum
		phi += gates[p] * x
	}
	return phi, gates
}

func (t *toy) Fields() []rerank.Field {
	var fields []rerank.Field
	for p := range t.blocks {
		fields = append(fields, rerank.Field{Name: t.field(p), Dim: t.width(), Feature: true, Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Combined}})
	}
	return append(fields, rerank.Field{Name: "mean", Dim: t.dim, Strategies: []rerank.Strategy{rerank.Average, rerank.Combined}})
}

func (t *toy) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	features := items.Features
	for p := range t.blocks {
		if field == t.field(p) {
			for r := range features.Rows {
				copy(dst.Row(r), features.Row(r)[p*t.width():])
			}
			return nil
		}
	}
	copy(dst.Data, features.Data)
	return nil
}

func (t *toy) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	for p, m := range fields {
		for r := range m.Rows {
			copy(dst.Row(r)[p*t.width():], m.Row(r))
		}
	}
	return t.broken
}

type toyQuery struct {
	*toy
	q []float32
}

func (e *toyQuery) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	if p.Head != "" {
		return nil, fmt.Errorf("%w: there is no head %q", rerank.ErrStrategy, p.Head)
	}
	var probes []rerank.Probe
	if p.Strategy == rerank.PerEmbedding || p.Strategy == rerank.Combined {
		for b := range e.blocks {
			probes = append(probes, e.block(b, p))
		}
	}
	if p.Strategy != rerank.PerEmbedding {
		whole := rerank.Probe{Vector: e.q, Depth: p.Depth}
		if e.blocks == 1 {
			whole.Target, whole.Scale = rerank.TargetScore, 1
		}
		if p.Derived {
			whole.Field = "mean"
		}
		if p.Strategy == rerank.Combined {
			whole.Depth = p.AverageDepth
		}
		probes = append(probes, whole)
	}
	return probes, nil
}

// PullBack implements rerank.PullBacker for one block.
func (e *toyQuery) PullBack() (rerank.InnerProduct, bool) {
	return rerank.InnerProduct{Vector: e.q, Scale: 1}, e.blocks == 1 && !e.grouped
}

func (e *toyQuery) block(b int, p rerank.Plan) rerank.Probe {
	w := e.width()
	probe := rerank.Probe{Depth: p.Depth, Target: rerank.TargetLogit, Pair: b}
	if p.Derived {
		probe.Field, probe.Vector = e.field(b), e.q[b*w:(b+1)*w]
		return probe
	}
	probe.Vector = make([]float32, e.dim)
	copy(probe.Vector[b*w:], e.q[b*w:(b+1)*w])
	return probe
}

func (e *toyQuery) logits(x []float32) []float64 {
	l := make([]float64, e.blocks)
	for d, v := range x {
		l[d/e.width()] += float64(v) * float64(e.q[d])
	}
	return l
}

// best is the best row of item i, and φ of it.
func (e *toyQuery) best(items rerank.Items, i int) (row int, phi float32) {
	from, to := i, i+1
	if items.Starts != nil {
		from, to = int(items.Starts[i]), int(items.Starts[i+1])
	}
	phi = float32(math.Inf(-1))
	for r := from; r < to; r++ {
		at := r
		if items.Rows != nil {
			at = int(items.Rows[r])
		}
		x, _ := e.score(e.logits(items.Features.Row(at)))
		if x := float32(x); x > phi || math.IsNaN(float64(x)) {
			row, phi = at, x
		}
	}
	return row, phi
}

func (e *toyQuery) Score(dst []float32, items rerank.Items) error {
	for i := range dst {
		_, dst[i] = e.best(items, i)
	}
	return e.broken
}

// ScoreWide is Score, which is off by one rounding to float32.
func (e *toyQuery) ScoreWide(dst []float64, items rerank.Items) (epsilon float64, err error) {
	return widened(e, dst, items)
}

func widened(e interface {
	Score(dst []float32, items rerank.Items) error
}, dst []float64, items rerank.Items) (epsilon float64, err error) {
	scores := make([]float32, len(dst))
	err = e.Score(scores, items)
	for i, x := range scores {
		if dst[i] = float64(x); rerank.IsFinite(x) {
			epsilon = max(epsilon, math.Abs(dst[i])*0x1p-23)
		}
	}
	return epsilon, err
}

func (e *toyQuery) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	out := make([]rerank.Explanation, items.Len())
	for i := range out {
		row, phi := e.best(items, i)
		l := e.logits(items.Features.Row(row))
		_, gates := e.score(l)
		out[i].Score = phi
		for p := range l {
			out[i].Terms = append(out[i].Terms, rerank.Term{QueryComponent: p, Dot: float32(l[p]), Logit: float32(l[p]), Gate: float32(gates[p])})
		}
	}
	return out, nil
}

// Bound: with every block searched, the greatest threshold; with the inner
// product itself, its threshold.
func (e *toyQuery) Bound(probes []rerank.Probe, lists []rerank.List) rerank.Bound {
	b := rerank.Bound{Max: float32(math.Inf(1)), Epsilon: adapters.Epsilon32(e.dim, rerank.Norm(e.q), 10)}
	blocks, most := 0, float32(math.Inf(-1))
	for i, p := range probes {
		b.Epsilon = max(b.Epsilon, 2*lists[i].Epsilon)
		switch p.Target {
		case rerank.TargetScore:
			b.Max = lists[i].Threshold()
		case rerank.TargetLogit:
			blocks++
			most = max(most, lists[i].Threshold())
		}
	}
	if blocks == e.blocks {
		b.Max = min(b.Max, most)
	}
	return b
}
