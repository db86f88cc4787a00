package bilinear

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
)

// trialsAt are trials whose outcome is known: one a pull, weak to strong.
func trialsAt(logged []float64, admissible []bool) func(i int) (*trial, error) {
	return func(i int) (*trial, error) {
		t := &trial{setting: setting{pull: float64(i)}}
		t.LoggedMRR, t.Admissible = logged[i], admissible == nil || admissible[i]
		return t, nil
	}
}

func TestSearchOfThePullThatGuards(t *testing.T) {
	for name, tc := range map[string]struct {
		logged     []float64
		admissible []bool
		want       float64
	}{
		"the weakest that guards":            {[]float64{.9, .8, .7, .6, .5}, []bool{false, false, true, true, true}, 2},
		"the first guards":                   {[]float64{.9, .8, .7, .6, .5}, []bool{true, true, true, true, true}, 0},
		"only the last guards":               {[]float64{.9, .8, .7, .6, .5}, []bool{false, false, false, false, true}, 4},
		"none guards: the strongest":         {[]float64{.9, .8, .7, .6, .5}, []bool{false, false, false, false, false}, 4},
		"stronger is better for logged ones": {[]float64{.5, .6, .7, .8, .6}, []bool{false, true, true, true, true}, 3},
	} {
		best, err := searchGuarded(len(tc.logged), trialsAt(tc.logged, tc.admissible), logged)
		if err != nil || best.pull != tc.want {
			t.Errorf("%s: chose %v (%v), want %g", name, best, err, tc.want)
		}
	}
}

// logged rates a trial by its logged items alone.
func logged(t *trial) float64 { return t.LoggedMRR }

func TestSearchOfThePullWithoutGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		logged []float64
		want   []float64 // tried
	}{
		"weak is best":         {[]float64{.9, .8, .7, .6, .5}, []float64{0, 1, 2, 4}},
		"the middle is best":   {[]float64{.5, .6, .7, .6, .5, .4}, []float64{0, 1, 2, 3, 4}},
		"strong is best":       {[]float64{.5, .6, .7, .8, .9, 1}, []float64{0, 2, 3, 4, 5}},
		"all the same":         {[]float64{.5, .5, .5}, []float64{0, 1, 2}},
		"there is one":         {[]float64{.5}, []float64{0}},
		"between two steps is": {[]float64{.5, .9, .7, .95, .6}, []float64{0, 1, 2, 3, 4}},
	} {
		tried, err := searchUnguarded(len(tc.logged), trialsAt(tc.logged, nil), logged, true)
		if err != nil || len(tried) != len(tc.want) {
			t.Errorf("%s: tried %d (%v), want %v", name, len(tried), err, tc.want)
			continue
		}
		for i, want := range tc.want {
			if tried[i].pull != want {
				t.Errorf("%s: tried %g as number %d, want %g", name, tried[i].pull, i, want)
			}
		}
	}
}

// TestTheMeasureDecides: each choice takes the setting with the greatest value by the measure of the options, whatever the
// other measure says.
func TestTheMeasureDecides(t *testing.T) {
	l, err := samples.Prepare(fittest.RandomData(60, 12, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(l, fit.MRR, fittest.AllRows(60), nil)
	level := func(mark float64) []float64 { return slices.Repeat([]float64{mark}, len(j.Queries)) }
	for measure, want := range map[fit.Measure]setting{fit.MRR: {pull: 0, scale: 40, rate: 1}, fit.NDCG: {pull: 1, scale: 20, rate: 0.2}} {
		newChooser := func(o Options) *chooser {
			o.Measure, o.Pulls = measure, []float64{0, 1}
			return &chooser{fitter: &fitter{options: o}, holdouts: []holdout{{logged: j}}, trials: map[setting]*trial{}, whole: true}
		}
		add := func(c *chooser, s setting, mrr, ndcg float64) *trial {
			t.Helper()
			c.trials[s] = c.rate(s, []marks{{Logged: judge.Ratings{MRR: level(mrr), NDCG: level(ndcg)}}})
			if got, want := c.trials[s].marks[0], map[fit.Measure]float64{fit.MRR: mrr, fit.NDCG: ndcg}[measure]; got != want {
				t.Errorf("%s: a query is marked %g, want %g", measure, got, want)
			}
			return c.trials[s]
		}

		c := newChooser(Options{Rate: 1})
		add(c, setting{1, 20, 1}, 0.5, 0.5)
		add(c, setting{1, 40, 1}, 0.6, 0.4)
		add(c, setting{1, 10, 1}, 0.4, 0.4)
		if s, err := c.chooseScale(t.Context()); err != nil || s.scale != want.scale {
			t.Errorf("%s: scale %g (%v), want %g", measure, s.scale, err, want.scale)
		}
		add(c, setting{pull: 0}, 0.9, 0.5)
		add(c, setting{pull: 1}, 0.8, 0.6)
		if chosen, err := c.choosePull(t.Context(), setting{}); err != nil || chosen.pull != want.pull {
			t.Errorf("%s: pull %v (%v), want %g", measure, chosen, err, want.pull)
		}
		c = newChooser(Options{})
		first := add(c, setting{rate: 1}, 0.9, 0.5)
		add(c, setting{rate: 0.2}, 0.8, 0.6)
		if chosen, err := c.chooseRate(t.Context(), first); err != nil || chosen.rate != want.rate {
			t.Errorf("%s: rate %v (%v), want %g", measure, chosen, err, want.rate)
		}
	}
}

// TestAGuardWantsHeldOutItemsFoundBetter: a setting is admissible without a guard, or if held-out
// items gain clearly. Two settings are compared by the gain of both sides.
func TestAGuardWantsHeldOutItemsFoundBetter(t *testing.T) {
	l, err := samples.Prepare(fittest.RandomData(60, 12, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(l, fit.MRR, fittest.AllRows(60), nil)
	plain := j.Marks(judge.InnerProduct)
	worse, perfect := make([]float64, len(plain)), make([]float64, len(plain))
	for i, r := range plain {
		worse[i], perfect[i] = r/2, 1
	}
	for name, c := range map[string]struct {
		guarded bool
		cold    []float64
		want    bool
	}{
		"better":                    {true, perfect, true},
		"as good":                   {true, plain, false},
		"worse":                     {true, worse, false},
		"worse, and nobody guards":  {false, worse, true},
		"better, and nobody guards": {false, perfect, true},
	} {
		o := Options{Common: fit.Common{Cold: fit.ColdGuard}}
		ch := &chooser{fitter: &fitter{report: Report{Guarded: c.guarded}, options: o}, holdouts: []holdout{{logged: j, cold: j, plain: judge.InnerProduct}}}
		got := ch.rate(setting{pull: 1}, []marks{{Logged: judge.Ratings{MRR: perfect, NDCG: worse}, Cold: c.cold}})
		if got.Admissible != c.want || got.LoggedMRR != 1 || got.LoggedNDCG != j.Mean(worse) || got.Cold.Value != j.Mean(c.cold) {
			t.Errorf("%s: %+v", name, got.PullTrial)
		}
		if value := ch.value(got); value != 0.5+0.5*j.Mean(c.cold) {
			t.Errorf("%s: settings are compared by %v", name, value)
		}
	}
}

// TestASlowerRateIsTriedUnlessGuarded, or given, and taken where it is better.
func TestASlowerRateIsTriedUnlessGuarded(t *testing.T) {
	at := func(rate, mrr float64) *trial {
		return &trial{setting: setting{rate: rate}, PullTrial: fit.PullTrial{LoggedMRR: mrr}}
	}
	for name, c := range map[string]struct {
		slower  float64
		guarded bool
		given   float64 // a rate of the options
		want    float64
	}{
		"better":  {0.6, false, 0, 0.2},
		"worse":   {0.4, false, 0, 1},
		"as good": {0.5, false, 0, 1},
		"guarded": {0.6, true, 0, 1},
		"given":   {0.6, false, 1, 1},
	} {
		ch := &chooser{fitter: &fitter{report: Report{Guarded: c.guarded}, options: Options{Rate: c.given}}, trials: map[setting]*trial{{rate: 0.2}: at(0.2, c.slower), {rate: 1}: at(1, 0.3)}}
		if got, err := ch.chooseRate(t.Context(), at(1, 0.5)); err != nil || got.setting.rate != c.want {
			t.Errorf("%s: the rate is %v, %v; want %v", name, got.setting.rate, err, c.want)
		}
	}
}

// TestTheBestFormIsKeptUnlessGuarded: for the case of an interruption, if it beats the plain
// inner product.
func TestTheBestFormIsKeptUnlessGuarded(t *testing.T) {
	l, err := samples.Prepare(fittest.RandomData(60, 12, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(l, fit.MRR, fittest.AllRows(60), nil)
	plain := j.Mean(j.Marks(judge.InnerProduct))
	ch := &chooser{fitter: &fitter{judge: j, plain: judge.InnerProduct}}
	if ch.keepIfBest(nil, plain, setting{pull: 1}, 1); ch.best != nil {
		t.Error("a form that is no better than the plain inner product is kept")
	}
	for i, mrr := range []float64{plain + 0.1, plain + 0.05, plain + 0.2} {
		ch.keepIfBest(nil, mrr, setting{pull: float64(i)}, 1)
	}
	if ch.best == nil || ch.best.value != plain+0.2 || ch.best.setting.pull != 2 {
		t.Errorf("kept %+v", ch.best)
	}
	ch.keepIfBest(nil, plain+0.1, setting{pull: 3}, 1)
	if ch.best.setting.pull != 2 {
		t.Errorf("a worse form takes its place: %+v", ch.best)
	}
	ch.whole = true
	if ch.keepIfBest(nil, plain+0.1, setting{pull: 4}, 5); ch.best.setting.pull != 4 || ch.best.rounds != 5 || !ch.best.whole {
		t.Errorf("a whole fit does not take the place of a short trial: %+v", ch.best)
	}
}

// TestAutoWeighsItemsByTheirTraffic: a pull that keeps items without logs is taken where they
// have much of the traffic to come.
func TestAutoWeighsItemsByTheirTraffic(t *testing.T) {
	for traffic, want := range map[float64]float64{0: 0, 0.05: 0, 0.2: 1, 0.5: 1} {
		o := Options{Common: fit.Common{Cold: fit.ColdAuto}, Pulls: []float64{0, 1}}
		ch := &chooser{fitter: &fitter{report: Report{Guarded: true, ColdTraffic: traffic}, options: o}, trials: map[setting]*trial{}, whole: true}
		ch.holdouts = []holdout{{logged: &judge.Judge{}}}
		weak, strong := &trial{setting: setting{pull: 0}}, &trial{setting: setting{pull: 1}}
		weak.LoggedMRR, weak.Cold = 0.9, &fit.Comparison{Value: 0.5}
		strong.LoggedMRR, strong.Cold = 0.88, &fit.Comparison{Value: 0.7}
		ch.trials[weak.setting], ch.trials[strong.setting] = weak, strong
		chosen, err := ch.choosePull(t.Context(), setting{})
		if err != nil || chosen.pull != want {
			t.Errorf("traffic %g: pull %g (%v), want %g", traffic, chosen.pull, err, want)
			continue
		}
		g := fit.NewGuarding(fit.MRR, traffic, chosen.PullTrial, []fit.PullTrial{weak.PullTrial, strong.PullTrial})
		if lost := 0.9 - chosen.LoggedMRR; g.LoggedLoss != lost || g.ColdGain != chosen.Cold.Value-0.5 {
			t.Errorf("traffic %g: %+v", traffic, g)
		}
	}
}

// TestWhichTrialsAreWhole: all of them, if the fit has to keep items without logs or the log is short.
func TestWhichTrialsAreWhole(t *testing.T) {
	for _, c := range []struct {
		guarded, large bool
		cold           fit.Cold
		pairs          int
		want           bool
	}{
		{true, false, fit.ColdAuto, 49_999, true},
		{true, false, fit.ColdAuto, 50_000, false},
		{true, false, fit.ColdGuard, 50_000, true},
		{true, true, fit.ColdGuard, 100_000, false},
		{false, false, fit.ColdGuard, 49_999, true},
		{false, false, fit.ColdGuard, 50_000, false},
		{false, true, fit.ColdAuto, 100_000, false},
	} {
		f := &fitter{report: Report{Guarded: c.guarded}, large: c.large, pairs: c.pairs, options: Options{Common: fit.Common{Cold: c.cold}}}
		if got := f.triesWhole(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestTheMiddleScaleStands: of short trials, another scale is taken only if it gains two standard errors.
func TestTheMiddleScaleStands(t *testing.T) {
	l, err := samples.Prepare(fittest.RandomData(60, 12, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(l, fit.MRR, fittest.AllRows(60), nil)
	for found, want := range map[int]float64{1: 20, 40: 40} { // queries that only the scale 40 finds
		c := &chooser{fitter: &fitter{options: Options{Pulls: []float64{1}, Rate: 1}}, holdouts: []holdout{{logged: j}}, trials: map[setting]*trial{}}
		for _, scale := range []float64{10, 20, 40} {
			s := setting{pull: 1, scale: scale, rate: 1}
			c.trials[s] = &trial{setting: s, marks: make([]float64, len(j.Queries))}
		}
		other := c.trials[setting{1, 40, 1}]
		for i := range found {
			other.marks[i] = 1
		}
		other.LoggedMRR = j.Mean(other.marks)
		if s, err := c.chooseScale(t.Context()); err != nil || s.scale != want {
			t.Errorf("with %d queries more the scale is %v (%v), want %g", found, s.scale, err, want)
		}
	}
}

// TestAShortTrialTakesTheWeakestPull that is as good as the best.
func TestAShortTrialTakesTheWeakestPull(t *testing.T) {
	l, err := samples.Prepare(fittest.RandomData(60, 12, 4), true)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(l, fit.MRR, fittest.AllRows(60), nil)
	ranked := func(pull, found float64) *trial { // finds this share of the queries
		tr := &trial{setting: setting{pull: pull}, marks: make([]float64, len(j.Queries))}
		for i := range tr.marks {
			if float64(i) < found*float64(len(tr.marks)) {
				tr.marks[i] = 1
			}
		}
		tr.LoggedMRR = j.Mean(tr.marks)
		return tr
	}
	c := &chooser{fitter: &fitter{}, holdouts: []holdout{{logged: j}}}
	for name, tc := range map[string]struct {
		tried []*trial
		want  float64
	}{
		"all alike":            {[]*trial{ranked(1, 0.5), ranked(2, 0.5), ranked(3, 0.5)}, 1},
		"the weakest is worse": {[]*trial{ranked(1, 0), ranked(2, 1), ranked(3, 1)}, 2},
		"only the strongest":   {[]*trial{ranked(1, 0), ranked(2, 0), ranked(3, 1)}, 3},
	} {
		if got := c.weakestAsGood(tc.tried, tc.tried[len(tc.tried)-1]); got.pull != tc.want {
			t.Errorf("%s: pull %g, want %g", name, got.pull, tc.want)
		}
	}
}

// TestWholeFitsChooseAmongShortTrials: a fit does not stay with what a short trial says, and fits the chosen form once.
func TestWholeFitsChooseAmongShortTrials(t *testing.T) {
	d, o := fittest.FlippedData(), DefaultOptions()
	l, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := train.OpenTrials(nil, "bilinear", d, o)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{log: l, options: o, split: split, judge: judge.New(l, fit.MRR, split.HeldOut, nil), trials: trials}
	f.planRounds()
	if f.plain, err = f.plainWithout(nil); err != nil {
		t.Fatal(err)
	}
	f.planWork(1)
	c := &chooser{fitter: f}
	if err := c.holdOut(nil); err != nil {
		t.Fatal(err)
	}
	weak, err := c.try(t.Context(), setting{scale: 20, rate: 0.02, pull: 1e-5})
	if err != nil {
		t.Fatal(err)
	}
	strong, err := c.try(t.Context(), setting{scale: 20, rate: 0.02, pull: 1})
	if err != nil {
		t.Fatal(err)
	}
	strong.LoggedMRR = 1 // as if the round had favoured it
	chosen, err := c.tryWhole(t.Context(), weak.setting, strong.setting)
	if err != nil {
		t.Fatal(err)
	}
	if weak.Rounds != f.short || 4*f.short < f.rounds || f.short >= f.rounds || len(c.tried) != 4 || chosen.pull != 1e-5 || chosen.Rounds <= f.short || chosen.LoggedMRR <= weak.LoggedMRR {
		t.Errorf("%d trials, chosen %v of %d rounds; in short %v of %d", len(c.tried), chosen, chosen.Rounds, weak, weak.Rounds)
	}
	judged, rounds, err := f.trainJudged(t.Context(), chosen.setting)
	if err != nil || judged != f.best.judged || rounds != chosen.Rounds {
		t.Errorf("the chosen form is fitted again: %d rounds, %v; want %d", rounds, err, chosen.Rounds)
	}
	c.reportTrials(chosen)
	if len(f.report.Pulls) != 2 || f.report.Pulls[0].Rounds <= f.short {
		t.Errorf("reported %+v; want the whole fits", f.report.Pulls)
	}
}
