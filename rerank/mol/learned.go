package mol

import "github.com/likenessdb/likeness/rerank"

var _ rerank.FeatureOwner = (*encoded)(nil)

// queryFeatures returns the length of QueryFeatures.
func (s *Similarity) queryFeatures() int {
	n := s.spec.QueryDim + s.c.PairsQuery*s.c.Dim
	if s.byQuery.exists() {
		n += s.c.pairs()
	}
	return n
}

// QueryFeatures implements rerank.FeatureOwner: the query vector, its components and its part of the
// gates.
func (e *encoded) QueryFeatures() rerank.Matrix {
	f := make([]float32, 0, e.s.queryFeatures())
	f = append(append(append(f, e.vector...), e.components.Data...), e.gate...)
	return rerank.Matrix{Rows: 1, Cols: len(f), Data: f}
}
