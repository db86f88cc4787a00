// Package maxsim scores an item by the best of its vectors, φ(q, x) = max_j ⟨q, v_j⟩:
// max-sim over behavioural vectors (MVG, eq. 2), the item's own vector among them.
package maxsim

import (
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Config describes max-sim.
type Config struct {
	// Dim is the dimension of both sides.
	Dim int `json:"dim"`
	// Normalise divides both sides by their norms.
	Normalise bool `json:"normalise"`
}

// Similarity is max_j ⟨q, v_j⟩ over the rows that an item owns (rerank.Items.Starts).
// It is immutable and safe for concurrent use.
type Similarity struct{ *inner.Vectors }

var _ rerank.Similarity = (*Similarity)(nil)

// New makes a max-sim; the tensors may only hold learned probes. It returns
// rerank.ErrModel.
func New(c Config, t tensor.Set) (*Similarity, error) {
	v, err := inner.NewVectors(rerank.KindMaxSim, c.Dim, c.Normalise, t)
	return &Similarity{v}, err
}
