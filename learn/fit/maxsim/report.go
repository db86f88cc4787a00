package maxsim

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
)

// Report says what a fit of behavioural vectors did and how good the vectors are.
type Report struct {
	Counts fit.Counts `json:"counts"`
	Seed   uint64     `json:"seed"`
	Beta   float64    `json:"beta"`
	// MAvg is the chosen budget, in vectors per item. 0 means that no budget was better than no
	// vectors.
	MAvg float64 `json:"mavg"`
	// Budget is MAvg times the number of items, but at most the number of pairs. Vectors is how
	// many vectors were found: similar queries need fewer than the budget.
	Budget  int `json:"budget"`
	Vectors int `json:"vectors"`
	// ItemsWithVectors counts items with one vector or more.
	ItemsWithVectors int `json:"items_with_vectors"`
	// Guarded means that budgets under which items without logs lose were ruled out.
	Guarded bool    `json:"guarded"`
	Trials  []Trial `json:"trials"`
	// Logged compares on held-out queries, Cold on held-out items, both with the chosen budget.
	Logged         fit.Comparison  `json:"logged"`
	Cold           *fit.Comparison `json:"cold,omitempty"`
	Recommendation string          `json:"recommendation"`
	Warnings       []string        `json:"warnings,omitempty"`
}

// Trial is a budget and what held-out queries found with it.
type Trial struct {
	MAvg    float64         `json:"mavg"`
	Vectors int             `json:"vectors"`
	Logged  fit.Comparison  `json:"logged"`
	NDCG    float64         `json:"ndcg"`
	Cold    *fit.Comparison `json:"cold,omitempty"`
	// AsGood means that the MRR is at most a standard error below the best.
	AsGood     bool `json:"as_good"`
	Admissible bool `json:"admissible"`
	Chosen     bool `json:"chosen"`

	reciprocalRanks, plainRanks []float64 // of the held-out queries
}

// newTrial makes a trial of the marks of a budget.
func newTrial(average float64, m marks, j judges, guarded bool) Trial {
	t := Trial{
		MAvg: average, Vectors: m.Vectors, Logged: j.logged.Compare(m.ReciprocalRanks, m.PlainRanks),
		NDCG: j.logged.Mean(m.NDCG), Admissible: true, reciprocalRanks: m.ReciprocalRanks, plainRanks: m.PlainRanks,
	}
	if j.cold != nil {
		c := j.cold.Compare(m.ColdRanks, m.ColdRanksByPlain)
		t.Cold = &c
		t.Admissible = !guarded || c.Gain >= -c.StandardError
	}
	return t
}

// String describes the trial on one line.
func (t Trial) String() string {
	text := fmt.Sprintf("%g vectors an item: held-out MRR@10 %.4f, nDCG@10 %.4f", t.MAvg, t.Logged.MRR, t.NDCG)
	if t.Cold != nil {
		text += fmt.Sprintf("; held-out items %.4f, plain %.4f", t.Cold.MRR, t.Cold.Baseline)
	}
	return text
}

// choose chooses the budget among the trials, and recommends it or the plain inner
// product. logged is the judge of the trials.
func (r *Report) choose(logged *judge.Judge) {
	best := -1
	for i, t := range r.Trials {
		if t.Admissible && (best < 0 || t.Logged.MRR > r.Trials[best].Logged.MRR) {
			best = i
		}
	}
	chosen := -1
	for i := range r.Trials {
		t := &r.Trials[i]
		if best < 0 || !t.Admissible {
			continue
		}
		loss := logged.Compare(r.Trials[best].reciprocalRanks, t.reciprocalRanks)
		if t.AsGood = loss.Gain <= loss.StandardError; t.AsGood && chosen < 0 {
			chosen = i
		}
	}
	isOnly := len(r.Trials) == 1
	if chosen < 0 && isOnly {
		chosen = 0
	}
	if chosen < 0 || !isOnly && r.Trials[chosen].Logged.Gain <= 0 {
		r.Logged = logged.Compare(r.Trials[0].plainRanks, r.Trials[0].plainRanks)
		r.Recommendation = "Stay with the plain inner product: no budget that was tried is better on held-out queries and keeps items without logs."
		return
	}
	t := &r.Trials[chosen]
	t.Chosen = true
	r.MAvg, r.Logged, r.Cold = t.MAvg, t.Logged, t.Cold
	r.recommend(chosen, best)
}

// recommend recommends the chosen trial or the plain inner product, and warns if items
// without logs lose. best is the trial of the best MRR.
func (r *Report) recommend(chosen, best int) {
	t := r.Trials[chosen]
	switch {
	case t.Logged.Gain < 2*t.Logged.StandardError || math.IsNaN(t.Logged.Gain):
		r.Recommendation = fmt.Sprintf("Stay with the plain inner product: %g vectors an item are not surely better on held-out queries.", t.MAvg)
	case len(r.Trials) == 1:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item, as asked: they are better than the plain inner product on held-out queries.", t.MAvg)
	case chosen == best:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item: nothing smaller was as good on held-out queries.", t.MAvg)
	default:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item: they are as good as %g on held-out queries.", t.MAvg, r.Trials[best].MAvg)
	}
	if c := t.Cold; c != nil && c.Gain < -c.StandardError {
		text := fmt.Sprintf("items without logs lose: MRR@%d %.4f ± %.4f, %.4f by the plain inner product, on %d queries of items held out; "+
			"items with vectors come before them", judge.Cutoff, c.MRR, c.StandardError, c.Baseline, c.Queries)
		if !r.Guarded {
			text += ". --cold guard takes no budget under which they lose"
		}
		r.Warnings = append(r.Warnings, text)
	}
}
