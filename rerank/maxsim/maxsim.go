// Package maxsim scores an item by the best of its vectors, φ(q, x) = max_j ⟨q, v_j⟩:
// max-sim over behavioural vectors (MVG, eq. 2), the item's own vector among them.
package maxsim

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

// Config describes max-sim.
type Config struct {
	// Dim is the dimension of both sides.
	Dim int `json:"dim"`
	// Normalise divides both sides by their norms.
	Normalise bool `json:"normalise"`
}

// Similarity is max_j ⟨q, v_j⟩. It is immutable and safe for concurrent use.
type Similarity struct {
	spec    rerank.Spec
	kernels *kernel.Set
	probes  *distilled.Probes
}

var _ rerank.Similarity = (*Similarity)(nil)

// maxDim bounds what a configuration may claim.
const maxDim = 1 << 20

// New makes a max-sim; the tensors may only hold learned probes. It returns
// rerank.ErrModel.
func New(c Config, t tensor.Set) (*Similarity, error) {
	if c.Dim < 1 || c.Dim > maxDim {
		return nil, fmt.Errorf("%w: dim is %d, want 1 to %d", rerank.ErrModel, c.Dim, maxDim)
	}
	probes, err := distilled.Read(t, c.Dim, c.Dim)
	if err != nil {
		return nil, err
	}
	if err := tensor.NewReader(t).Err(distilled.Prefix); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	s := &Similarity{kernels: kernel.Best(), probes: probes, spec: rerank.Spec{
		Kind: rerank.KindMaxSim, QueryDim: c.Dim, ItemDim: c.Dim, Features: c.Dim, Normalise: c.Normalise,
		SingleInnerProduct: true, MaxScore: float32(math.Inf(1)), GroupedRows: true, PairsQuery: 1, PairsItem: 1,
	}}
	if c.Normalise {
		s.spec.MaxScore = 1
	}
	return s, nil
}

// WithKernels returns the similarity on other kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	other := *s
	other.kernels = k
	return &other
}

// Spec implements rerank.Similarity.
func (s *Similarity) Spec() rerank.Spec { return s.spec }

// Encode implements rerank.Similarity.
func (s *Similarity) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := s.spec.CheckQuery(q); err != nil {
		return nil, err
	}
	u := slices.Clone(q.Vector)
	norm := 0.0
	if s.spec.Normalise {
		rerank.Normalise(u)
		norm = inner.UnitNorm
	}
	return &inner.Product{
		Spec: s.spec, Kernels: s.kernels, U: u, Scale: 1, Norm: norm, Query: u, Distilled: s.probes,
		Stored: rerank.Probe{Vector: u, Target: rerank.TargetScore, Scale: 1},
	}, nil
}

// EncodeItems implements rerank.Similarity: a feature row is one of the base vectors of an item.
func (s *Similarity) EncodeItems(dst, base rerank.Matrix) error {
	return inner.EncodeItems(s.spec, dst, base)
}
