package eval

import "github.com/likenessdb/likeness/learn/verdict"

// Plan says how many queries an evaluation needs, by the deviation of the paired
// differences that were measured.
type Plan struct {
	// Difference is the difference to be shown, Power the chance to show it.
	Difference float64     `json:"difference"`
	Power      float64     `json:"power"`
	Models     []ModelPlan `json:"models"`
}

// ModelPlan is the plan of comparing one model with another.
type ModelPlan struct {
	Model   string `json:"model"`
	Against string `json:"against"`
	// Deviation is the standard deviation of the difference in one query.
	Deviation float64 `json:"deviation"`
	// Queries is how many queries show Difference, 0 if that cannot be estimated.
	Queries int `json:"queries"`
	// Detectable is the smallest difference that as many queries as were given show.
	Detectable float64 `json:"detectable"`
}

// plan plans the comparisons of every model with the baseline and with the best model.
func (r *Report) plan(difference float64) *Plan {
	p := &Plan{Difference: difference, Power: verdict.Power}
	add := func(model, against string, measured Paired) {
		deviation := r.difference(measured).Deviation(r.Method.Confidence)
		p.Models = append(p.Models, ModelPlan{
			Model: model, Against: against, Deviation: deviation,
			Queries:    verdict.QueriesFor(deviation, difference, r.Method.Confidence),
			Detectable: verdict.Detectable(deviation, r.Counts.Queries, r.Method.Confidence),
		})
	}
	for n, m := range r.Models {
		if g := r.Judge(&r.Models[n]).Gain; g != nil {
			add(m.Name, r.BaselineName, *g)
		}
	}
	for _, m := range r.Models {
		if m.ToBest != nil {
			add(m.Name, r.Verdict.Best, *m.ToBest)
		}
	}
	return p
}
