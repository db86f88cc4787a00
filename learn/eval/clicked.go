package eval

import (
	"context"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/learn/clicks"
)

// Clicked holds a log that says what was shown at which position.
type Clicked struct {
	Answers []clicks.Answer
	Curve   *clicks.Curve
	// Clip is the greatest inverse propensity.
	Clip float64
}

// ClickEstimate estimates a metric from clicks, each by the inverse propensity of its position. Items
// that were never shown could not be clicked, so a model that finds better ones is underrated.
type ClickEstimate struct {
	// IPS is the gain of an answer's clicks at the model's ranks (inverse propensity scoring): a mean
	// over answers.
	IPS         float64  `json:"ips"`
	IPSInterval Interval `json:"ips_interval"`
	// SNIPS is the same as a mean over clicks (self-normalised), which varies less and is comparable
	// with the exact metric.
	SNIPS         float64  `json:"snips"`
	SNIPSInterval Interval `json:"snips_interval"`
	// Gain is the difference of SNIPS to the baseline's. It is nil without a baseline.
	Gain *Paired `json:"gain,omitempty"`
}

// clickJudge estimates metrics of rankings from clicks.
type clickJudge struct {
	choices [][]clicks.Choice // of each ranked query
	weights []float64         // of each ranked query's choices together
	answers []float64         // lists that were shown to each ranked query
	all     float64           // lists that were shown to any query
	report  clicks.Report     // of the lists that were shown to ranked queries
}

// newClickJudge returns nil if the log has no positions.
func newClickJudge(in *Input, rows []int) *clickJudge {
	if in.Clicked == nil {
		return nil
	}
	place := map[int]int{}
	for i, q := range rows {
		place[q] = i
	}
	c := &clickJudge{choices: make([][]clicks.Choice, len(rows)), weights: make([]float64, len(rows)), answers: make([]float64, len(rows))}
	var ranked []clicks.Answer
	for _, a := range in.Clicked.Answers {
		if i, ok := place[int(a.Query)]; ok {
			ranked = append(ranked, a)
			c.answers[i]++
		}
	}
	c.all = float64(len(ranked))
	if in.Every <= 1 { // a query without a click is not ranked, and gains nothing
		c.all = float64(len(in.Clicked.Answers))
	}
	corrected := in.Clicked.Curve.Correct(ranked, in.Queries.Rows, in.Clicked.Clip)
	for _, x := range corrected.Choices {
		i := place[int(x.Query)]
		c.choices[i] = append(c.choices[i], x)
		c.weights[i] += float64(x.Weight) * x.Inverse
	}
	c.report = in.Clicked.Curve.Report(ranked, corrected)
	return c
}

// clickMetrics are the metrics that can be estimated: the gain of a choice at the rank of its item.
var clickMetrics = map[string]func(rank float64) float64{
	"mrr":    func(rank float64) float64 { return 1 / rank },
	"ndcg":   func(rank float64) float64 { return 1 / math.Log2(1+rank) },
	"recall": func(float64) float64 { return 1 },
}

// gains returns the gain of each query's choices among the first k items, weighted.
func (c *clickJudge) gains(rankings []Ranking, k int, gain func(rank float64) float64) []float64 {
	sums := make([]float64, len(rankings))
	for i, ranking := range rankings {
		for _, x := range c.choices[i] {
			for place, hit := range ranking[:min(k, len(ranking))] {
				if hit.Index == int(x.Item) {
					sums[i] += float64(x.Weight) * x.Inverse * gain(float64(place+1))
				}
			}
		}
	}
	return sums
}

// perClick returns the mean gain of each query's choices.
func (c *clickJudge) perClick(rankings []Ranking, k int, gain func(rank float64) float64) series {
	return weightedMeans(c.gains(rankings, k, gain), c.weights)
}

// weightedMeans returns the sums of queries as means over their weights.
func weightedMeans(sums, weights []float64) series {
	means := make([]float64, len(sums))
	for i, sum := range sums {
		means[i] = sum / max(weights[i], math.SmallestNonzeroFloat64)
	}
	return series{values: means, weights: weights}
}

// clickGain returns the gain of a metric such as mrr@10, or nil if clicks do not tell the metric.
func clickGain(metric string, k int) func(rank float64) float64 {
	for name, gain := range clickMetrics {
		if metric == fmt.Sprintf("%s@%d", name, k) {
			return gain
		}
	}
	return nil
}

// estimate estimates the metrics of rankings, and their gains over the baseline's if there is one.
func (c *clickJudge) estimate(ctx context.Context, rankings, baseline []Ranking, k int, s *sampler) (map[string]ClickEstimate, error) {
	found := map[string]ClickEstimate{}
	for name, gain := range clickMetrics {
		sums := c.gains(rankings, k, gain)
		perAnswer, perClick := weightedMeans(sums, c.answers), weightedMeans(sums, c.weights)
		means, err := s.resample(ctx, []series{perAnswer, perClick})
		if err != nil {
			return nil, err
		}
		var e ClickEstimate
		var answers float64
		e.IPS, answers = perAnswer.mean()
		e.SNIPS, _ = perClick.mean()
		e.IPSInterval, e.SNIPSInterval = s.percentileInterval(means[0]), s.percentileInterval(means[1])
		ranked := answers / max(1, c.all) // the share of the answers whose query is ranked
		e.IPS, e.IPSInterval.Low, e.IPSInterval.High = e.IPS*ranked, e.IPSInterval.Low*ranked, e.IPSInterval.High*ranked
		if baseline != nil {
			d, err := s.compareSeries(ctx, perClick, c.perClick(baseline, k, gain))
			if err != nil {
				return nil, err
			}
			e.Gain = &d
		}
		found[fmt.Sprintf("%s@%d", name, k)] = e
	}
	return found, nil
}
