package eval

import (
	"math"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// TestClickEstimates: each click counts by its inverse propensity, at the rank that the model gives the
// item. Answers without a click lower IPS and not SNIPS.
func TestClickEstimates(t *testing.T) {
	answer := func(q, first, second int32, w1, w2 float32) clicks.Answer {
		return clicks.Answer{Query: q, Items: []int32{first, second}, Positions: []int32{1, 2}, Weights: []float32{w1, w2}}
	}
	in := &Input{
		Queries: rerank.NewMatrix(4, 1), Confidence: 0.9, Resamples: 50,
		Clicked: &Clicked{
			Curve: &clicks.Curve{Method: clicks.Harvesting, Propensities: []float64{1, 0.25}}, Clip: 3,
			Answers: []clicks.Answer{
				answer(0, 5, 6, 1, 0), answer(0, 5, 6, 0, 2), // item 5 once, item 6 twice at a position that counts 3 times
				answer(2, 7, 8, 1, 0),
				answer(3, 7, 8, 0, 0), // nobody chose anything: the query is not ranked
			},
		},
	}
	rows := []int{0, 2}
	for i := range in.Queries.Data {
		in.Queries.Data[i] = float32(i)
	}
	c := newClickJudge(in, rows)
	if c.report.Answers != 3 || c.report.Clipped != 1 || !(math.Abs(c.report.EffectiveSize-8*8./(1+36+1)) <= 1e-9) {
		t.Errorf("report %+v", c.report)
	}
	rankings := []Ranking{{{Index: 6}, {Index: 1}, {Index: 5}}, {{Index: 1}, {Index: 7}, {Index: 8}}}
	baseline := []Ranking{{{Index: 5}, {Index: 6}}, {{Index: 7}, {Index: 1}}}
	got, err := c.estimate(t.Context(), rankings, baseline, 2, newSampler(in.queries(rows, rerank.Spec{}), in))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]float64{
		"mrr@2":    {(6. + 0.5) / 4, (6. + 0.5) / 8},
		"ndcg@2":   {(6. + 1/math.Log2(3)) / 4, (6. + 1/math.Log2(3)) / 8},
		"recall@2": {7. / 4, 7. / 8},
	}
	for name, w := range want {
		e := got[name]
		if !(math.Abs(e.IPS-w[0]) <= 1e-9) || !(math.Abs(e.SNIPS-w[1]) <= 1e-9) {
			t.Errorf("%s: ips %g and snips %g, want %g", name, e.IPS, e.SNIPS, w)
		}
		if e.IPSInterval.Low > e.IPS || e.IPSInterval.High < e.IPS || e.SNIPSInterval.Low > e.SNIPS || e.SNIPSInterval.High < e.SNIPS {
			t.Errorf("%s: intervals %v and %v of %g and %g", name, e.IPSInterval, e.SNIPSInterval, e.IPS, e.SNIPS)
		}
	}
	// The baseline ranks item 5 first and item 6 second, and item 7 first.
	if g := got["mrr@2"].Gain; g == nil || !(math.Abs(g.Difference-(6.5-5)/8) <= 1e-9) || !(math.Abs(g.Wins-7./8) <= 1e-9) || !(math.Abs(g.Losses-1./8) <= 1e-9) {
		t.Errorf("gain %+v", g)
	}
	before := got["mrr@2"].IPSInterval
	in.Every = 2
	if got, err = newClickJudge(in, rows).estimate(t.Context(), rankings, nil, 2, newSampler(in.queries(rows, rerank.Spec{}), in)); err != nil || !(math.Abs(got["recall@2"].IPS-7./3) <= 1e-9) || got["recall@2"].Gain != nil {
		t.Errorf("of every second query, recall %+v, %v", got["recall@2"], err)
	}
	// The query without a click lowers the estimate and its interval alike.
	if after := got["mrr@2"].IPSInterval; !(after.High > after.Low) || !(math.Abs(before.Low-after.Low*3/4) <= 1e-9) || !(math.Abs(before.High-after.High*3/4) <= 1e-9) {
		t.Errorf("the interval is %v of all answers and %v of those to ranked queries", before, after)
	}
	in.K, in.Pairs, in.Items, in.Model.Similarity = 2, NewPairs(make([][]int32, 4)), rerank.NewMatrix(9, 1), described{}
	for metric, want := range map[string]bool{"": true, "recall@2": true, "map@2": false} {
		in.Metric = metric
		if m := newJudge(in, rows).report.Method; m.FromClicks != want {
			t.Errorf("the verdict by %s is from clicks: %t", m.Metric, m.FromClicks)
		}
	}
	if newClickJudge(&Input{}, rows) != nil {
		t.Error("a log without positions has clicks to judge by")
	}
}

// TestVerdictFromClicks: a log favours the model whose answers were shown. The verdict and what it rests on
// are from clicks, each by its inverse propensity.
func TestVerdictFromClicks(t *testing.T) {
	r := &Report{
		Method: Method{Metric: "mrr@10", FromClicks: true, Confidence: 0.95, Resamples: 100, Margin: 0.1}, BaselineName: "cosine",
		Baseline: Metrics{"mrr@10": 0.5}, BaselineClicks: map[string]ClickEstimate{"mrr@10": {SNIPS: 0.7}}, Counts: Counts{Queries: 1000},
		Models: []ModelReport{{
			Model: Model{Name: "served"}, Class: ClassBilinear, Metrics: Metrics{"mrr@10": 0.9},
			Gains:  map[string]Paired{"mrr@10": {Difference: 0.4, Interval: Interval{Low: 0.39, High: 0.41}}},
			Clicks: map[string]ClickEstimate{"mrr@10": {SNIPS: 0.6, Gain: &Paired{Difference: -0.1, Interval: Interval{Low: -0.12, High: -0.08}}}},
		}},
	}
	judged := r.Judge(&r.Models[0])
	if v := r.decide(); judged.Value != 0.6 || judged.Baseline != 0.7 || judged.Gain.Difference != -0.1 || v.Answer != verdict.No || !strings.Contains(strings.Join(v.Text, " "), "mrr@10 from clicks") || !strings.HasPrefix(v.Text[len(v.Text)-1], "Of the clicks") {
		t.Errorf("%+v, %+v", judged, v)
	}
	r.Method.FromClicks = false
	judged = r.Judge(&r.Models[0])
	if v := r.decide(); judged.Value != 0.9 || judged.Baseline != 0.5 || judged.Gain.Difference != 0.4 || v.Answer != verdict.Yes {
		t.Errorf("by the log: %+v, %+v", judged, v)
	}
	for metric, from := range map[string]bool{"mrr@10": true, "ndcg@10": true, "mrr@5": false, "map@10": false} {
		if clickGain(metric, 10) != nil != from {
			t.Errorf("%s from clicks: want %t", metric, from)
		}
	}
}
