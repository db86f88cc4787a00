// Package rbe implements relevance-based embeddings (RBE, section 3), which approximate an
// expensive ranker R(x, q) by one inner product. The base vector of an item is R(x, S_Q),
// the ranker's scores of the item for some support queries. The vector of a query is R(S_I,
// q), the ranker's scores of some support items for the query.
package rbe

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Config describes a fitted model. m = len(SupportItems), n = len(SupportQueries).
type Config struct {
	// SupportItems is S_I. Element i of a query's vector is the ranker's score of
	// SupportItems[i].
	SupportItems []rerank.ID `json:"support_items"`
	// SupportQueries is S_Q. Element i of an item's base vector is the item's score for
	// SupportQueries[i].
	SupportQueries []rerank.ID `json:"support_queries"`
	// Hidden and Out are the widths of the two perceptrons. With 0 there are no
	// perceptrons, and φ is the CUR approximation.
	Hidden int `json:"hidden,omitempty"`
	Out    int `json:"out,omitempty"`
	// Features is the length of the query's own vector, which the queries' perceptron reads behind
	// the scores of the support items. With 0 it reads scores alone.
	Features int `json:"features,omitempty"`
	// Questions holds the support queries, if they were known when the model was fitted.
	// Their vectors, if any, are in the tensor "questions" (n, any).
	Questions []Question `json:"questions,omitempty"`
}

// Field names the derived field that holds feature rows.
const Field = "rbe"

// Relevance asks a heavy ranker for R(x, q) of every item x.
type Relevance = rerank.Relevance

// Similarity approximates a ranker by ⟨f_I(R(x, S_Q)), f_Q(R(S_I, q))⟩ with f_I = t ∥
// MLP(t) ∥ (⟨w, t⟩ + b), t = R(x, S_Q)·P, and f_Q(R) = R ∥ MLP(R) ∥ 1 (RBE, appendix C).
// Unlike the paper's, an item's offset is a function of t, so that items added later have
// one too. Without perceptrons φ is ⟨t, R(S_I, q)⟩ (section 3.2). A Similarity is immutable
// and safe for concurrent use.
type Similarity struct {
	spec       rerank.Spec
	config     Config
	kernels    *kernel.Set
	projection rerank.Matrix // Pᵀ, m rows of n
	query      perceptron
	item       perceptron
	offset     []float32 // w, followed by b
	probes     *distilled.Probes
	questions  []rerank.Query // nil if unknown
}

var (
	_ rerank.Similarity = (*Similarity)(nil)
	_ rerank.Deriver    = (*Similarity)(nil)
)

// Limits on what a configuration may declare.
const (
	maxSupports = 1 << 20
	maxWidth    = 1 << 14
)

// New builds a similarity from its tensors: projection (m, n), which is Pᵀ; with
// perceptrons also {query,item}.{0,1}.{weight,bias} (out, in), offset.weight (m) and
// offset.bias (1); and questions (n, any), the vectors of Questions. It returns
// rerank.ErrModel.
func New(c Config, t tensor.Set) (*Similarity, error) {
	m, n := len(c.SupportItems), len(c.SupportQueries)
	switch {
	case m < 1 || n < 1 || m > maxSupports || n > maxSupports:
		return nil, fmt.Errorf("%w: %d support items and %d support queries, want 1 to %d", rerank.ErrModel, m, n, maxSupports)
	case (c.Hidden == 0) != (c.Out == 0) || c.Hidden < 0 || c.Out < 0 || max(c.Hidden, c.Out) > maxWidth:
		return nil, fmt.Errorf("%w: hidden is %d and out %d, want both 0 or both 1 to %d", rerank.ErrModel, c.Hidden, c.Out, maxWidth)
	}
	if c.Features < 0 || c.Features > maxWidth || c.Features > 0 && c.Hidden == 0 {
		return nil, fmt.Errorf("%w: the queries' perceptron of %d hidden numbers reads %d numbers of a query's own, want 0, or up to %d with a perceptron",
			rerank.ErrModel, c.Hidden, c.Features, maxWidth)
	}
	for i, id := range slices.Concat(c.SupportItems, c.SupportQueries) {
		if id.IsZero() {
			return nil, fmt.Errorf("%w: support %d has no id", rerank.ErrModel, i)
		}
	}
	probes, err := distilled.Read(t, m+c.Features, n)
	if err != nil {
		return nil, err
	}
	s := &Similarity{config: c, kernels: kernel.Best(), probes: probes, spec: rerank.Spec{
		Kind: rerank.KindRBE, QueryDim: m + c.Features, ItemDim: n, Features: m, SingleInnerProduct: true,
		MaxScore: float32(math.Inf(1)), PairsQuery: 1, PairsItem: 1,
	}}
	r := tensor.NewReader(t)
	s.projection = rerank.Matrix{Rows: m, Cols: n, Data: r.Get("projection", m, n)}
	if c.Hidden > 0 {
		s.query, s.item = readPerceptron(r, "query", m+c.Features, c.Hidden, c.Out), readPerceptron(r, "item", m, c.Hidden, c.Out)
		s.offset = append(slices.Clone(r.Get("offset.weight", m)), r.Get("offset.bias", 1)...)
		s.spec.Features = m + c.Out + 1
	}
	if s.questions, err = readQuestions(c, r); err != nil {
		return nil, err
	}
	if err := r.Err(distilled.Prefix); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	return s, nil
}

// perceptron computes y = W₁·elu(W₀·x + b₀) + b₁.
type perceptron struct {
	weights [2]rerank.Matrix
	biases  [2][]float32
}

func readPerceptron(r *tensor.Reader, name string, in, hidden, out int) (p perceptron) {
	for i, shape := range [2][2]int{{hidden, in}, {out, hidden}} {
		layer := fmt.Sprintf("%s.%d.", name, i)
		p.weights[i] = rerank.Matrix{Rows: shape[0], Cols: shape[1], Data: r.Get(layer+"weight", shape[0], shape[1])}
		p.biases[i] = r.Get(layer+"bias", shape[0])
	}
	return p
}

// apply writes the perceptron's output for each row of x to dst.
func (p *perceptron) apply(k *kernel.Set, dst, x rerank.Matrix) {
	hidden := rerank.NewMatrix(x.Rows, p.weights[0].Rows)
	k.MulT(hidden.Data, hidden.Cols, x, p.weights[0], p.biases[0])
	for i, v := range hidden.Data {
		hidden.Data[i] = ELU(v)
	}
	k.MulT(dst.Data, dst.Cols, hidden, p.weights[1], p.biases[1])
}

// ELU returns x if x is positive, and eˣ − 1 otherwise.
func ELU(x float32) float32 {
	if x > 0 {
		return x
	}
	return float32(math.Expm1(float64(x)))
}

// Supports returns the items that a ranker must score for a query.
func (s *Similarity) Supports() []rerank.ID { return slices.Clone(s.config.SupportItems) }

// QueryFeatures returns the length of the query's own vector that the model reads behind the scores,
// or 0.
func (s *Similarity) QueryFeatures() int { return s.config.Features }

// Ask calls the ranker once and returns q with R(S_I, q) as its vector. If the model reads query
// features, q's vector holds them, and the result's vector has them behind the scores. Ask returns the
// ranker's error, or rerank.ErrQuery if a score is missing or not finite, or features are missing.
func (s *Similarity) Ask(ctx context.Context, ranker Relevance, q rerank.Query) (rerank.Query, error) {
	features, supports := q.Vector, len(s.config.SupportItems)
	if n := s.config.Features; n > 0 && len(features) != n {
		return q, fmt.Errorf("%w: the model reads %d numbers of the query's own beside the ranker's scores, and the query has %d", rerank.ErrQuery, n, len(features))
	}
	scores, err := ranker(ctx, s.Supports(), q)
	if err != nil {
		return q, fmt.Errorf("scoring %d support items: %w", supports, err)
	}
	if len(scores) != supports {
		return q, fmt.Errorf("%w: the ranker returned %d scores for %d support items", rerank.ErrQuery, len(scores), supports)
	}
	q.Vector = slices.Concat(scores, features[:s.config.Features])
	return q, rerank.CheckFinite("scores of support items", q.Vector)
}

// WithKernels returns a copy of the similarity that computes with the given kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	other := *s
	other.kernels = k
	return &other
}

// Spec implements rerank.Similarity.
func (s *Similarity) Spec() rerank.Spec { return s.spec }

// Encode implements rerank.Similarity. q.Vector must be R(S_I, q), followed by the query's features if
// the model reads any.
func (s *Similarity) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := s.spec.CheckQuery(q); err != nil {
		return nil, err
	}
	query := slices.Clone(q.Vector)
	u := query
	if s.config.Hidden > 0 {
		u = make([]float32, s.spec.Features)
		row := rerank.Matrix{Rows: 1, Cols: len(query), Data: query}
		supports := copy(u, query[:len(s.config.SupportItems)])
		s.query.apply(s.kernels, rerank.Matrix{Rows: 1, Cols: s.config.Out, Data: u[supports : len(u)-1]}, row)
		u[len(u)-1] = 1
	}
	return s.newProduct(query, u), rerank.CheckFinite("f_Q of the support scores", u)
}

// newProduct returns the query's side of φ = ⟨f_I, u⟩.
func (s *Similarity) newProduct(query, u []float32) *inner.Product {
	p := &inner.Product{Spec: s.spec, Kernels: s.kernels, U: u, Scale: 1, Field: Field, Query: query, Distilled: s.probes}
	if s.config.Hidden > 0 {
		p.NoStored = "perceptrons stand between the item's scores and its feature row; search a companion, or scan a table"
		return p
	}
	p.Rounded = true
	p.Stored = func() (rerank.Probe, error) { // ⟨R(x, S_Q)·P, u⟩ = ⟨R(x, S_Q), P·u⟩
		stored := make([]float32, s.spec.ItemDim)
		kernel.MulTWide(stored, len(stored), rerank.Matrix{Rows: 1, Cols: len(u), Data: u}, kernel.Transpose(s.projection), nil)
		return rerank.Probe{Vector: stored, Target: rerank.TargetScore, Scale: 1}, rerank.CheckFinite("support scores times P", stored)
	}
	return p
}

// EncodeItems implements rerank.Similarity. Base vectors must be R(x, S_Q).
func (s *Similarity) EncodeItems(dst, base rerank.Matrix) error {
	if err := s.spec.CheckEncode(dst, base); err != nil || base.Rows == 0 {
		return err
	}
	m := len(s.config.SupportItems)
	if s.config.Hidden == 0 {
		// Sum in float64 and round once. Then the probe for the stored vectors yields the
		// same inner products (inner.Product.Rounded).
		kernel.MulTWide(dst.Data, dst.Cols, base, s.projection, nil)
		return nil
	}
	t := rerank.NewMatrix(base.Rows, m)
	s.kernels.MulT(t.Data, m, base, s.projection, nil)
	out := rerank.NewMatrix(base.Rows, s.config.Out)
	s.item.apply(s.kernels, out, t)
	for i := range base.Rows {
		row, offset := dst.Row(i), s.offset[m]
		for j, v := range t.Row(i) {
			offset += s.offset[j] * v
		}
		copy(row, t.Row(i))
		copy(row[m:], out.Row(i))
		row[len(row)-1] = offset
	}
	return nil
}

// Fields implements rerank.Deriver.
func (s *Similarity) Fields() []rerank.Field {
	return []rerank.Field{{
		Name: Field, Dim: s.spec.Features, Feature: true,
		Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined},
	}}
}

// Derive implements rerank.Deriver. The field holds the feature rows.
func (s *Similarity) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	features := items.Features
	if field != Field || dst.Rows != features.Rows || dst.Cols != features.Cols {
		return fmt.Errorf("%w: field %q of %d rows of %d from %d rows of %d; want %q and equal shapes",
			rerank.ErrItems, field, dst.Rows, dst.Cols, features.Rows, features.Cols, Field)
	}
	copy(dst.Data, features.Data)
	return nil
}

// Features implements rerank.Deriver.
func (s *Similarity) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	if len(fields) != 1 {
		return fmt.Errorf("%w: %d fields make no feature row, want the field %q", rerank.ErrItems, len(fields), Field)
	}
	return s.Derive(dst, Field, rerank.Items{Features: fields[0]})
}
