package route

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestPreferredStrategies: a route takes what found most at its depth, the cheaper of two that found as much, and
// without measurements the usual order.
func TestPreferredStrategies(t *testing.T) {
	stage := func(s rerank.Strategy, head string, searches int, companion bool, recall ...float64) rerank.FirstStage {
		return rerank.FirstStage{Strategy: s, Head: head, Searches: searches, Companion: companion, Recall: recall}
	}
	table := func(stages ...rerank.FirstStage) rerank.RecallTable {
		return rerank.RecallTable{K: 10, Depths: []int{100, 300}, Stages: stages}
	}
	linear, residual := stage(rerank.Distilled, "linear", 1, false, .7, .97), stage(rerank.Distilled, "residual", 1, false, .8, .95)
	companion := stage(rerank.Companion, "", 1, true, .95, .972)
	pairs := stage(rerank.PerEmbedding, "", 16, true, .952, .999)
	for name, c := range map[string]struct {
		single bool
		table  rerank.RecallTable
		head   string
		depth  int
		want   []rerank.Strategy // the first ones
	}{
		"one inner product":     {true, table(companion), "", 100, []rerank.Strategy{rerank.Average, rerank.Scan}},
		"nothing measured":      {false, table(), "", 100, []rerank.Strategy{rerank.Companion, rerank.Distilled, rerank.Average, rerank.PerEmbedding, rerank.Scan}},
		"the most":              {false, table(residual, companion), "", 100, []rerank.Strategy{rerank.Companion, rerank.Distilled, rerank.Average}},
		"as much by fewer":      {false, table(pairs, companion), "", 100, []rerank.Strategy{rerank.Companion, rerank.PerEmbedding, rerank.Distilled}},
		"more when deeper":      {false, table(pairs, companion), "", 300, []rerank.Strategy{rerank.PerEmbedding, rerank.Companion}},
		"between two depths":    {false, table(pairs, companion), "", 120, []rerank.Strategy{rerank.Companion, rerank.PerEmbedding}},
		"as much as it is":      {false, table(companion, linear), "linear", 300, []rerank.Strategy{rerank.Distilled, rerank.Companion}},
		"by another head":       {false, table(companion, linear, residual), "residual", 300, []rerank.Strategy{rerank.Companion, rerank.Distilled}},
		"the best head's":       {false, table(linear, residual), "", 100, []rerank.Strategy{rerank.Distilled, rerank.Companion}},
		"a head not measured":   {false, table(pairs, linear), "residual", 100, []rerank.Strategy{rerank.PerEmbedding, rerank.Companion, rerank.Distilled}},
		"beyond what was tried": {false, table(pairs, companion), "", 5000, []rerank.Strategy{rerank.PerEmbedding, rerank.Companion}},
	} {
		route := &checking{Checked: Checked{Spec: rerank.Spec{SingleInnerProduct: c.single}}}
		route.Companion, route.Head, route.Depth, route.Model.FirstStages = "things_mol", c.head, c.depth, c.table
		if got := route.preferredStrategies(); !slices.Equal(got[:len(c.want)], c.want) || got[len(got)-1] != rerank.Scan {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	alone := &checking{}
	alone.Depth, alone.Model.FirstStages = 100, table(pairs, linear)
	if got := alone.preferredStrategies(); got[0] != rerank.Distilled {
		t.Errorf("without the companion in which pairs were measured: %v", got)
	}
	alone.Model.FirstStages = table(stage(rerank.PerEmbedding, "", 16, false, .95), stage(rerank.Average, "", 16, false, .95))
	if got := alone.preferredStrategies(); got[0] != rerank.Average {
		t.Errorf("of two strategies that are alike: %v", got)
	}
}
