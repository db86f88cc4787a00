// Package maxsim scores an item by the best of its vectors, φ(q, x) = max_j ⟨q, v_j⟩:
// max-sim over behavioural vectors (MVG, eq. 2), the item's own vector among them.
package maxsim

import (
	"crypto/sha256"
	"fmt"

	"github.com/likenessdb/likeness/rerank"
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
	// Vectors is the digest of the behavioural vectors that belong to the model
	// (Vectors.Digest); empty: the collection's own rows are all there is.
	Vectors string `json:"vectors,omitempty"`
}

// Field is the vector field of a companion: an item's own vector in one row, and
// each of its behavioural vectors in another.
const Field = "vector"

// Owner is the name of a companion's field with the id of each row's item, unless
// another is asked for.
const Owner = "likeness_owner"

// Similarity is max_j ⟨q, v_j⟩ over the rows that an item owns (rerank.Items.Starts).
// It is immutable and safe for concurrent use.
type Similarity struct {
	*inner.Vectors
	vectors string
}

var (
	_ rerank.Similarity  = (*Similarity)(nil)
	_ rerank.Deriver     = (*Similarity)(nil)
	_ rerank.BatchScorer = (*Similarity)(nil)
)

// New makes a max-sim; the tensors may only hold learned probes. It returns
// rerank.ErrModel.
func New(c Config, t tensor.Set) (*Similarity, error) {
	if c.Vectors != "" && len(c.Vectors) != 2*sha256.Size {
		return nil, fmt.Errorf("%w: vectors is %q, want the %d hex digits of a SHA-256", rerank.ErrModel, c.Vectors, 2*sha256.Size)
	}
	v, err := inner.NewVectors(rerank.KindMaxSim, c.Dim, c.Normalise, t)
	if err != nil {
		return nil, err
	}
	return &Similarity{v.In(Field), c.Vectors}, nil
}

// VectorsDigest is Config.Vectors.
func (s *Similarity) VectorsDigest() string { return s.vectors }

// WithKernels returns the similarity on other kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	return &Similarity{s.Vectors.WithKernels(k).(*inner.Vectors), s.vectors}
}

// Fields implements rerank.Deriver: one field, which every probe searches.
func (s *Similarity) Fields() []rerank.Field {
	return []rerank.Field{{
		Name: Field, Dim: s.Spec().ItemDim, Feature: true,
		Strategies: []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined},
	}}
}

// Derive implements rerank.Deriver: the field holds the feature rows.
func (s *Similarity) Derive(dst rerank.Matrix, field string, features rerank.Matrix) error {
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
	return s.Derive(dst, Field, fields[0])
}
