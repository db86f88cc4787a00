package late

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
)

var (
	_ rerank.FeatureOwner = (*encoded)(nil)
	_ rerank.Deriver      = (*Similarity)(nil)
)

// QueryFeatures implements rerank.FeatureOwner: the query's vectors.
func (e *encoded) QueryFeatures() rerank.Matrix { return e.vectors }

// Fields implements rerank.Deriver: the vectors of the learned companion, if the model has one.
func (s *Similarity) Fields() []rerank.Field {
	if s.learned == nil {
		return nil
	}
	return []rerank.Field{{Name: companion.Field, Dim: s.learned.Dim(), Strategies: []rerank.Strategy{rerank.Companion}}}
}

// Derive implements rerank.Deriver. An item's vector takes the scores of all anchors.
func (s *Similarity) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	if s.learned == nil || field != companion.Field {
		return fmt.Errorf("%w: the model derives no field %q", rerank.ErrItems, field)
	}
	solver, err := s.solver()
	if err != nil {
		return err
	}
	return solver.Solve(dst, items)
}

// Features implements rerank.Deriver. No field holds an item's vectors, so it returns rerank.ErrItems.
func (s *Similarity) Features(_ rerank.Matrix, fields []rerank.Matrix) error {
	return fmt.Errorf("%w: %d fields make no feature rows of late interaction", rerank.ErrItems, len(fields))
}
