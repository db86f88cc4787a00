// Package maxsim implements the max-sim similarity over behavioural vectors (MVG, eq. 2):
// the score of an item is the score of the best of its vectors, φ(q, x) = max_j ⟨q, v_j⟩.
// The item's own vector is one of them.
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
	// (Vectors.Digest). Empty means that items own only their rows in the collection.
	Vectors string `json:"vectors,omitempty"`
}

// Field names the vector field of a companion. It holds an item's own vector in one row and
// each of its behavioural vectors in a row of its own.
const Field = "vector"

// Owner is the default name of a companion's field that holds the item id of each row.
const Owner = "likeness_owner"

// Similarity scores an item by max_j ⟨q, v_j⟩ over the rows that it owns
// (rerank.Items.Starts). It is immutable and safe for concurrent use.
type Similarity struct {
	*inner.Vectors
	vectors string
}

var (
	_ rerank.Similarity  = (*Similarity)(nil)
	_ rerank.Deriver     = (*Similarity)(nil)
	_ rerank.BatchScorer = (*Similarity)(nil)
)

// New returns a max-sim similarity. The tensors may only contain learned probes. It returns
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

// VectorsDigest returns Config.Vectors.
func (s *Similarity) VectorsDigest() string { return s.vectors }

// WithKernels returns the similarity on other kernels.
func (s *Similarity) WithKernels(k *kernel.Set) rerank.Similarity {
	return &Similarity{s.Vectors.WithKernels(k).(*inner.Vectors), s.vectors}
}

// Fields implements rerank.Deriver. There is one field, which every probe searches.
func (s *Similarity) Fields() []rerank.Field {
	return []rerank.Field{{
		Name: Field, Dim: s.Spec().ItemDim, Feature: true,
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
