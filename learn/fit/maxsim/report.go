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
	// Beta is the chosen exponent of popularity.
	Beta float64 `json:"beta"`
	// RepeatShare is the share of later traffic that asks what the log has; see
	// Options.RepeatShare.
	RepeatShare float64 `json:"repeat_share"`
	Skew        Skew    `json:"skew"`
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
	// UpdatedItems counts the items that an update clustered.
	UpdatedItems int `json:"updated_items,omitempty"`
	// Logged compares on held-out queries, which are new, Seen on queries seen before (absent if
	// no traffic repeats), Traffic on both by their shares, Cold on held-out items; all with the
	// chosen budget.
	Logged         fit.Comparison  `json:"logged"`
	Seen           *fit.Comparison `json:"seen,omitempty"`
	Traffic        fit.Comparison  `json:"traffic"`
	Cold           *fit.Comparison `json:"cold,omitempty"`
	Recommendation string          `json:"recommendation"`
	Warnings       []string        `json:"warnings,omitempty"`
}

// Trial is a budget and what held-out queries found with it.
type Trial struct {
	MAvg    float64         `json:"mavg"`
	Beta    float64         `json:"beta"`
	Vectors int             `json:"vectors"`
	Logged  fit.Comparison  `json:"logged"`
	Seen    *fit.Comparison `json:"seen,omitempty"`
	Traffic fit.Comparison  `json:"traffic"`
	NDCG    float64         `json:"ndcg"`
	Cold    *fit.Comparison `json:"cold,omitempty"`
	// AsGood means that the MRR is at most a standard error below the best.
	AsGood     bool `json:"as_good"`
	Admissible bool `json:"admissible"`
	Chosen     bool `json:"chosen"`

	reciprocalRanks, plainRanks []float64 // of the held-out queries
	seenRanks, seenPlainRanks   []float64 // of queries seen before
}

// newTrial makes a trial of the marks of a budget.
func newTrial(average, beta float64, m marks, j judges, guarded bool) Trial {
	t := Trial{
		MAvg: average, Beta: beta, Vectors: m.Vectors, Logged: j.logged.Compare(m.ReciprocalRanks, m.PlainRanks),
		NDCG: j.logged.Mean(m.NDCG), Admissible: true, reciprocalRanks: m.ReciprocalRanks, plainRanks: m.PlainRanks,
	}
	t.Traffic = t.Logged
	if j.seen != nil {
		seen := j.seen.Compare(m.SeenRanks, m.SeenRanksByPlain)
		t.seenRanks, t.seenPlainRanks = m.SeenRanks, m.SeenRanksByPlain
		t.Seen, t.Traffic = &seen, j.mix(seen, t.Logged)
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
	text := fmt.Sprintf("%g vectors an item, beta %g: held-out MRR@10 %.4f, nDCG@10 %.4f", t.MAvg, t.Beta, t.Logged.MRR, t.NDCG)
	if t.Seen != nil {
		text += fmt.Sprintf("; queries seen before %.4f, all traffic %.4f", t.Seen.MRR, t.Traffic.MRR)
	}
	if t.Cold != nil {
		text += fmt.Sprintf("; held-out items %.4f, plain %.4f", t.Cold.MRR, t.Cold.Baseline)
	}
	return text
}

// loss returns by how much a trial is behind another one, over the traffic.
func (j judges) loss(of, to Trial) fit.Comparison {
	loss := j.logged.Compare(to.reciprocalRanks, of.reciprocalRanks)
	if j.seen == nil {
		return loss
	}
	return j.mix(j.seen.Compare(to.seenRanks, of.seenRanks), loss)
}

// mix returns the figures of the traffic from those of its seen and of its new queries.
func (j judges) mix(seen, unseen fit.Comparison) fit.Comparison {
	s := j.repeatShare
	return fit.Comparison{
		Queries: seen.Queries + unseen.Queries, MRR: s*seen.MRR + (1-s)*unseen.MRR,
		Baseline: s*seen.Baseline + (1-s)*unseen.Baseline, Gain: s*seen.Gain + (1-s)*unseen.Gain,
		StandardError: math.Hypot(s*seen.StandardError, (1-s)*unseen.StandardError),
	}
}

// chooseBudget returns the trial of the smallest budget that is as good as the best and
// better than no vectors, and the best. chosen is −1 if there is none.
func (r *Report) chooseBudget(j judges) (chosen, best int) {
	chosen, best = -1, -1
	for i, t := range r.Trials {
		if t.Admissible && (best < 0 || t.Traffic.MRR > r.Trials[best].Traffic.MRR) {
			best = i
		}
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		if best < 0 || !t.Admissible {
			continue
		}
		loss := j.loss(*t, r.Trials[best])
		if t.AsGood = loss.Gain <= loss.StandardError; t.AsGood && chosen < 0 {
			chosen = i
		}
	}
	if len(r.Trials) == 1 {
		return 0, 0
	}
	if chosen >= 0 && r.Trials[chosen].Traffic.Gain <= 0 {
		chosen = -1
	}
	return chosen, best
}

// chooseBeta returns the chosen trial, or the best of the trials from the given one on, which
// have other betas, if that is better by more than a standard error.
func (r *Report) chooseBeta(j judges, chosen, from int) int {
	budget := chosen
	for i := from; i < len(r.Trials); i++ {
		t := &r.Trials[i]
		gain := j.loss(r.Trials[budget], *t)
		t.AsGood = -gain.Gain <= gain.StandardError
		if t.Admissible && gain.Gain > gain.StandardError && t.Traffic.MRR > r.Trials[chosen].Traffic.MRR {
			chosen = i
		}
	}
	return chosen
}

// stay reports that no budget is worth it.
func (r *Report) stay(j judges) {
	t := r.Trials[0]
	r.Logged = j.logged.Compare(t.plainRanks, t.plainRanks)
	r.Traffic = r.Logged
	if j.seen != nil {
		plain := j.seen.Compare(t.seenPlainRanks, t.seenPlainRanks)
		r.Seen, r.Traffic = &plain, j.mix(plain, r.Logged)
	}
	r.Recommendation = "Stay with the plain inner product: no budget that was tried is better on held-out queries and keeps items without logs."
}

// take reports the chosen trial. best is the trial of the best budget.
func (r *Report) take(chosen, best int, isOnly bool) {
	t := &r.Trials[chosen]
	t.Chosen = true
	r.MAvg, r.Beta, r.Logged, r.Seen, r.Traffic, r.Cold = t.MAvg, t.Beta, t.Logged, t.Seen, t.Traffic, t.Cold
	r.recommend(chosen, best, isOnly)
}

// recommend recommends the chosen trial or the plain inner product, and warns if items
// without logs lose. best is the trial of the best MRR.
func (r *Report) recommend(chosen, best int, isOnly bool) {
	t := r.Trials[chosen]
	switch {
	case t.Traffic.Gain < 2*t.Traffic.StandardError || math.IsNaN(t.Traffic.Gain):
		r.Recommendation = fmt.Sprintf("Stay with the plain inner product: %g vectors an item are not surely better on held-out queries.", t.MAvg)
	case isOnly:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item, as asked: they are better than the plain inner product on held-out queries.", t.MAvg)
	case t.MAvg == r.Trials[best].MAvg:
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
