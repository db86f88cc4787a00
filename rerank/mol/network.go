package mol

import "github.com/likenessdb/likeness/rerank"

// Network is what of a MoL another processor needs to score feature rows of it by
// the rerank.Operands of a query. It aliases the model's tensors. With λ = ⟨f_i, g_j⟩/τ,
// pair i·P_X + j,
//
//	h = silu(First·λ + FirstBias)       λ itself where First has no rows
//	p = Second·h + SecondBias           0 where Second has no rows
//	z = query ⊙ item + p, z·sigmoid(z)  glu_silu
//	z = query + item + p                none; absent parts are 0
//	φ = Σ softmax(z)·λ
type Network struct {
	PairsQuery, PairsItem, Dim int
	// Combination of the gates' parts. Fixed: the query alone decides them, φ is one
	// inner product of the whole feature row, and nothing below matters.
	Combination Combination
	Fixed       bool
	// ItemGates: a feature row ends with the item's part of the gates.
	ItemGates bool
	// QueryGates: an encoded query has a part of the gates.
	QueryGates bool
	// First (H, L) and Second (L, H), or (L, L) without First, L = P_Q·P_X.
	First, Second         rerank.Matrix
	FirstBias, SecondBias []float32
	// Unit: components have norm 1 at most, within rounding.
	Unit        bool
	Temperature float64
}

// Network returns what scores items.
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
	return rerank.Operands{Vectors: e.components, Gates: e.gate, Scale: e.s.maxScore()}
}
