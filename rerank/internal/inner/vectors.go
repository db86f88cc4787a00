package inner

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Vectors is a similarity that uses query vectors and base vectors unchanged, apart from
// normalisation: dot, and max-sim, for which an item can own several rows. It is immutable
// and safe for concurrent use.
type Vectors struct {
	spec    rerank.Spec
	kernels *kernel.Set
	probes  *distilled.Probes
	field   string // derived field with the feature rows; empty without one
}

var _ rerank.Similarity = (*Vectors)(nil)

// maxDim limits the dimension that a configuration may declare.
const maxDim = 1 << 20

// NewVectors returns a similarity of the given kind. The tensors may only contain learned
// probes. It returns rerank.ErrModel.
func NewVectors(kind rerank.Kind, dim int, normalise bool, t tensor.Set) (*Vectors, error) {
	if dim < 1 || dim > maxDim {
		return nil, fmt.Errorf("%w: dim is %d, want 1 to %d", rerank.ErrModel, dim, maxDim)
	}
	probes, err := distilled.Read(t, dim, dim)
	if err != nil {
		return nil, err
	}
	if err := tensor.NewReader(t).Err(distilled.Prefix); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	v := &Vectors{kernels: kernel.Best(), probes: probes, spec: rerank.Spec{
		Kind: kind, QueryDim: dim, ItemDim: dim, Features: dim, Normalise: normalise, SingleInnerProduct: true,
		MaxScore: float32(math.Inf(1)), GroupedRows: kind == rerank.KindMaxSim, PairsQuery: 1, PairsItem: 1,
	}}
	if normalise {
		v.spec.MaxScore = 1
	}
	return v, nil
}

// In returns a copy of the similarity with a derived field that holds the feature rows.
func (v *Vectors) In(field string) *Vectors {
	other := *v
	other.field = field
	return &other
}

// WithKernels returns a copy of the similarity that computes with the given kernels.
func (v *Vectors) WithKernels(k *kernel.Set) rerank.Similarity {
	other := *v
	other.kernels = k
	return &other
}

// Spec implements rerank.Similarity.
func (v *Vectors) Spec() rerank.Spec { return v.spec }

// Encode implements rerank.Similarity.
func (v *Vectors) Encode(q rerank.Query) (rerank.Encoded, error) {
	if err := v.spec.CheckQuery(q); err != nil {
		return nil, err
	}
	u := slices.Clone(q.Vector)
	if v.spec.Normalise {
		rerank.Normalise(u)
	}
	return v.newProduct(u, u), nil
}

// newProduct returns the query's side u of φ = ⟨u, x⟩. query is the vector for learned probes.
func (v *Vectors) newProduct(query, u []float32) *Product {
	p := &Product{
		Spec: v.spec, Kernels: v.kernels, U: u, Scale: 1, Query: query, Distilled: v.probes, Field: v.field,
		Stored: func() (rerank.Probe, error) {
			return rerank.Probe{Vector: u, Target: rerank.TargetScore, Scale: 1}, nil
		},
	}
	if v.spec.Normalise {
		p.Norm = UnitNorm
	}
	return p
}

var _ rerank.Refiner = (*Vectors)(nil)

// Refine implements rerank.Refiner: see the function Refine.
func (v *Vectors) Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error) {
	query, u, err := Refine(v.spec, q, rows, scores)
	if err != nil {
		return nil, err
	}
	return v.newProduct(query, u), nil
}

// EncodeItems implements rerank.Similarity. A feature row is a base vector, normalised if
// the spec says so.
func (v *Vectors) EncodeItems(dst, base rerank.Matrix) error { return EncodeItems(v.spec, dst, base) }

var _ rerank.BatchScorer = (*Vectors)(nil)

// ScoreBatch implements rerank.BatchScorer.
func (v *Vectors) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	products, err := Batch(queries, Same(v.spec))
	if err != nil {
		return err
	}
	return ScoreBatch(dst, products, items)
}
