package bilinear

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// fitterOf returns a fit of random data, of which it holds out a share.
func fitterOf(t *testing.T, queries int, heldOut float64) *fitter {
	t.Helper()
	l := prepare(t, queries, 12, 4)
	o := DefaultOptions()
	o.HeldOut = heldOut
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{log: l, options: o, split: split, judge: judge.New(l, fit.MRR, split.HeldOut, nil), plain: judge.InnerProduct}
	f.planRounds()
	return f
}

// TestPlannedRoundsAreThoseOfTheLearner: where a query teaches by some of its pairs only, as in a trial by labels, the log
// is as short as these pairs are few. Otherwise short trials would be shorter than planned, and choose badly.
func TestPlannedRoundsAreThoseOfTheLearner(t *testing.T) {
	d := fittest.RandomData(1000, 12, 4)
	for q := range d.Relevant {
		d.Relevant[q] = []int32{0, 1, 2, 3, 4, 5, 6, 7}
	}
	l, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int{0: 10, 4: 20} {
		o := DefaultOptions()
		o.PairsPerQuery = most
		split, err := l.Split(o.Common)
		if err != nil {
			t.Fatal(err)
		}
		f := &fitter{log: l, options: o, split: split, judge: judge.New(l, fit.MRR, split.HeldOut, nil)}
		f.planRounds()
		learner := newLearner(l, newForm(o.Form, 0, l, 1, start{}), l.TrainingPairs(split, nil), setting{scale: 1}, 0, o)
		if f.rounds != want || learner.rounds != want {
			t.Errorf("of %d pairs of a query, %d rounds are planned and %d taken, want %d", most, f.rounds, learner.rounds, want)
		}
	}
}

// TestWhatJudgesNewItems: a set of held-out items is judged alone, by queries that the fit has not learned.
func TestWhatJudgesNewItems(t *testing.T) {
	f := fitterOf(t, 200, 0.3)
	set := make([]bool, 12)
	for x := range 4 {
		set[x] = true
	}
	c := &chooser{fitter: f}
	if err := c.holdOut([][]bool{set}); err != nil {
		t.Fatal(err)
	}
	in := func(x int32) bool { return set[x] }
	cold, logged := judge.New(f.log, fit.MRR, f.log.UnseenQueries(f.split, set), in), judge.New(f.log, fit.MRR, f.split.HeldOut, func(x int32) bool { return !in(x) })
	for name, c := range map[string][2]*judge.Judge{"new items": {c.holdouts[0].cold, cold}, "logged items": {c.holdouts[0].logged, logged}} {
		if got, want := c[0].Marks(judge.InnerProduct), c[1].Marks(judge.InnerProduct); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestAGuardStopsWhenLoggedItemsLose: stronger pulls than the first that loses are not tried.
func TestAGuardStopsWhenLoggedItemsLose(t *testing.T) {
	var tried []int
	try := trialsAt([]float64{.9, .8, .95, .7, .6}, nil)
	if _, err := searchGuarded(5, func(i int) (*trial, error) { tried = append(tried, i); return try(i) }, logged); err != nil || slices.Contains(tried, 3) || slices.Contains(tried, 4) {
		t.Errorf("tried %v, %v; want none behind the pull that loses", tried, err)
	}
}

// TestAFitThatResumes: a learner that goes on from a position is where the other one was, in its rate too.
func TestAFitThatResumes(t *testing.T) {
	f := fitterOf(t, 60, 0.3)
	learnerOf := func() *learner {
		form := newForm(bilinear.Full, 0, f.log, 1, start{})
		return newLearner(f.log, form, f.log.TrainingPairs(f.split, nil), setting{pull: 1e-3, scale: 20, rate: 0.01}, 8, f.options)
	}
	whole, second := learnerOf(), learnerOf()
	round := func(l *learner, n int) {
		t.Helper()
		if _, err := l.TakeRound(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	round(whole, 0)
	for i, v := range whole.Parameters() {
		copy(second.Parameters()[i], v)
	}
	if err := second.Resume(whole.Position()); err != nil || second.adam.Step != whole.adam.Step || second.adam.Step == 0 {
		t.Fatalf("%v: resumed at step %d, want %d", err, second.adam.Step, whole.adam.Step)
	}
	round(whole, 1)
	if round(second, 1); !reflect.DeepEqual(whole.Parameters(), second.Parameters()) {
		t.Error("a fit that resumed learns otherwise")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := second.TakeRound(ended, 2); err == nil {
		t.Error("a round goes on after its end")
	}
}

// TestHowFarTheIdentityIs: a start by least squares is taken for a gain of more than four standard errors.
func TestHowFarTheIdentityIs(t *testing.T) {
	for gain, want := range map[float64]bool{-1: false, 0: false, 0.3: false, 0.4: false, 0.41: true} {
		if got := isFar(fit.Comparison{Gain: gain, StandardError: 0.1}); got != want {
			t.Errorf("a gain of %g ± 0.1: far %t", gain, got)
		}
	}
}

// TestWeightsOfTheStart: an item counts in the mean of its query by the weight of its pair.
func TestWeightsOfTheStart(t *testing.T) {
	l := &samples.Log{Items: rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}}}
	mean := make([]float32, 2)
	if addMeanItem(mean, l, []samples.Pair{{Item: 0, Weight: 3}, {Item: 1, Weight: 1}}); !slices.Equal(mean, []float32{0.75, 0.25}) {
		t.Errorf("the mean is %v", mean)
	}
}

// TestAnInterruptedFitDecidesQuickly: it compares by a thousand queries, where another one goes on until the decision is
// clear, and says that it was interrupted.
func TestAnInterruptedFitDecidesQuickly(t *testing.T) {
	f := fitterOf(t, 3000, 0.8)
	noise := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), 4, 4)
	almost := func(u, q rerank.Matrix) { // no better and no worse than the inner product
		linalg.Multiply(u, q, false, noise, false)
		linalg.AddScaled(u.Data, q.Data, 4)
	}
	for _, interrupted := range []bool{false, true} {
		f.report.Interrupted = interrupted
		f.rivals = []judge.Rival{judge.RivalOf(string(f.options.Form), 1, almost)}
		if err := f.decide(); err != nil {
			t.Fatal(err)
		}
		if got := f.report.Verdict.Queries; (got == judge.FirstLook) != interrupted {
			t.Errorf("interrupted %t: compared by %d of %d queries", interrupted, got, len(f.split.HeldOut))
		}
	}
	f.report.Interrupted, f.work = false, fit.NewWork(nil, "", 1)
	form := newForm(bilinear.Full, 0, f.log, 1, start{})
	f.best = &bestForm{form: form, judged: form, setting: setting{scale: 20}}
	if got, err := f.interrupt(context.Canceled); got == nil || err == nil || !got.Report.Interrupted || len(f.rivals) != 1 {
		t.Errorf("%+v, %v, compared with the plain similarity beside %d others", got, err, len(f.rivals)-1)
	}
}

// TestTheMeasureJudges: the verdict and the comparison are by the measure of the options, and say so.
func TestTheMeasureJudges(t *testing.T) {
	for _, measure := range []fit.Measure{fit.MRR, fit.NDCG} {
		f := fitterOf(t, 200, 0.5)
		f.options.Measure = measure
		f.rivals = []judge.Rival{judge.RivalOf(string(f.options.Form), 1, judge.InnerProduct)}
		if err := f.decide(); err != nil {
			t.Fatal(err)
		}
		j := f.newJudge(f.split.HeldOut, nil)
		found := j.Rate(j.FindHits(judge.InnerProduct))
		if want := j.Mean(map[fit.Measure][]float64{fit.MRR: found.MRR, fit.NDCG: found.NDCG}[measure]); !(math.Abs(f.report.Logged.Value-want) <= 1e-12) || f.report.Choices[0].Value != f.report.Logged.Value {
			t.Errorf("%s: %+v, want %g", measure, f.report.Logged, want)
		}
		if text := strings.Join(f.report.Verdict.Text, " "); !strings.Contains(text, measure.Name()) {
			t.Errorf("%s: the verdict is %q", measure, text)
		}
	}
}

// TestMarginOfADecision: a simpler form is taken that loses less than the margin of the options.
func TestMarginOfADecision(t *testing.T) {
	f := fitterOf(t, 200, 0.5)
	always := func(name string, numbers int, rank float64) judge.Rival {
		return judge.Rival{Name: name, Numbers: numbers, Marks: func(j *judge.Judge) ([]float64, error) { return slices.Repeat([]float64{rank}, len(j.Queries)), nil }}
	}
	for margin, want := range map[float64]string{0.05: "large", 0.5: "small"} {
		f.options.Margin, f.rivals = margin, []judge.Rival{always("large", 9, 1), always("small", 3, 0.9)}
		if err := f.decide(); err != nil || f.report.Verdict.Choose != want || f.report.Choices[1].Numbers != 3 {
			t.Errorf("with a margin of %g: %+v, %v", margin, f.report.Verdict, err)
		}
	}
}

// TestNothingLeftToLearn: a trial without any pair is refused with the share of items that was held out.
func TestNothingLeftToLearn(t *testing.T) {
	f := fitterOf(t, 60, 0.5)
	f.trials, f.options.ColdShare = new(train.Trials), 0.9
	all := make([]bool, f.log.Items.Rows)
	for i := range all {
		all[i] = true
	}
	c := &chooser{fitter: f, holdouts: make([]holdout, 1)}
	if _, err := c.fitWithout(t.Context(), setting{scale: 20}, 0, holdout{items: all}); !errors.Is(err, fit.ErrData) || !strings.Contains(err.Error(), "0.9 of the items") {
		t.Errorf("%v, want ErrData with the share", err)
	}
}

// TestAFailedComparison: the error of a rival ends the decision.
func TestAFailedComparison(t *testing.T) {
	f := fitterOf(t, 60, 0.5)
	failed := errors.New("no marks")
	f.rivals = []judge.Rival{{Name: "broken", Marks: func(*judge.Judge) ([]float64, error) { return nil, failed }}}
	if err := f.decide(); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
}

// TestRanksOfTheReport: the rank that the user asked to cut to is among them, and none that the form does not have.
func TestRanksOfTheReport(t *testing.T) {
	f := fitterOf(t, 60, 0.5)
	w := rerank.NewMatrix(4, 4)
	for i := range 4 {
		w.Row(i)[i] = []float32{10, 1, 0.5, 0.25}[i]
	}
	d, err := decompose(w, false)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	for reduce, want := range map[int][]int{0: {1}, ReduceAuto: {1}, 3: {1, 3}} {
		o.Reduce, o.Quality, o.Energy = reduce, 1e-9, 0.5
		s := describeSpectrum(d, d, f.judge, o, 1)
		var ranks []int
		for _, r := range s.Ranks {
			ranks = append(ranks, r.Rank)
		}
		if !slices.Equal(ranks, want) || s.Suggested != 1 || s.EnergyRank != 1 || s.Quality != o.Quality || s.Energy != o.Energy || s.Of != "W" {
			t.Errorf("cut to %d: %+v", reduce, s)
		}
	}
}
