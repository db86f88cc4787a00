// Package late implements late interaction (ColBERT): a query and an item have many vectors, such
// as one for each token, and φ(q, x) = Σ_i max_j ⟨q_i, x_j⟩. Each query vector meets the item's
// vector that is nearest to it.
//
// An item's vectors are its feature rows (rerank.Items.Starts), as for package maxsim. The mean of
// the query vectors is the probe of the first stage.
package late

import (
	"fmt"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Config describes late interaction.
type Config struct {
	// Dim is the dimension of the vectors of both sides.
	Dim int `json:"dim"`
	// Normalise divides every vector by its norm.
	Normalise bool `json:"normalise"`
}

// maxDim limits the dimension that a configuration may declare.
const maxDim = 1 << 16

// Similarity is late interaction. It is immutable and safe for concurrent use.
type Similarity struct {
	spec    rerank.Spec
	kernels *kernel.Set
	probes  *distilled.Probes
	learned *companion.Companion              // nil if the model has none
	solver  func() (*companion.Solver, error) // of learned, made when it is first asked for
	scratch *sync.Pool                        // *scratch
}

var (
	_ rerank.Similarity  = (*Similarity)(nil)
	_ rerank.BatchScorer = (*Similarity)(nil)
)

// New returns late interaction. The tensors may only contain learned probes and a learned companion.
// It returns rerank.ErrModel.
func New(c Config, t tensor.Set) (*Similarity, error) {
	if c.Dim < 1 || c.Dim > maxDim {
		return nil, fmt.Errorf("%w: dim is %d, want 1 to %d", rerank.ErrModel, c.Dim, maxDim)
	}
	probes, err := distilled.Read(t, c.Dim, c.Dim)
	if err != nil {
		return nil, err
	}
	if err := tensor.NewReader(t).Err(distilled.Prefix, companion.Prefix); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	learned, err := companion.Read(t, c.Dim, c.Dim)
	if err != nil {
		return nil, err
	}
	s := &Similarity{kernels: kernel.Best(), probes: probes, learned: learned, scratch: &sync.Pool{New: func() any { return new(scratch) }}, spec: rerank.Spec{
		Kind: rerank.KindLate, QueryDim: c.Dim, ItemDim: c.Dim, Features: c.Dim, Normalise: c.Normalise,
		MaxScore: float32(math.Inf(1)), GroupedRows: true, ManyVectors: true, PairsQuery: 1, PairsItem: 1,
	}}
	if c.Normalise {
		s.spec.MaxScore = rerank.MaxQueryVectors * inner.UnitNorm * inner.UnitNorm
	}
	s.solver = sync.OnceValues(func() (*companion.Solver, error) { return s.learned.Solver(s) })
	return s, nil
}

// WithKernels returns a copy of the similarity that computes with the given kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	other := *s
	other.kernels = k
	return &other
}

// Spec implements rerank.Similarity.
func (s *Similarity) Spec() rerank.Spec { return s.spec }

// EncodeItems implements rerank.Similarity. A feature row is one vector of an item, normalised if
// the spec says so.
func (s *Similarity) EncodeItems(dst, base rerank.Matrix) error {
	return inner.EncodeItems(s.spec, dst, base)
}

// Encode implements rerank.Similarity. A query with Query.Vector alone has that one vector.
func (s *Similarity) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := s.spec.CheckQuery(q); err != nil {
		return nil, err
	}
	vectors := q.Vectors
	if vectors.Rows == 0 {
		vectors = rerank.Matrix{Rows: 1, Cols: len(q.Vector), Data: q.Vector}
	}
	e := &encoded{s: s, vectors: rerank.NewMatrix(vectors.Rows, vectors.Cols)}
	copy(e.vectors.Data, vectors.Data)
	for i := range e.vectors.Rows {
		v := e.vectors.Row(i)
		if s.spec.Normalise {
			rerank.Normalise(v)
		}
		p := &inner.Product{Spec: s.spec, Kernels: s.kernels, U: v, Scale: 1, Query: v}
		if s.spec.Normalise {
			p.Norm = inner.UnitNorm
		}
		e.products = append(e.products, p)
		e.norms += rerank.Norm(v)
	}
	e.pooled = pool(e.vectors)
	return e, rerank.CheckFinite("mean of query.vectors", e.pooled)
}

// pool returns the mean of the vectors, normalised. If they cancel, it is the first vector.
func pool(m rerank.Matrix) []float32 {
	wide := make([]float64, m.Cols)
	for i := range m.Rows {
		for c, v := range m.Row(i) {
			wide[c] += float64(v) / float64(m.Rows)
		}
	}
	mean := make([]float32, m.Cols)
	for c, v := range wide {
		mean[c] = float32(v)
	}
	if rerank.Norm(mean) == 0 {
		copy(mean, m.Row(0))
	}
	rerank.Normalise(mean)
	return mean
}

// Mean writes the mean of each item's feature rows, normalised, to dst: the vector of the item that
// the first stage compares with the mean of the query vectors.
func Mean(dst rerank.Matrix, items rerank.Items) {
	row := make([]float32, dst.Cols)
	for i := range dst.Rows {
		own := rowsOf(items, i)
		m := rerank.NewMatrix(own.to-own.from, dst.Cols)
		for r := range m.Rows {
			copy(m.Row(r), own.row(r, row))
		}
		if m.Rows > 0 {
			copy(dst.Row(i), pool(m))
		}
	}
}

// Means returns the mean of each item's vectors as Mean does. If starts is nil, each item has one vector,
// and Means returns the vectors themselves.
func Means(vectors rerank.Matrix, starts []int32) rerank.Matrix {
	if starts == nil {
		return vectors
	}
	out := rerank.NewMatrix(len(starts)-1, vectors.Cols)
	Mean(out, rerank.Items{Features: vectors, Starts: starts})
	return out
}

// ScoreBatch implements rerank.BatchScorer.
func (s *Similarity) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	own := make([]*encoded, len(queries))
	for i, q := range queries {
		e, ok := q.(*encoded)
		if !ok || e.s.spec != s.spec {
			return fmt.Errorf("%w: query %d of the batch was encoded by another similarity", rerank.ErrQuery, i)
		}
		own[i] = e
	}
	if err := rerank.CheckBatch(len(dst), len(queries), items, s.spec); err != nil {
		return err
	}
	w := s.scratch.Get().(*scratch)
	defer s.scratch.Put(w)
	return w.score(dst, own, items)
}
