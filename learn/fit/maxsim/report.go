package maxsim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/verdict"
)

// Report says what a fit of behavioural vectors did and how good the vectors are.
type Report struct {
	Counts fit.Counts `json:"counts"`
	Seed   uint64     `json:"seed"`
	// Measure chose the budget and the exponent, and judges the fit.
	Measure fit.Measure `json:"measure"`
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
	// These compare the chosen budget with the plain inner product: Logged on held-out queries, which are new; Seen
	// on queries that the log has (absent if no traffic repeats); Traffic on both, weighed by their shares of the
	// traffic; Cold on held-out items.
	Logged  fit.Comparison  `json:"logged"`
	Seen    *fit.Comparison `json:"seen,omitempty"`
	Traffic fit.Comparison  `json:"traffic"`
	Cold    *fit.Comparison `json:"cold,omitempty"`
	// Verdict says which budget to take, if any; Recommendation is its text.
	Verdict        fit.Verdict `json:"verdict"`
	Recommendation string      `json:"recommendation"`
	Warnings       []string    `json:"warnings,omitempty"`
}

// Trial is a budget and what held-out queries found with it.
type Trial struct {
	MAvg    float64         `json:"mavg"`
	Beta    float64         `json:"beta"`
	Vectors int             `json:"vectors"`
	Logged  fit.Comparison  `json:"logged"`
	Seen    *fit.Comparison `json:"seen,omitempty"`
	Traffic fit.Comparison  `json:"traffic"`
	// MRR and NDCG are MRR@10 and nDCG@10 of held-out queries.
	MRR  float64         `json:"mrr"`
	NDCG float64         `json:"ndcg"`
	Cold *fit.Comparison `json:"cold,omitempty"`
	// Standing says how the trial stands to the best one over the traffic. It is empty for a trial
	// that is not admissible.
	Standing   verdict.Standing `json:"standing,omitempty"`
	Admissible bool             `json:"admissible"`
	Chosen     bool             `json:"chosen"`

	marks, plain []float64 // the measure of the queries of the traffic, with the budget and by the plain inner product
}

// name names the trial in a verdict.
func (t Trial) name() string { return fmt.Sprintf("%g vectors an item, beta %g", t.MAvg, t.Beta) }

// newTrial makes a trial of the marks of a budget.
func (r *Report) newTrial(average, beta float64, m marks, j judges) Trial {
	logged := m.Logged.By(r.Measure)
	t := Trial{
		MAvg: average, Beta: beta, Vectors: m.Vectors, Logged: j.logged.Compare(logged, m.Plain),
		MRR: j.logged.Mean(m.Logged.MRR), NDCG: j.logged.Mean(m.Logged.NDCG), Admissible: true,
		marks: slices.Concat(logged, m.Seen), plain: slices.Concat(m.Plain, m.SeenByPlain),
	}
	t.Traffic = j.traffic.Compare(t.marks, t.plain)
	if j.seen != nil {
		seen := j.seen.Compare(m.Seen, m.SeenByPlain)
		t.Seen = &seen
	}
	if j.cold != nil {
		c := j.cold.Compare(m.Cold, m.ColdByPlain)
		t.Cold = &c
		t.Admissible = !r.Guarded || c.Gain >= -c.StandardError
	}
	return t
}

// String describes the trial on one line.
func (t Trial) String() string {
	text := fmt.Sprintf("%s: held-out MRR@10 %.4f, nDCG@10 %.4f", t.name(), t.MRR, t.NDCG)
	if t.Seen != nil {
		text += fmt.Sprintf("; queries seen before %.4f, all traffic %.4f", t.Seen.Value, t.Traffic.Value)
	}
	if t.Cold != nil {
		text += fmt.Sprintf("; held-out items %.4f, plain %.4f", t.Cold.Value, t.Cold.Baseline)
	}
	return text
}

// decide compares the trials with the plain inner product over the traffic, and sets the verdict.
// It returns the trial to take: the chosen one, or, without a choice, the best one that gains at
// all, for further evaluation; −1 if none gains. If there is a single budget, that is always
// taken, even if items without logs lose.
func (r *Report) decide(j judges, isOnly bool) (int, error) {
	var rivals []judge.Rival
	at := map[string]int{}
	known := func(marks []float64) func(*judge.Judge) ([]float64, error) {
		return func(*judge.Judge) ([]float64, error) { return marks, nil }
	}
	for i, t := range r.Trials {
		if t.Admissible || isOnly {
			at[t.name()] = i
			rivals = append(rivals, judge.Rival{Name: t.name(), Numbers: t.Vectors * j.logged.Vectors.Cols, Marks: known(t.marks)})
		}
	}
	plain := judge.InnerProductRival()
	plain.Marks = known(r.Trials[0].plain)
	if len(rivals) == 0 {
		r.Verdict = fit.Verdict{Answer: verdict.No, Choose: plain.Name, Queries: len(j.traffic.Queries), Text: []string{
			fmt.Sprintf("Not worth it: keep %s.", plain.Name), "Items without logs lose under every budget that was tried.",
		}}
		return -1, nil
	}
	o, err := judge.DecideOnce(j.traffic, plain, rivals, verdict.DefaultRule())
	if err != nil {
		return -1, err
	}
	r.Verdict = fit.NewVerdict(o.Decision, o.Queries, o.Choice())
	for i, rival := range o.Rivals {
		r.Trials[at[rival.Name]].Standing = o.Decision.Standings[i]
	}
	best := at[o.Rivals[o.Decision.Best].Name]
	switch {
	case o.Decision.Choice >= 0:
		return at[o.Choice()], nil
	case isOnly || r.Trials[best].Traffic.Gain > 0:
		return best, nil
	}
	return -1, nil
}

// stay reports that no budget is worth it.
func (r *Report) stay(j judges) {
	t := r.Trials[0]
	heldOut := t.plain[:len(j.logged.Queries)]
	r.Logged, r.Traffic = j.logged.Compare(heldOut, heldOut), j.traffic.Compare(t.plain, t.plain)
	if j.seen != nil {
		seen := t.plain[len(heldOut):]
		plain := j.seen.Compare(seen, seen)
		r.Seen = &plain
	}
	r.Recommendation = strings.Join(r.Verdict.Text, "\n")
}

// take reports the trial whose vectors the fit makes, and warns if items without logs lose.
func (r *Report) take(chosen int) {
	t := &r.Trials[chosen]
	t.Chosen = true
	r.MAvg, r.Beta, r.Logged, r.Seen, r.Traffic, r.Cold = t.MAvg, t.Beta, t.Logged, t.Seen, t.Traffic, t.Cold
	r.Recommendation = strings.Join(r.Verdict.Text, "\n")
	if c := t.Cold; c != nil && c.Gain < -c.StandardError {
		text := fmt.Sprintf("items without logs lose: %s %.4f ± %.4f, %.4f by the plain inner product, on %d queries of items held out; "+
			"items with vectors come before them", r.Measure.Name(), c.Value, c.StandardError, c.Baseline, c.Queries)
		if !r.Guarded {
			text += ". --cold guard takes no budget under which they lose"
		}
		r.Warnings = append(r.Warnings, text)
	}
}
