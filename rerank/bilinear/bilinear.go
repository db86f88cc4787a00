// Package bilinear implements the similarity φ(q, x) = qᵀWx. It equals one inner product of
// Wᵀq with the stored x. So nothing has to be written to the database, and an exact list is
// the exact answer.
package bilinear

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Form says how W is represented.
type Form string

// The forms and their tensors, n = query_embedding_dim, m = item_embedding_dim.
const (
	// Full: W (n, m). It is the default.
	Full Form = "full"
	// LowRank: W = PQᵀ with P (n, r) and Q (m, r). An item's feature row is
	// Qᵀx, r numbers, which is also a derived field.
	LowRank Form = "low_rank"
	// IdentityLowRank: W = I + PQᵀ, n = m.
	IdentityLowRank Form = "identity_low_rank"
	// Diagonal: W = diag(w) with w (n), n = m: a weighted dot product.
	Diagonal Form = "diagonal"
)

// Factor names the derived field of the form low_rank.
const Factor = "factor"

// Config describes a bilinear form.
type Config struct {
	QueryDim  int  `json:"query_embedding_dim"`
	ItemDim   int  `json:"item_embedding_dim"`
	Normalise bool `json:"normalise"` // fitted on unit vectors, so both sides are normalised
	Form      Form `json:"form,omitempty"`
}

// Similarity is qᵀWx. It is immutable and safe for concurrent use.
type Similarity struct {
	spec    rerank.Spec
	kernels *kernel.Set
	form    Form
	wt      factor        // the matrix by which a query is multiplied first: Wᵀ, or Pᵀ for the low-rank forms
	q       rerank.Matrix // low-rank forms: Q
	qt      rerank.Matrix // low-rank forms: Qᵀ
	w       []float32     // diagonal form: the diagonal
	// factorNorm bounds the spectral norm of Q, and so the norm of Qᵀx for a unit vector x.
	factorNorm float64
	probes     *distilled.Probes
}

var (
	_ rerank.Similarity = (*Similarity)(nil)
	_ rerank.Deriver    = (*Similarity)(nil)
)

// maxDim limits the dimensions that a configuration may declare.
const maxDim = 1 << 20

// New builds a bilinear form from its tensors. It returns rerank.ErrModel, naming the
// tensor, its shape, and the expected shape.
func New(c Config, t tensor.Set) (*Similarity, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	probes, err := distilled.Read(t, c.QueryDim, c.ItemDim)
	if err != nil {
		return nil, err
	}
	s := &Similarity{kernels: kernel.Best(), form: c.Form, probes: probes, spec: rerank.Spec{
		Kind: rerank.KindBilinear, QueryDim: c.QueryDim, ItemDim: c.ItemDim, Features: c.ItemDim,
		Normalise: c.Normalise, SingleInnerProduct: true, MaxScore: float32(math.Inf(1)),
		PairsQuery: 1, PairsItem: 1,
	}}
	r := tensor.NewReader(t)
	norm := s.load(r)
	if err := r.Err(distilled.Prefix); err != nil {
		return nil, fmt.Errorf("%w: form %s: %w", rerank.ErrModel, s.form, err)
	}
	if c.Normalise {
		s.spec.MaxScore = float32(norm * (1 + 1e-6))
	}
	return s, nil
}

func (c *Config) check() error {
	if c.Form == "" {
		c.Form = Full
	}
	for _, d := range []struct {
		name string
		dim  int
	}{{"query_embedding_dim", c.QueryDim}, {"item_embedding_dim", c.ItemDim}} {
		if d.dim < 1 || d.dim > maxDim {
			return fmt.Errorf("%w: %s is %d, want 1 to %d", rerank.ErrModel, d.name, d.dim, maxDim)
		}
	}
	forms := []Form{Full, LowRank, IdentityLowRank, Diagonal}
	square := c.Form == IdentityLowRank || c.Form == Diagonal
	switch {
	case !slices.Contains(forms, c.Form):
		return fmt.Errorf("%w: form %q is none of %q", rerank.ErrModel, c.Form, forms)
	case square && c.QueryDim != c.ItemDim:
		return fmt.Errorf("%w: form %s needs both sides of one dimension, have %d and %d", rerank.ErrModel, c.Form, c.QueryDim, c.ItemDim)
	}
	return nil
}

// load reads the tensors and returns an upper bound of the spectral norm of W.
func (s *Similarity) load(r *tensor.Reader) float64 {
	n, m := s.spec.QueryDim, s.spec.ItemDim
	switch s.form {
	case Full:
		w := rerank.Matrix{Rows: n, Cols: m, Data: r.Get("W", n, m)}
		if w.Data == nil {
			return 0
		}
		s.wt = newFactor(kernel.Transpose(w))
		return spectralBound(w)
	case Diagonal:
		s.w = r.Get("w", n)
		top := 0.0
		for _, v := range s.w {
			top = max(top, math.Abs(float64(v)))
		}
		return top
	default:
		return s.loadFactors(r)
	}
}

func (s *Similarity) loadFactors(r *tensor.Reader) float64 {
	n, m, rank := s.spec.QueryDim, s.spec.ItemDim, max(r.Dim("P", 1), 1)
	p := rerank.Matrix{Rows: n, Cols: rank, Data: r.Get("P", n, rank)}
	s.q = rerank.Matrix{Rows: m, Cols: rank, Data: r.Get("Q", m, rank)}
	if p.Data == nil || s.q.Data == nil {
		return 0
	}
	s.wt, s.qt = newFactor(kernel.Transpose(p)), kernel.Transpose(s.q)
	bound := rerank.Norm(p.Data) * rerank.Norm(s.q.Data)
	if s.form == IdentityLowRank {
		return 1 + bound
	}
	s.spec.Features = rank
	s.factorNorm = spectralBound(s.q)
	return bound
}

// spectralBound returns an upper bound of the spectral norm of w: the smaller of its
// Frobenius norm and √(‖W‖₁‖W‖∞).
func spectralBound(w rerank.Matrix) float64 {
	columns := make([]float64, w.Cols)
	var rows float64
	for r := range w.Rows {
		var sum float64
		for c, v := range w.Row(r) {
			a := math.Abs(float64(v))
			sum += a
			columns[c] += a
		}
		rows = max(rows, sum)
	}
	return min(rerank.Norm(w.Data), math.Sqrt(rows*slices.Max(columns)))
}

// WithKernels returns a copy of the similarity that computes with the given kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	other := *s
	other.kernels = k
	return &other
}

// Spec implements rerank.Similarity.
func (s *Similarity) Spec() rerank.Spec { return s.spec }

// Encode implements rerank.Similarity: it computes u = Wᵀq once. The errors that Bound
// states are errors of ⟨u, x⟩ for the computed u; the rounding of u itself counts as part
// of the model.
func (s *Similarity) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := s.spec.CheckQuery(q); err != nil {
		return nil, err
	}
	queries := rerank.NewMatrix(1, s.spec.QueryDim)
	s.prepareQuery(queries.Data, q)
	p, err := s.newProduct(queries.Data, s.projectQueries(queries).Data)
	if err != nil {
		return nil, err
	}
	return p, nil
}

var _ rerank.BatchEncoder = (*Similarity)(nil)

// EncodeBatch implements rerank.BatchEncoder.
func (s *Similarity) EncodeBatch(batch []rerank.Query) ([]rerank.Encoded, error) {
	queries := rerank.NewMatrix(len(batch), s.spec.QueryDim)
	for i, q := range batch {
		if err := s.spec.CheckQuery(q); err != nil {
			return nil, fmt.Errorf("query %d: %w", i, err)
		}
		s.prepareQuery(queries.Row(i), q)
	}
	u, out := s.projectQueries(queries), make([]rerank.Encoded, len(batch))
	for i := range out {
		p, err := s.newProduct(queries.Row(i), u.Row(i))
		if err != nil {
			return nil, fmt.Errorf("query %d: %w", i, err)
		}
		out[i] = p
	}
	return out, nil
}

// prepareQuery copies a query's vector to dst and normalises it if the spec says so.
func (s *Similarity) prepareQuery(dst []float32, q rerank.Query) {
	copy(dst, q.Vector)
	if s.spec.Normalise {
		s.kernels.Normalise(dst)
	}
}

// newProduct builds the encoded form of a query from the result u of projectQueries.
func (s *Similarity) newProduct(query, u []float32) (*inner.Product, error) {
	p := &inner.Product{Spec: s.spec, Kernels: s.kernels, U: u, Scale: 1, Query: query, Distilled: s.probes}
	if s.spec.Normalise {
		p.Norm = inner.UnitNorm
	}
	if s.form == LowRank {
		p.Field, p.Rounded = Factor, true
		p.Norm *= s.factorNorm * (1 + 0x1p-23) // each element of the factor is rounded once
	}
	p.Stored = func() (rerank.Probe, error) {
		u := s.storedQuery(p.U)
		return rerank.Probe{Vector: u, Target: rerank.TargetScore, Scale: 1}, checkFinite(u)
	}
	return p, checkFinite(u)
}

var _ rerank.Refiner = (*Similarity)(nil)

// Refine implements rerank.Refiner: see inner.Refine.
func (s *Similarity) Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error) {
	query, u, err := inner.Refine(s.spec, q, rows, scores)
	if err != nil {
		return nil, err
	}
	return s.newProduct(query, u)
}

// checkFinite returns an error if u has an element that is not finite: a finite query can
// still overflow float32 when it is multiplied.
func checkFinite(u []float32) error { return rerank.CheckFinite("query times W", u) }

// projectQueries returns, for each query, the vector that feature rows are multiplied with:
// Wᵀq, or Pᵀq for the form low_rank.
func (s *Similarity) projectQueries(queries rerank.Matrix) rerank.Matrix {
	switch s.form {
	case Full:
		return s.multiplyWT(queries)
	case Diagonal:
		u := rerank.NewMatrix(queries.Rows, s.spec.ItemDim)
		for r := range u.Rows {
			out := u.Row(r)
			for i, v := range queries.Row(r) {
				out[i] = v * s.w[i]
			}
		}
		return u
	case LowRank, IdentityLowRank:
	}
	factors := s.multiplyWT(queries)
	if s.form == LowRank {
		return factors
	}
	u := s.expand(factors)
	for i, v := range queries.Data {
		u.Data[i] += v
	}
	return u
}

// factor is a matrix whose rows are multiplied with queries. It is kept as it is and, if
// its rows fill whole lanes and the processor gains from it, also in lanes.
type factor struct {
	rerank.Matrix
	lanes kernel.Vectors
}

func newFactor(m rerank.Matrix) factor {
	f := factor{Matrix: m}
	if m.Rows%kernel.Lanes > 0 || !kernel.Best().Crosses() {
		return f
	}
	rows := make([][]float32, m.Rows)
	for r := range rows {
		rows[r] = m.Row(r)
	}
	kernel.Best().PackVectors(&f.lanes, rows)
	return f
}

// multiplyWT multiplies every query with wt. The results are the same bits however many
// queries there are.
func (s *Similarity) multiplyWT(queries rerank.Matrix) rerank.Matrix {
	u := rerank.NewMatrix(queries.Rows, s.wt.Rows)
	if s.kernels.Crosses() && s.wt.lanes.Width() > 0 {
		s.kernels.Cross(u.Data, s.wt.lanes, queries)
	} else {
		s.kernels.MulT(u.Data, u.Cols, queries, s.wt.Matrix, nil)
	}
	return u
}

// storedQuery returns Wᵀq for the u that projectQueries returned.
func (s *Similarity) storedQuery(u []float32) []float32 {
	if s.form == LowRank {
		return s.expand(rerank.Matrix{Rows: 1, Cols: len(u), Data: u}).Data
	}
	return u
}

// expand multiplies Q with each factor.
func (s *Similarity) expand(factors rerank.Matrix) rerank.Matrix {
	u := rerank.NewMatrix(factors.Rows, s.q.Rows)
	kernel.MulTWide(u.Data, u.Cols, factors, s.q, nil)
	return u
}

var _ rerank.BatchScorer = (*Similarity)(nil)

// ScoreBatch implements rerank.BatchScorer.
func (s *Similarity) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	products, err := inner.Batch(queries, inner.Same(s.spec))
	if err != nil {
		return err
	}
	return inner.ScoreBatch(dst, products, items)
}

// EncodeItems implements rerank.Similarity. A feature row is the base vector, or its factor
// Qᵀx for the form low_rank.
func (s *Similarity) EncodeItems(dst, base rerank.Matrix) error {
	if s.form != LowRank {
		return inner.EncodeItems(s.spec, dst, base)
	}
	if err := s.spec.CheckEncode(dst, base); err != nil {
		return err
	}
	unit := make([]float32, s.spec.ItemDim)
	for r := range base.Rows {
		copy(unit, base.Row(r))
		if s.spec.Normalise {
			rerank.Normalise(unit)
		}
		kernel.MulTWide(dst.Row(r), dst.Cols, rerank.Matrix{Rows: 1, Cols: len(unit), Data: unit}, s.qt, nil)
	}
	return nil
}

// Fields implements rerank.Deriver. It returns the factor for the form low_rank and nil for
// the other forms, which search the stored vector.
func (s *Similarity) Fields() []rerank.Field {
	if s.form != LowRank {
		return nil
	}
	return []rerank.Field{{
		Name: Factor, Dim: s.spec.Features, Feature: true,
		Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined},
	}}
}

// Derive implements rerank.Deriver.
func (s *Similarity) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	if s.form != LowRank || field != Factor {
		return fmt.Errorf("%w: form %s derives no field %q", rerank.ErrItems, s.form, field)
	}
	return s.copyRows(dst, items.Features)
}

// Features implements rerank.Deriver.
func (s *Similarity) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	if len(fields) != len(s.Fields()) || len(fields) == 0 {
		return fmt.Errorf("%w: %d fields, want %d", rerank.ErrItems, len(fields), len(s.Fields()))
	}
	return s.copyRows(dst, fields[0])
}

func (s *Similarity) copyRows(dst, src rerank.Matrix) error {
	if dst.Rows != src.Rows || dst.Cols != s.spec.Features || src.Cols != s.spec.Features {
		return fmt.Errorf("%w: %d rows of %d from %d rows of %d, want rows of %d",
			rerank.ErrItems, dst.Rows, dst.Cols, src.Rows, src.Cols, s.spec.Features)
	}
	copy(dst.Data, src.Data)
	return nil
}
