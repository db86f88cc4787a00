package inner

import "github.com/likenessdb/likeness/rerank"

var _ rerank.Operator = (*Product)(nil)

// Operands implements rerank.Operator: φ = Scale·⟨U, features⟩.
func (p *Product) Operands() rerank.Operands {
	return rerank.Operands{Vectors: rerank.Matrix{Rows: 1, Cols: len(p.U), Data: p.U}, Scale: p.Scale}
}
