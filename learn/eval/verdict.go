package eval

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict says in plain words whether a learned similarity is worth using, how sure
// that is, and which model to take.
type Verdict struct {
	// Answer is yes, no or unclear. It is empty without a baseline.
	Answer string `json:"answer,omitempty"`
	// Choose names the model to take: the simplest that is as good as the best. It
	// names the baseline if no model is shown to be better.
	Choose string `json:"choose"`
	Class  Class  `json:"class"`
	// Best names the model with the greatest metric. AsGood names the models that are
	// not shown to be worse, the simplest first.
	Best   string   `json:"best"`
	AsGood []string `json:"as_good"`
	// Sure is the share of the bootstrap samples in which the chosen model, or else
	// the best, beats the baseline.
	Sure float64 `json:"sure,omitempty"`
	// Text states the verdict in sentences. Warnings lists reasons against the choice.
	Text     []string `json:"text"`
	Warnings []string `json:"warnings,omitempty"`
}

// decide chooses the simplest model that is as good as the best and, if there is a
// baseline, better than it.
func (r *Report) decide(best int) Verdict {
	order := make([]*ModelReport, len(r.Models))
	for n := range r.Models {
		order[n] = &r.Models[n]
	}
	slices.SortStableFunc(order, compareSimplicity)
	top := &r.Models[best]
	v := Verdict{Best: top.Name}
	var choice *ModelReport
	for _, m := range order {
		if m.AsGood {
			v.AsGood = append(v.AsGood, m.Name)
			if choice == nil && (r.Baseline == nil || m.Gains[r.Method.Metric].Low > 0) {
				choice = m
			}
		}
	}
	switch {
	case r.Baseline == nil:
		v.Choose, v.Class = choice.Name, choice.Class
		v.Text = append(v.Text, r.describe(choice))
	case choice != nil:
		r.explainWorth(&v, choice)
	default:
		r.explainNotWorth(&v, top)
	}
	r.explainChoice(&v, choice, top, order)
	if choice != nil {
		v.Warnings = r.listWarnings(choice)
	}
	return v
}

func (r *Report) describe(m *ModelReport) string {
	i := m.Intervals[r.Method.Metric]
	return fmt.Sprintf("%s (%s) has %s %.4f (%s %.4f to %.4f) over %d queries; there is no baseline to compare it with.",
		m.Name, m.Class, r.Method.Metric, m.Metrics[r.Method.Metric], r.percent(), i.Low, i.High, r.Counts.Queries)
}

func (r *Report) percent() string { return fmt.Sprintf("%g %%:", 100*r.Method.Confidence) }

func (r *Report) explainWorth(v *Verdict, m *ModelReport) {
	g := m.Gains[r.Method.Metric]
	v.Answer, v.Choose, v.Class, v.Sure = "yes", m.Name, m.Class, g.Positive
	v.Text = append(v.Text,
		fmt.Sprintf("Worth it: take %s (%s).", m.Name, m.Class),
		fmt.Sprintf("%s rises from %.4f (%s) to %.4f: %+.4f (%s %+.4f to %+.4f); better in %s.",
			r.Method.Metric, r.Baseline[r.Method.Metric], r.BaselineName, m.Metrics[r.Method.Metric],
			g.Difference, r.percent(), g.Low, g.High, formatShare(g.Positive, r.Method.Resamples)),
		fmt.Sprintf("Of %d queries %.1f %% win, %.1f %% tie and %.1f %% lose.", r.Counts.Queries, 100*g.Wins, 100*g.Ties, 100*g.Losses))
}

// formatShare formats a share without claiming more precision than the number of resamples
// gives.
func formatShare(p float64, resamples int) string {
	switch least := 1 / float64(max(1, resamples)); {
	case p > 1-least/2:
		return fmt.Sprintf("all of %d resamples", resamples)
	case p < least/2:
		return fmt.Sprintf("none of %d resamples", resamples)
	default:
		return fmt.Sprintf("%.1f %% of %d resamples", 100*p, resamples)
	}
}

func (r *Report) explainNotWorth(v *Verdict, top *ModelReport) {
	g := top.Gains[r.Method.Metric]
	v.Answer, v.Choose, v.Class, v.Sure = "unclear", r.BaselineName, ClassBaseline, g.Positive
	text := "Not shown to be worth it: keep %s."
	if g.High < 0 || g.Difference <= 0 {
		v.Answer, text = "no", "Not worth it: keep %s."
	}
	v.Text = append(v.Text, fmt.Sprintf(text, r.BaselineName),
		fmt.Sprintf("The best model, %s, has %s %.4f against %.4f: %+.4f (%s %+.4f to %+.4f); better in %s.",
			top.Name, r.Method.Metric, top.Metrics[r.Method.Metric], r.Baseline[r.Method.Metric], g.Difference, r.percent(), g.Low, g.High,
			formatShare(g.Positive, r.Method.Resamples)))
	switch more := r.queriesMissing(g); {
	case v.Answer != "unclear":
		v.Text = append(v.Text, fmt.Sprintf("Of %d queries %.1f %% win, %.1f %% tie and %.1f %% lose.", r.Counts.Queries, 100*g.Wins, 100*g.Ties, 100*g.Losses))
	case more > 0:
		v.Text = append(v.Text, fmt.Sprintf("If the difference stays as it is, about %d more queries would tell.", more))
	default:
		v.Text = append(v.Text, "More queries would narrow the interval.")
	}
}

// mostMissing is the number of queries above which an estimate says nothing.
const mostMissing = 1_000_000

// queriesMissing estimates how many more queries make the lower end of an interval
// positive, if the difference stays the same: the distance to the lower end shrinks with
// the square root of the number of queries. It returns 0 if there is no estimate.
func (r *Report) queriesMissing(g Paired) int {
	below := g.Difference - g.Low
	if g.Difference <= 0 || below <= g.Difference {
		return 0
	}
	ratio := below / g.Difference
	if more := float64(r.Counts.Queries) * (ratio*ratio - 1); more < mostMissing {
		return int(math.Ceil(more/10) * 10)
	}
	return 0
}

// explainChoice explains how much the choice gives up against the best model.
func (r *Report) explainChoice(v *Verdict, choice, top *ModelReport, order []*ModelReport) {
	if choice == nil || len(order) == 1 {
		return
	}
	if choice != top {
		d := choice.ToBest
		v.Text = append(v.Text, fmt.Sprintf("%s has the greatest %s, %.4f; %s is simpler and not shown to be worse: %+.4f (%s %+.4f to %+.4f).",
			top.Name, r.Method.Metric, top.Metrics[r.Method.Metric], choice.Name, d.Difference, r.percent(), d.Low, d.High))
		return
	}
	var worse []string
	for _, m := range order {
		if m != choice && !m.AsGood && compareSimplicity(m, choice) < 0 {
			worse = append(worse, fmt.Sprintf("%s (%+.4f)", m.Name, m.ToBest.Difference))
		}
	}
	if len(worse) > 0 {
		v.Text = append(v.Text, fmt.Sprintf("What is simpler is worse: %s.", strings.Join(worse, ", ")))
	}
}

// listWarnings lists reasons against a choice: segments that lose, and first stages that
// find too few of the items that the similarity ranks first.
func (r *Report) listWarnings(m *ModelReport) []string {
	var found []string
	for _, s := range m.Segments {
		switch {
		case s.Gain == nil || s.Gain.Difference >= 0:
		case s.Gain.High < 0:
			found = append(found, fmt.Sprintf("%s items lose: %s %.4f against %.4f (%s %+.4f to %+.4f, %d queries)",
				s.Name, r.Method.Metric, s.Metric, *s.Baseline, r.percent(), s.Gain.Low, s.Gain.High, s.Queries))
		case s.Name == "cold":
			found = append(found, fmt.Sprintf("cold items may lose: %s %.4f against %.4f (%d queries)", r.Method.Metric, s.Metric, *s.Baseline, s.Queries))
		}
	}
	best := -1.0
	for _, s := range m.Strategies {
		best = max(best, s.FirstStageRecall)
	}
	if len(m.Strategies) > 0 && best < 0.95 {
		found = append(found, fmt.Sprintf("no strategy that was tried finds more than %.1f %% of the exact top %d: go deeper, or scan", 100*best, r.K))
	}
	return found
}
