package mol

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
)

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
func (e *encoded) QueryFeatures() []float32 {
	f := make([]float32, 0, e.s.queryFeatures())
	return append(append(append(f, e.vector...), e.components.Data...), e.gate...)
}

// newSolver encodes the anchors of the learned companion.
func (s *Similarity) newSolver() (*companion.Solver, error) {
	queries := s.learned.AnchorQueries()
	anchors := make([]rerank.Encoded, queries.Rows)
	for a := range anchors {
		e, err := s.Encode(rerank.Query{Vector: queries.Row(a)})
		if err != nil {
			return nil, fmt.Errorf("anchor %d of the learned companion: %w", a, err)
		}
		anchors[a] = e
	}
	features := func(e rerank.Encoded) []float32 { return e.(*encoded).QueryFeatures() }
	return companion.NewSolver(s.learned, anchors, features, s.ScoreBatch), nil
}
