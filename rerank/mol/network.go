package mol

import "github.com/likenessdb/likeness/rerank"

// Network contains everything that another processor needs to score a MoL's feature rows,
// given the rerank.Operands of a query. It aliases the model's tensors. With λ = ⟨f_i,
// g_j⟩/τ for pair i·P_X + j, it stands for
//
//	h = silu(First·λ + FirstBias)       λ itself if First has no rows
//	p = Second·h + SecondBias           0 if Second has no rows
//	z = query ⊙ item + p, z·sigmoid(z)  for glu_silu
//	z = query + item + p                for none; absent parts are 0
//	φ = Σ softmax(z)·λ
type Network struct {
	PairsQuery, PairsItem, Dim int
	// Combination says how the parts of the gates are combined. Fixed means that the query
	// alone decides the gates, so φ is one inner product with the whole feature row, and
	// the fields below are unused.
	Combination Combination
	Fixed       bool
	// ItemGates: a feature row ends with the item's part of the gates.
	ItemGates bool
	// QueryGates: an encoded query has its own part of the gates.
	QueryGates bool
	// First is (H, L) and Second (L, H); without First, Second is (L, L). L = P_Q·P_X.
	First, Second         rerank.Matrix
	FirstBias, SecondBias []float32
	// Unit: components have norm 1 at most, up to rounding.
	Unit        bool
	Temperature float64
}

// Network returns the scoring part of the model.
func (s *Similarity) Network() Network {
	return Network{
		PairsQuery: s.c.PairsQuery, PairsItem: s.c.PairsItem, Dim: s.c.Dim,
		Combination: s.c.Combination, Fixed: s.queryOnly(), ItemGates: s.byItem.exists(), QueryGates: s.byQuery.exists(),
		First: s.byPair.first.w, Second: s.byPair.second.w, FirstBias: s.byPair.first.bias, SecondBias: s.byPair.second.bias,
		Unit: s.c.hasUnitComponents(), Temperature: s.c.Temperature,
	}
}

var _ rerank.Operator = (*encoded)(nil)

// Operands implements rerank.Operator.
func (e *encoded) Operands() rerank.Operands {
	return rerank.Operands{Vectors: e.components, Gates: e.gate, Scale: e.c.maxScore()}
}
