package retrieve

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// noteChanged sets Changed if the companion changed between the reads of lists and of feature rows: if a
// list has another score for a candidate than its row gives, or if an exact list lacks a candidate of an
// earlier round that belongs to it by its row. Items outside the lists may have changed too. batches
// holds the rows of new candidates.
func (r *Reader) noteChanged(p *plan.Plan, lists []rerank.List, batches []score.Batch) {
	v := r.View
	if !v.Reembeds() || r.Changed {
		return
	}
	for i, probe := range p.Probes {
		if len(v.FeatureFields) != 1 || probe.Field != v.FeatureFields[0] {
			continue
		}
		if r.products == nil {
			r.products = make([]map[rerank.ID]float64, len(p.Probes))
		}
		if r.products[i] == nil {
			r.products[i] = map[rerank.ID]float64{}
		}
		for _, b := range batches {
			for at, id := range b.IDs {
				r.products[i][id] = product(probe.Vector, b.Items.Features.Row(at))
			}
		}
		for at, id := range lists[i].IDs {
			read, known := r.products[i][id]
			listed := float64(lists[i].Scores[at])
			if off := float64(lists[i].Epsilon) + 1e-6*math.Abs(read); known && !(math.Abs(listed-read) <= off) {
				r.Changed = true
				return
			}
		}
		if r.Changed = isMissing(lists[i], r.products[i]); r.Changed {
			return
		}
	}
}

// isMissing reports whether an exact list lacks an item that, by its inner product, belongs to it.
func isMissing(l rerank.List, products map[rerank.ID]float64) bool {
	if !l.Exact || len(l.IDs) == 0 {
		return false
	}
	floor := math.Inf(-1)
	if !l.Exhausted {
		floor = float64(l.Scores[len(l.Scores)-1])
	}
	listed := make(map[rerank.ID]bool, len(l.IDs))
	for _, id := range l.IDs {
		listed[id] = true
	}
	for id, read := range products {
		if read-float64(l.Epsilon)-1e-6*math.Abs(read) > floor && !listed[id] {
			return true
		}
	}
	return false
}

func product(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}
