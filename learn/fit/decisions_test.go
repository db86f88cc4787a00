package fit_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
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
	forgotten := 0
	mapped := d
	mapped.Forget = func() { forgotten++ }
	if mapped.Corrected(c, false).Forget(); forgotten != 1 {
		t.Error("corrected data do not let go of the memory of their vectors")
	}
	if got := d.Corrected(c, false); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	want.Weights, want.Inverse, want.Looks = [][]float32{{2}, {1}}, []float64{4, 1}, [][]clicks.Look{c.Looks[1], c.Looks[0]}
	if got := d.Corrected(c, true); !reflect.DeepEqual(got, want) {
		t.Errorf("with looks %+v\nwant %+v", got, want)
	}
}

// TestVisitRows: every row is visited in order until one is refused, and the memory of what was read is let go of after
// every 16 MB and at the end.
func TestVisitRows(t *testing.T) {
	const most = 1 << 21 // columns: two rows are 16 MB
	for name, c := range map[string]struct {
		m         rerank.Matrix
		refuses   int
		visited   int
		forgotten []int // rows visited before each call
	}{
		"large rows": {rerank.NewMatrix(5, most), -1, 5, []int{1, 3, 5}},
		"refused":    {rerank.NewMatrix(5, most), 2, 3, []int{1, 3}},
		"small rows": {rerank.NewMatrix(5, 3), -1, 5, []int{5}},
		"no rows":    {rerank.Matrix{}, -1, 0, []int{0}},
	} {
		refused := errors.New("refused")
		visited, forgotten := 0, []int(nil)
		visit := func(r int, row []float32) error {
			if r != visited || len(row) != c.m.Cols {
				t.Errorf("%s: row %d of %d numbers comes as number %d", name, r, len(row), visited)
			}
			if visited++; r == c.refuses {
				return refused
			}
			return nil
		}
		err := fit.VisitRows(c.m, func() { forgotten = append(forgotten, visited) }, visit)
		if (err != nil) != (c.refuses >= 0) || visited != c.visited || !slices.Equal(forgotten, c.forgotten) {
			t.Errorf("%s: %v after %d rows, memory let go of after %v; want %d and %v", name, err, visited, forgotten, c.visited, c.forgotten)
		}
		visited = 0
		if again := fit.VisitRows(c.m, nil, visit); !errors.Is(again, err) || visited != c.visited {
			t.Errorf("%s: %d rows of a matrix in memory, %v", name, visited, again)
		}
	}
}

// TestColdWarning: the warning names the loss that the table beside it shows, and the remedy where one is left.
func TestColdWarning(t *testing.T) {
	c := fit.Comparison{Value: 0.5, Baseline: 0.75, Gain: -0.25, StandardError: 0.125, Queries: 8}
	for guarded, want := range map[bool]string{
		false: "items without logs lose 0.2500 ± 0.1250 of MRR@10; when the collection gets such items, fit again with --cold guard",
		true:  "items without logs lose 0.2500 ± 0.1250 of MRR@10; no pull that was tried keeps them",
	} {
		if got := fit.ColdWarning(fit.MRR, c, guarded); got != want {
			t.Errorf("guarded %t: %q, want %q", guarded, got, want)
		}
	}
}

// TestValueOfATrial: the MRR@10 of logged items and of items without logs, by their shares of the traffic.
func TestValueOfATrial(t *testing.T) {
	trial := fit.PullTrial{LoggedMRR: 0.5, Cold: &fit.Comparison{Value: 0.25, Baseline: 0.75}}
	if got := trial.Value(fit.MRR, 0.25); got != 0.4375 {
		t.Errorf("with a quarter of the traffic for items without logs the value is %g", got)
	}
	if trial.Cold = nil; trial.Value(fit.MRR, 0.25) != 0.5 {
		t.Errorf("without a measurement of such items the value is %g", trial.Value(fit.MRR, 0.25))
	}
}

// TestWhatGuardingSays: nothing, where the setting that is best for logged items is taken.
func TestWhatGuardingSays(t *testing.T) {
	free, held := fit.PullTrial{LoggedMRR: 0.5, Cold: &fit.Comparison{Value: 0.2}}, fit.PullTrial{LoggedMRR: 0.4, Cold: &fit.Comparison{Value: 0.6}}
	for _, c := range []struct {
		chosen fit.PullTrial
		want   string
	}{
		{free, "Nothing is held back for items without logs (25.0 % of the traffic to come): the setting that is best for logged items is taken."},
		{held, "Holding back for items without logs (25.0 % of the traffic to come) costs logged items 0.1000 of MRR@10 and buys the others 0.4000: +0.0250 over all traffic."},
	} {
		if got := fit.NewGuarding(fit.MRR, 0.25, c.chosen, []fit.PullTrial{free, held}).Text(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestOptionsOfEveryFit: each option at its limits.
func TestOptionsOfEveryFit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *fit.Common)
		ok     bool
	}{
		"defaults":              {func(*fit.Common) {}, true},
		"none held out":         {func(o *fit.Common) { o.HeldOut = 0 }, false},
		"all held out":          {func(o *fit.Common) { o.HeldOut = 1 }, false},
		"half held out":         {func(o *fit.Common) { o.HeldOut = 0.5 }, true},
		"no number held out":    {func(o *fit.Common) { o.HeldOut = math.NaN() }, false},
		"an unknown split":      {func(o *fit.Common) { o.SplitBy = "user" }, false},
		"times":                 {func(o *fit.Common) { o.SplitBy = fit.ByTime }, true},
		"half of the items":     {func(o *fit.Common) { o.ColdShare = 0.5 }, true},
		"more than half":        {func(o *fit.Common) { o.ColdShare = 0.51 }, false},
		"less than no item":     {func(o *fit.Common) { o.ColdShare = -0.1 }, false},
		"no number of items":    {func(o *fit.Common) { o.ColdShare = math.NaN() }, false},
		"all traffic is cold":   {func(o *fit.Common) { o.ColdTraffic = 1 }, true},
		"more than all is cold": {func(o *fit.Common) { o.ColdTraffic = 1.01 }, false},
		"no number is cold":     {func(o *fit.Common) { o.ColdTraffic = math.NaN() }, false},
		"guarded":               {func(o *fit.Common) { o.Cold = fit.ColdGuard }, true},
		"guarded without items": {func(o *fit.Common) { o.Cold, o.ColdShare = fit.ColdGuard, 0 }, false},
		"auto without items":    {func(o *fit.Common) { o.ColdShare = 0 }, true},
		"an unknown guard":      {func(o *fit.Common) { o.Cold = "keep" }, false},
	} {
		o := fit.DefaultCommon()
		c.change(&o)
		if err := o.Check(fit.Data{Times: []int64{1}}); (err == nil) != c.ok || err != nil && !errors.Is(err, fit.ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := fit.DefaultCommon()
	if o.SplitBy = fit.ByTime; !errors.Is(o.Check(fit.Data{}), fit.ErrOption) {
		t.Error("a log without times is split by time")
	}
}

// TestInvalidData: each part of the data has to fit the others.
func TestInvalidData(t *testing.T) {
	nan := math.NaN()
	good := func() fit.Data {
		return fit.Data{
			Items: rerank.NewMatrix(4, 2), Queries: rerank.NewMatrix(2, 3), Relevant: [][]int32{{0, 2}, {1}}, Weights: [][]float32{{1, 2}, {3}}, Seen: [][]int32{{1, 3}, nil},
			Looks: [][]clicks.Look{{{Item: 0, Times: 1}, {Item: 2, Times: 2}}, nil}, Inverse: []float64{1, 2}, Times: []int64{1, 2}, Asked: []float64{1, 2}, UserIDs: []int64{3, 4},
		}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(d *fit.Data){
		"items of several vectors":     func(d *fit.Data) { d.ItemStarts = []int32{0, 4} },
		"queries of several vectors":   func(d *fit.Data) { d.QueryStarts = []int32{0, 2} },
		"a cut item":                   func(d *fit.Data) { d.Items.Data = d.Items.Data[1:] },
		"a cut query":                  func(d *fit.Data) { d.Queries.Data = d.Queries.Data[1:] },
		"one item":                     func(d *fit.Data) { d.Items = rerank.NewMatrix(1, 2) },
		"items without numbers":        func(d *fit.Data) { d.Items = rerank.NewMatrix(4, 0) },
		"queries without numbers":      func(d *fit.Data) { d.Queries = rerank.NewMatrix(2, 0) },
		"fewer pairs":                  func(d *fit.Data) { d.Relevant = d.Relevant[1:] },
		"fewer weights":                func(d *fit.Data) { d.Weights = d.Weights[1:] },
		"fewer seen items":             func(d *fit.Data) { d.Seen = d.Seen[1:] },
		"fewer looks":                  func(d *fit.Data) { d.Looks = d.Looks[1:] },
		"fewer propensities":           func(d *fit.Data) { d.Inverse = d.Inverse[1:] },
		"fewer times":                  func(d *fit.Data) { d.Times = d.Times[1:] },
		"less traffic":                 func(d *fit.Data) { d.Asked = d.Asked[1:] },
		"fewer users":                  func(d *fit.Data) { d.UserIDs = d.UserIDs[1:] },
		"an item before the first":     func(d *fit.Data) { d.Relevant[1][0] = -1 },
		"an item behind the last":      func(d *fit.Data) { d.Relevant[0][1] = 4 },
		"an item twice":                func(d *fit.Data) { d.Relevant[0][1] = 0 },
		"a weight too many":            func(d *fit.Data) { d.Weights[1] = []float32{3, 4} },
		"a weight of 0":                func(d *fit.Data) { d.Weights[0][1] = 0 },
		"a weight that is no number":   func(d *fit.Data) { d.Weights[0][1] = float32(nan) },
		"an infinite weight":           func(d *fit.Data) { d.Weights[0][1] = float32(math.Inf(1)) },
		"a propensity of 0":            func(d *fit.Data) { d.Inverse[1] = 0 },
		"an infinite propensity":       func(d *fit.Data) { d.Inverse[1] = math.Inf(1) },
		"a look at no item":            func(d *fit.Data) { d.Looks[0][1].Item = 4 },
		"a look before the first item": func(d *fit.Data) { d.Looks[0][0].Item = -1 },
		"an item looked at twice":      func(d *fit.Data) { d.Looks[0][1].Item = 0 },
		"no look at all":               func(d *fit.Data) { d.Looks[0][1].Times = 0 },
		"infinite looks":               func(d *fit.Data) { d.Looks[0][1].Times = float32(math.Inf(1)) },
		"an unknown seen item":         func(d *fit.Data) { d.Seen[0][1] = 4 },
		"a seen item before the first": func(d *fit.Data) { d.Seen[0][0] = -1 },
		"a seen item twice":            func(d *fit.Data) { d.Seen[0][1] = 1 },
		"a seen item that was chosen":  func(d *fit.Data) { d.Seen[0][0] = 0 },
	} {
		d := good()
		if change(&d); !errors.Is(d.Check(), fit.ErrData) {
			t.Errorf("%s: %v", name, d.Check())
		}
	}
	for name, c := range map[string]struct {
		d  fit.Data
		ok bool
	}{
		"one each":          {fit.Data{}, true},
		"divided":           {fit.Data{Items: rerank.NewMatrix(3, 1), ItemStarts: []int32{0, 1, 3}, Queries: rerank.NewMatrix(2, 1), QueryStarts: []int32{0, 2}}, true},
		"an item of none":   {fit.Data{Items: rerank.NewMatrix(3, 1), ItemStarts: []int32{0, 0, 3}}, false},
		"a query too short": {fit.Data{Queries: rerank.NewMatrix(3, 1), QueryStarts: []int32{0, 2}}, false},
	} {
		if err := c.d.CheckStarts(); (err == nil) != c.ok || err != nil && !errors.Is(err, fit.ErrData) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := good(); !errors.Is(d.CheckInnerProduct(), fit.ErrData) {
		t.Error("two numbers and three have an inner product")
	}
}
