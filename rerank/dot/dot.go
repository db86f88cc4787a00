// Package dot implements the baseline similarity φ(q, x) = ⟨q, x⟩, which is the cosine for
// unit vectors.
package dot

import (
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Config describes a dot product.
type Config struct {
	// Dim is the dimension of both sides.
	Dim int `json:"dim"`
	// Normalise divides both sides by their norms, which makes φ the cosine.
	Normalise bool `json:"normalise"`
}

// Similarity is ⟨q, x⟩. It is immutable and safe for concurrent use.
type Similarity struct{ *inner.Vectors }

var _ rerank.Similarity = (*Similarity)(nil)

// New returns a dot product. The tensors may only contain learned probes. It returns
// rerank.ErrModel.
func New(c Config, t tensor.Set) (*Similarity, error) {
	v, err := inner.NewVectors(rerank.KindDot, c.Dim, c.Normalise, t)
	return &Similarity{v}, err
}
