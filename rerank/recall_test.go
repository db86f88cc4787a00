package rerank

import (
	"math"
	"testing"
)

func TestRecallTable(t *testing.T) {
	valid := func() RecallTable {
		return RecallTable{K: 10, Depths: []int{50, 100}, Stages: []FirstStage{
			{Strategy: Distilled, Head: "linear", Searches: 1, Recall: []float64{.6, .9}},
			{Strategy: Distilled, Head: "residual", Searches: 1, Recall: []float64{.7, .8}},
		}}
	}
	r := valid()
	if !r.IsValid() {
		t.Errorf("%+v is valid", r)
	}
	for candidates, want := range map[int]float64{1: .7, 50: .7, 75: .75, 100: .8, 900: .8} {
		if got := r.RecallAt(r.Find(Distilled, ""), candidates); !(math.Abs(got-want) <= 1e-12) {
			t.Errorf("recall %g among %d, want %g", got, candidates, want)
		}
	}
	if s := r.Find(Distilled, "linear"); s.Name() != "distilled linear" || r.Find(Average, "") != nil || r.Find(Distilled, "other") != nil {
		t.Errorf("found %+v", s)
	}
	for name, damage := range map[string]func(*RecallTable){
		"descending":    func(r *RecallTable) { r.Depths = []int{100, 50} },
		"no candidates": func(r *RecallTable) { r.Depths = []int{0, 50} },
		"a recall less": func(r *RecallTable) { r.Stages[1].Recall = []float64{.5} },
		"above 1":       func(r *RecallTable) { r.Stages[0].Recall[1] = 1.1 },
		"no number":     func(r *RecallTable) { r.Stages[0].Recall[1] = math.NaN() },
		"no searches":   func(r *RecallTable) { r.Stages[0].Searches = 0 },
		"no depths":     func(r *RecallTable) { r.Depths, r.Stages[0].Recall, r.Stages[1].Recall = nil, nil, nil },
	} {
		r := valid()
		if damage(&r); r.IsValid() {
			t.Errorf("%s: %+v passes for valid", name, r)
		}
	}
}
