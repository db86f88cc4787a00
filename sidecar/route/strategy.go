package route

import (
	"cmp"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// chooseStrategy gives a route whose operator named no strategy the first of preferredStrategies whose
// probes its model makes and its collections can be searched with.
func (c *checking) chooseStrategy() error {
	var unsearchable error
	for _, s := range c.preferredStrategies() {
		if s == rerank.Scan && c.Table == nil {
			continue
		}
		c.Strategy = s
		probes, err := c.trialProbes()
		if err != nil {
			continue
		}
		if err = c.CheckProbes(probes); err == nil {
			return nil
		}
		unsearchable = cmp.Or(unsearchable, err)
	}
	if unsearchable != nil {
		return unsearchable
	}
	return c.wrong("no strategy applies to its model and placement; give it a table or a companion (`likeness index`)")
}

// sameRecall is the difference of recall below which the cheaper of two first stages is taken.
const sameRecall = 0.005

// preferredStrategies returns strategies in the order in which the route should take them. The one that
// found most of the exact answer among the route's depth of candidates, when it was measured, is first; of
// those that found as much, the one of fewest searches is, and then one that searches the collection
// itself. Strategies that were not measured as this route would search follow, and the scan of a table is
// last.
func (c *checking) preferredStrategies() []rerank.Strategy {
	if c.Spec.SingleInnerProduct {
		return []rerank.Strategy{rerank.Average, rerank.Scan}
	}
	measured, unmeasured := &c.Model.FirstStages, []rerank.Strategy{rerank.Companion, rerank.Distilled, rerank.Average, rerank.PerEmbedding}
	var stages []*rerank.FirstStage
	for _, s := range unmeasured {
		head := ""
		if s == rerank.Distilled {
			head = c.Head
		}
		if found := measured.Find(s, head); found != nil && found.Companion == c.SearchesCompanion(s) {
			stages = append(stages, found)
		}
	}
	var order []rerank.Strategy
	for len(stages) > 0 {
		best := takeBest(stages, func(s *rerank.FirstStage) float64 { return measured.RecallAt(s, c.Depth) })
		order = append(order, stages[best].Strategy)
		stages = slices.Delete(stages, best, best+1)
	}
	unmeasured = slices.DeleteFunc(unmeasured, func(s rerank.Strategy) bool { return slices.Contains(order, s) })
	return append(append(order, unmeasured...), rerank.Scan)
}

// takeBest returns the index of the cheapest stage among those whose recall is at most sameRecall
// below the greatest.
func takeBest(stages []*rerank.FirstStage, recall func(*rerank.FirstStage) float64) int {
	greatest := 0.0
	for _, s := range stages {
		greatest = max(greatest, recall(s))
	}
	best := -1
	for i, s := range stages {
		if recall(s) <= greatest-sameRecall {
			continue
		}
		if best < 0 || s.Searches < stages[best].Searches || s.Searches == stages[best].Searches && !s.Companion && stages[best].Companion {
			best = i
		}
	}
	return best
}
