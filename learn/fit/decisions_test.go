package fit_test

import (
	"reflect"
	"testing"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
)

// TestCorrected: each choice becomes a query of its own. With looks its inverse propensity judges it, and without
// it multiplies the weight.
func TestCorrected(t *testing.T) {
	d := fit.Data{
		Items: rerank.NewMatrix(4, 1), Queries: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{1, 2}},
		Times: []int64{5, 6}, UserIDs: []int64{70, 80}, Seen: [][]int32{{0}, {1}},
	}
	c := &clicks.Corrected{
		Choices: []clicks.Choice{{Query: 1, Item: 3, Weight: 2, Inverse: 4, Time: 9}, {Query: 0, Item: 2, Weight: 1, Inverse: 1, Time: 8}},
		Looks:   [][]clicks.Look{{{Item: 2, Times: 1}}, {{Item: 3, Times: 0.25}}},
	}
	want := fit.Data{
		Items: d.Items, Queries: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{2, 1}}, Relevant: [][]int32{{3}, {2}}, Weights: [][]float32{{8}, {1}},
		Asked: []float64{2, 1}, Times: []int64{9, 8}, UserIDs: []int64{80, 70}, Seen: [][]int32{{1}, {0}},
	}
	if got := d.Corrected(c, false); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	want.Weights, want.Inverse, want.Looks = [][]float32{{2}, {1}}, []float64{4, 1}, [][]clicks.Look{c.Looks[1], c.Looks[0]}
	if got := d.Corrected(c, true); !reflect.DeepEqual(got, want) {
		t.Errorf("with looks %+v\nwant %+v", got, want)
	}
}

// TestValueOfATrial: the MRR@10 of logged items and of items without logs, by their shares of the traffic.
func TestValueOfATrial(t *testing.T) {
	trial := fit.PullTrial{LoggedMRR: 0.5, Cold: &fit.Comparison{MRR: 0.25, Baseline: 0.75}}
	if got := trial.Value(0.25); got != 0.4375 {
		t.Errorf("with a quarter of the traffic for items without logs the value is %g", got)
	}
	if trial.Cold = nil; trial.Value(0.25) != 0.5 {
		t.Errorf("without a measurement of such items the value is %g", trial.Value(0.25))
	}
}

// TestWhatGuardingSays: nothing, where the setting that is best for logged items is taken.
func TestWhatGuardingSays(t *testing.T) {
	free, held := fit.PullTrial{LoggedMRR: 0.5, Cold: &fit.Comparison{MRR: 0.2}}, fit.PullTrial{LoggedMRR: 0.4, Cold: &fit.Comparison{MRR: 0.6}}
	for _, c := range []struct {
		chosen fit.PullTrial
		want   string
	}{
		{free, "Nothing is held back for items without logs (25.0 % of the traffic to come): the setting that is best for logged items is taken."},
		{held, "Holding back for items without logs (25.0 % of the traffic to come) costs logged items 0.1000 of MRR@10 and buys the others 0.4000: +0.0250 over all traffic."},
	} {
		if got := fit.NewGuarding(0.25, c.chosen, []fit.PullTrial{free, held}).Text(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
