package clicks

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestRegressionLeavesOutAFifth: a standard error of five estimates takes each fifth of the queries out of one of them.
func TestRegressionLeavesOutAFifth(t *testing.T) {
	r := &regression{steps: 2, features: rerank.NewMatrix(1, 2)}
	r.rows = []regressionRow{{cell: cell{step: 0, shown: 100, clicked: 50}, fold: 7}, {cell: cell{step: 1, shown: 100, clicked: 1}, fold: 12}}
	start := []float64{1, 0.5}
	for fold := range regressionFolds {
		if got := r.estimate(fold); slices.Equal(got, start) != (fold == 7%regressionFolds) {
			t.Errorf("without part %d, the curve is %.3f", fold, got)
		}
	}
}
