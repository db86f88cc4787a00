package fit

import (
	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/rerank"
)

// Corrected returns the data with the choices of c in place of its pairs. Each pair becomes a query
// row of its own, so that it counts by its own inverse propensity. With looks, a loss that reads Looks
// corrects for the positions; without, the weights of the pairs do.
func (d Data) Corrected(c *clicks.Corrected, looks bool) Data {
	n := len(c.Choices)
	r := Data{Items: d.Items, Forget: d.Forget, Queries: rerank.NewMatrix(n, d.Queries.Cols), Weights: make([][]float32, n), Asked: make([]float64, n)}
	looks = looks && c.Looks != nil
	if d.Times != nil {
		r.Times = make([]int64, n)
	}
	for i, one := range c.Choices {
		q := one.Query
		copy(r.Queries.Row(i), d.Queries.Row(int(q)))
		r.Relevant = append(r.Relevant, []int32{one.Item})
		r.Asked[i] = float64(one.Weight)
		weight := one.Weight
		if looks {
			r.Looks, r.Inverse = append(r.Looks, c.Looks[q]), append(r.Inverse, one.Inverse)
		} else {
			weight *= float32(one.Inverse)
		}
		r.Weights[i] = []float32{weight}
		if d.Times != nil {
			r.Times[i] = one.Time
		}
		if d.UserIDs != nil {
			r.UserIDs = append(r.UserIDs, d.UserIDs[q])
		}
		if d.Seen != nil {
			r.Seen = append(r.Seen, d.Seen[q])
		}
	}
	return r
}
