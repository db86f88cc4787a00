package mol

import (
	"slices"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// encoded is the query's side of a MoL.
type encoded struct {
	s *Similarity
	c *Config // of s
	// vector is the query vector, normalised if the model says so.
	vector []float32
	// components has the P_Q components f_i as rows.
	components rerank.Matrix
	// gate is the query's part of the gates; nil if the model has none.
	gate []float32
	// Prepared for tiles: f_i / τ packed, one entry per stretch of columns
	// (Similarity.stretches); the summand of a gate's input that does not depend on the
	// item; and the factor of the item's part.
	scaled       []kernel.Weights
	bias, factor []float32

	halves split     // f_i / τ in bfloat16, for Screen
	int8   int8Parts // f_i / τ in int8, for Screen

	seen seen // what Score has read

	sizes     queryNorms // for norms
	sizesOnce sync.Once
}

var (
	_ rerank.Encoded   = (*encoded)(nil)
	_ rerank.Explainer = (*encoded)(nil)
)

// Encode implements rerank.Similarity.
func (s *Similarity) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := s.spec.CheckQuery(q); err != nil {
		return nil, err
	}
	e := &encoded{s: s, c: &s.c, vector: slices.Clone(q.Vector)}
	if s.c.Normalise && !s.c.ComponentsGiven {
		rerank.Normalise(e.vector)
	}
	e.components = s.queryComponents(e.vector, q.UserID)
	if s.byQuery.exists() {
		e.gate = make([]float32, s.c.pairs())
		s.byQuery.apply(s.kernels, e.gate, len(e.gate), rowOf(e.vector), make([]float32, s.byQuery.hidden()))
	}
	// A finite query can still overflow float32 when it is multiplied.
	if err := rerank.CheckFinite("query components", e.components.Data); err != nil {
		return nil, err
	}
	if err := rerank.CheckFinite("query gates", e.gate); err != nil {
		return nil, err
	}
	if s.queryOnly() {
		return s.fixGates(e), nil
	}
	e.prepareTiles()
	return e, nil
}

// prepareTiles computes the fields that scoring in tiles needs.
func (e *encoded) prepareTiles() {
	scaled := rerank.NewMatrix(e.components.Rows, e.components.Cols)
	for i, v := range e.components.Data {
		scaled.Data[i] = v * e.c.maxScore()
	}
	for _, r := range e.s.stretches {
		part := rerank.NewMatrix(scaled.Rows, r.to-r.from)
		for i := range part.Rows {
			copy(part.Row(i), scaled.Row(i)[r.from:r.to])
		}
		e.scaled = append(e.scaled, kernel.Pack(part))
	}
	pairs := e.c.pairs()
	e.bias = padded(e.s.byPair.second.bias, pairs)
	if e.c.Combination == GLUSiLU {
		e.factor = padded(e.gate, pairs)
		return
	}
	e.factor = padded(nil, pairs)
	for l := range e.factor {
		e.factor[l] = 1
	}
	for l, v := range e.gate {
		e.bias[l] += v
	}
}

// rowOf returns v as a matrix of one row.
func rowOf(v []float32) rerank.Matrix { return rerank.Matrix{Rows: 1, Cols: len(v), Data: v} }

// queryComponents computes the components f_i: first the projected ones, then one row of
// each user table.
func (s *Similarity) queryComponents(q []float32, user int64) rerank.Matrix {
	c := &s.c
	f := rerank.NewMatrix(c.PairsQuery, c.Dim)
	if c.ComponentsGiven {
		copy(f.Data, q)
	} else {
		s.query.apply(s.kernels, f.Data[:c.projectedComponents()*c.Dim], c.projectedComponents()*c.Dim, rowOf(q), make([]float32, s.query.hidden()))
	}
	for i, table := range s.users {
		copy(f.Row(c.projectedComponents()+i), table.Row(userRow(user, c.UserTables[i])))
	}
	if c.hasUnitComponents() {
		s.c.normalise(f.Data)
	}
	return f
}

// userRow returns (user mod size) + 1, with a modulo that is never negative. Row 0 is never
// used.
func userRow(user int64, size int) int {
	n := int64(size)
	return int((user%n+n)%n) + 1
}

// fixed is the query's side of a MoL whose gates depend on the query alone.
type fixed struct {
	*inner.Product
	e     *encoded
	gates []float32
}

var (
	_ rerank.Encoded   = (*fixed)(nil)
	_ rerank.Explainer = (*fixed)(nil)
)

// fixGates turns φ into one inner product, divided by τ, of the feature row with the
// concatenation of w_j = Σ_i π_ij f_i.
func (s *Similarity) fixGates(e *encoded) *fixed {
	gates := slices.Clone(e.gate)
	s.c.toProbabilities(gates)
	return &fixed{Product: s.newProduct(e.vector, e.weightedSum(gates)), e: e, gates: gates}
}

// newProduct returns the query's side w of φ = ⟨w, features⟩ / τ.
func (s *Similarity) newProduct(query, w []float32) *inner.Product {
	p := &inner.Product{
		Spec: s.spec, U: w, Scale: s.c.maxScore(), Field: FieldConcat, Rounded: true,
		NoStored: notLinear, Query: query, Distilled: s.probes, Kernels: s.kernels,
	}
	if s.c.hasUnitComponents() {
		p.Norm = inner.UnitNorm * sqrt(s.c.PairsItem)
	}
	if s.pullsBack() {
		p.Stored = func() (rerank.Probe, error) {
			vector, offset, _ := s.pullBack(w)
			return rerank.Probe{Vector: vector, Offset: offset, Scale: s.c.maxScore(), Target: s.pulledTarget(rerank.TargetScore)}, nil
		}
	}
	return p
}

var _ rerank.Refiner = (*Similarity)(nil)

// Refine implements rerank.Refiner for gates that depend on the query alone: see inner.Refine. For
// other gates it returns rerank.ErrQuery. The refined query has no gates of its own, and explains
// a score by one term.
func (s *Similarity) Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error) {
	if f, ok := q.(*fixed); ok {
		q = f.Product
	}
	query, w, err := inner.Refine(s.spec, q, rows, scores)
	if err != nil {
		return nil, err
	}
	return s.newProduct(query, w), nil
}

// weightedSum returns the concatenation over j of Σ_i weight_ij f_i.
func (e *encoded) weightedSum(weights []float32) []float32 {
	c := e.c
	w := make([]float32, c.PairsItem*c.Dim)
	for i := range c.PairsQuery {
		f := e.components.Row(i)
		for j := range c.PairsItem {
			weight := weights[i*c.PairsItem+j]
			out := w[j*c.Dim:][:c.Dim]
			for k, v := range f {
				out[k] += weight * v
			}
		}
	}
	return w
}

// Explain implements rerank.Explainer with one term per pair of components.
func (f *fixed) Explain(items rerank.Items) ([]rerank.Explanation, error) {
	scores := make([]float32, items.Len())
	if err := f.Score(scores, items); err != nil {
		return nil, err
	}
	logits := make([]float32, len(f.gates))
	out := make([]rerank.Explanation, len(scores))
	for i, score := range scores {
		f.e.dots(logits, rowAt(items, i))
		out[i] = f.e.explain(score, logits, f.gates)
	}
	return out, nil
}
