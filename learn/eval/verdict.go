package eval

import (
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/verdict"
)

// Verdict says in plain words whether a learned similarity is worth using, how sure
// that is, and which model to take.
type Verdict struct {
	// Answer is yes, no or unclear. It is empty without a baseline.
	Answer verdict.Answer `json:"answer,omitempty"`
	// Choose names the model to take: the simplest that is as good as the best. It
	// names the baseline if no model is shown to be better.
	Choose string `json:"choose"`
	Class  Class  `json:"class"`
	// Best names the model with the greatest metric. AsGood names the models that surely
	// lose no more than Margin. Unknown names those that may lose more or less: the queries
	// are too few to tell. Both lists begin with the simplest model.
	Best    string   `json:"best"`
	AsGood  []string `json:"as_good"`
	Unknown []string `json:"unknown,omitempty"`
	// Margin is how much of the metric a simpler model may lose, LeastGain the smallest
	// gain worth having.
	Margin    float64 `json:"margin"`
	LeastGain float64 `json:"least_gain"`
	// QueriesNeeded is about how many queries would settle what is open, 0 if nothing is
	// open or there is no estimate.
	QueriesNeeded int `json:"queries_needed,omitempty"`
	// Sure is the share of the bootstrap samples in which the chosen model, or else
	// the best, beats the baseline.
	Sure float64 `json:"sure,omitempty"`
	// Text states the verdict in sentences. Warnings lists reasons against the choice.
	Text     []string `json:"text"`
	Warnings []string `json:"warnings,omitempty"`
}

// Judgement is what the verdict on a model rests on: a metric of the model and of the baseline, and the
// gain, which is nil without a baseline.
type Judgement struct {
	Value, Baseline float64
	Gain            *Paired
}

// Judge returns what the verdict on a model rests on: Method.Metric, or its estimate from clicks (SNIPS)
// if the log has positions. Without that correction every log favours the model that was in service.
func (r *Report) Judge(m *ModelReport) Judgement {
	metric := r.Method.Metric
	if r.Method.FromClicks {
		clicked := m.Clicks[metric]
		return Judgement{Value: clicked.SNIPS, Baseline: r.BaselineClicks[metric].SNIPS, Gain: clicked.Gain}
	}
	j := Judgement{Value: m.Metrics[metric], Baseline: r.Baseline[metric]}
	if g, ok := m.Gains[metric]; ok {
		j.Gain = &g
	}
	return j
}

// JudgedBy names the metric of the judgements.
func (r *Report) JudgedBy() string {
	if r.Method.FromClicks {
		return r.Method.Metric + " from clicks"
	}
	return r.Method.Metric
}

// decide chooses the simplest model that is as good as the best and, if there is a
// baseline, better than it.
func (r *Report) decide() Verdict {
	order := make([]*ModelReport, len(r.Models))
	for n := range r.Models {
		order[n] = &r.Models[n]
	}
	slices.SortStableFunc(order, compareSimplicity)
	d := verdict.Decide(r.comparison(order), r.rule())
	v := Verdict{
		Answer: d.Answer, Choose: r.BaselineName, Class: ClassBaseline, Best: order[d.Best].Name,
		Margin: d.Margin, LeastGain: d.LeastGain, QueriesNeeded: d.QueriesNeeded, Text: d.Text,
	}
	for n, m := range order {
		switch m.Standing = d.Standings[n]; m.Standing {
		case verdict.Best, verdict.AsGood:
			m.AsGood = true
			v.AsGood = append(v.AsGood, m.Name)
		case verdict.Unknown:
			v.Unknown = append(v.Unknown, m.Name)
		case verdict.Worse:
		}
	}
	measured := order[d.Best]
	if d.Choice >= 0 {
		measured = order[d.Choice]
		v.Choose, v.Class, v.Warnings = measured.Name, measured.Class, r.listWarnings(measured)
	}
	if r.Baseline != nil {
		g := r.Judge(measured).Gain
		v.Sure = g.Positive
		of := fmt.Sprintf("Of %d queries", r.Counts.Queries)
		if r.Method.FromClicks {
			of = "Of the clicks, each by its inverse propensity,"
		}
		v.Text = append(v.Text, fmt.Sprintf("%s %.1f %% win, %.1f %% tie and %.1f %% lose.", of, 100*g.Wins, 100*g.Ties, 100*g.Losses))
	}
	v.Text = append(v.Text, r.Counts.describeLeftOut()...)
	return v
}

// rule returns the rule of the verdict.
func (r *Report) rule() verdict.Rule {
	return verdict.Rule{Confidence: r.Method.Confidence, Margin: r.Method.Margin, LeastGain: r.Method.LeastGain}
}

// comparison returns what the verdict rests on. The models are given the simplest first.
func (r *Report) comparison(order []*ModelReport) verdict.Comparison {
	c := verdict.Comparison{Metric: r.JudgedBy()}
	for _, m := range order {
		judged := r.Judge(m)
		compared := verdict.Model{Name: m.Name, Class: string(m.Class), Value: judged.Value}
		if judged.Gain != nil {
			c.Plain, c.PlainValue = r.BaselineName, judged.Baseline
			compared.Gain = r.difference(*judged.Gain)
			compared.Gain.Remark = "; better in " + formatShare(judged.Gain.Positive, r.Method.Resamples)
		}
		if m.ToBest != nil {
			compared.ToBest = r.difference(*m.ToBest)
		}
		c.Models = append(c.Models, compared)
	}
	return c
}

func (r *Report) difference(p Paired) verdict.Difference {
	return verdict.Difference{Mean: p.Difference, Low: p.Low, High: p.High, Queries: r.Counts.Queries}
}

func (r *Report) percent() string { return fmt.Sprintf("%g %%:", 100*r.Method.Confidence) }

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

// listWarnings lists reasons against a choice: segments that lose, and first stages that
// find too few of the items that the similarity ranks first.
func (r *Report) listWarnings(m *ModelReport) []string {
	var found []string
	for _, s := range m.Segments {
		switch {
		case s.Gain == nil || s.Gain.Difference >= 0:
		case s.Gain.High < 0:
			found = append(found, fmt.Sprintf("%s lose: %s %.4f against %.4f (%s %+.4f to %+.4f, %d queries)",
				s.plural(), r.JudgedBy(), s.Metric, *s.Baseline, r.percent(), s.Gain.Low, s.Gain.High, s.Queries))
		case s.Name == "cold":
			found = append(found, fmt.Sprintf("cold items may lose: %s %.4f against %.4f (%d queries)", r.JudgedBy(), s.Metric, *s.Baseline, s.Queries))
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
