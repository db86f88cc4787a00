package retrieve

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// noteChanged sets Changed if a candidate's feature row contradicts the score that a list has for it: the
// companion's row got another vector between the two reads. Items outside the lists may have changed
// with it. batches holds the rows of new candidates.
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
	}
}

func product(a, b []float32) (sum float64) {
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}
