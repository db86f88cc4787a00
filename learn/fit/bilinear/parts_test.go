package bilinear

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// TestRidgeOfTheStart: the penalty is a share of the mean variance of a query's coordinates.
func TestRidgeOfTheStart(t *testing.T) {
	moment := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{3, 0, 0, 1}}
	w, err := solveRidge(moment, rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{3.1, 0, 0, 1.1}})
	if err != nil || !(math.Abs(float64(w.Data[0])-1) <= 1e-6) || !(math.Abs(float64(w.Data[3])-1) <= 1e-6) || w.Data[1] != 0 {
		t.Errorf("%v, %v; want the identity", w, err) // λ is 0.05·(3 + 1)/2
	}
}

// TestRanksAreDescribed: each with its share of the energy and the greatest singular value that it leaves out.
func TestRanksAreDescribed(t *testing.T) {
	f := fitterOf(t, 60, 0.5)
	w := rerank.NewMatrix(4, 4)
	for i := range 4 {
		w.Row(i)[i] = []float32{2, 4, 1, 3}[i]
	}
	d, err := decompose(w, false)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Reduce, o.Quality, o.Energy = 3, 1e-9, 0.9
	s := describeSpectrum(d, d, f.judge, o, 1)
	if len(s.Ranks) != 2 || s.EnergyRank != 3 || s.Suggested != 1 {
		t.Fatalf("%+v", s)
	}
	for i, want := range []RankQuality{{Rank: 1, Energy: 16. / 30, Bound: 3}, {Rank: 3, Energy: 29. / 30, Bound: 1}} {
		want.Value = f.judge.Mean(f.judge.Marks(d.cut(want.Rank).probe))
		if got := s.Ranks[i]; got.Rank != want.Rank || !(math.Abs(got.Energy-want.Energy) <= 1e-6) || !(math.Abs(got.Bound-want.Bound) <= 1e-6) || got.Value != want.Value {
			t.Errorf("rank %d is %+v, want %+v", want.Rank, got, want)
		}
	}
	o.Quality = 0.5 // the suggested rank keeps this share, not all
	if half := describeSpectrum(d, d, f.judge, o, 2*s.Ranks[0].Value); half.Suggested != 1 {
		t.Errorf("for half of the quality rank %d is suggested", half.Suggested)
	}
}

// TestStartsAreFittedOnce for each name, and not to no pairs.
func TestStartsAreFittedOnce(t *testing.T) {
	l, o := prepare(t, 60, 12, 4), DefaultOptions()
	o.HeldOut, o.Rounds, o.Steps, o.Pulls, o.Scale, o.Rate = 0.3, 2, 4, []float64{1e-4}, 20, 0.01
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := train.OpenTrials(nil, "bilinear", fit.Data{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	starts, err := ChooseStarts(t.Context(), l, split, trials, o)
	if err != nil {
		t.Fatal(err)
	}
	if starts.Scale() != 20 || starts.WithoutHeldOut().Rows != 4 {
		t.Errorf("the scale is %g, W has %d rows", starts.Scale(), starts.WithoutHeldOut().Rows)
	}
	starts.rounds = 2
	pairs := l.Pairs(split.All(), nil)
	first, err := starts.Fit(t.Context(), "all", pairs)
	if err != nil {
		t.Fatal(err)
	}
	again, err := starts.Fit(t.Context(), "all", nil)
	if err != nil || &again.Data[0] != &first.Data[0] {
		t.Errorf("a start is fitted again, %v", err)
	}
	other, err := starts.Fit(t.Context(), "some", l.TrainingPairs(split, nil))
	if err != nil || slices.Equal(other.Data, first.Data) {
		t.Errorf("other pairs give the same start, %v", err)
	}
	if _, err := starts.Fit(t.Context(), "none", nil); !errors.Is(err, fit.ErrData) {
		t.Errorf("no pairs: %v", err)
	}
	starts.rounds, starts.fitter.report.Start = 0, FromIdentity
	if kept, err := starts.Fit(t.Context(), "kept", pairs); err != nil || kept.Data[0] != 1 || kept.Data[1] != 0 {
		t.Errorf("without rounds the start is %v, %v", kept.Data, err)
	}
}

// TestVerdictWithoutAnInnerProduct: queries and items of other dimensions cannot keep the plain similarity.
func TestVerdictWithoutAnInnerProduct(t *testing.T) {
	f := fitterOf(t, 200, 0.5)
	f.rivals = []judge.Rival{{Name: "full", Numbers: 9, Marks: func(j *judge.Judge) ([]float64, error) { return slices.Repeat([]float64{0}, len(j.Queries)), nil }}}
	if err := f.decide(); err != nil || strings.HasPrefix(f.report.Recommendation, "Use it") {
		t.Errorf("%q, %v", f.report.Recommendation, err)
	}
	square := f.log.Queries
	f.log.Queries = rerank.Matrix{Rows: square.Rows, Cols: 2, Data: make([]float32, 2*square.Rows)}
	f.plain = func(u, q rerank.Matrix) {
		for r := range u.Rows {
			copy(u.Row(r), f.log.Items.Row(0))
		}
	}
	if err := f.decide(); err != nil || !strings.HasPrefix(f.report.Recommendation, "Use it: queries and items have no inner product") || f.report.Choices[0].Name != "the least-squares map" {
		t.Errorf("%q of %+v, %v", f.report.Recommendation, f.report.Choices, err)
	}
}

// TestSidesOfTheStart: W maps a query to the items that it chose, with the root mean square norm of all items.
func TestSidesOfTheStart(t *testing.T) {
	d := fittest.RandomData(30, 10, 4)
	l, err := samples.Prepare(d, false)
	if err != nil {
		t.Fatal(err)
	}
	pairs := l.Pairs(fittest.AllRows(30), nil)
	w, err := leastSquares(l, pairs)
	if err != nil {
		t.Fatal(err)
	}
	var square float64
	for q := range 30 {
		for c := range 4 {
			var sum float64
			for r, v := range l.Queries.Row(q) {
				sum += float64(v) * float64(w.Row(r)[c])
			}
			square += sum * sum / 30
		}
	}
	if want := float64(samples.RootMeanSquareNorm(l.Items)); !(math.Abs(math.Sqrt(square)-want) <= 1e-3*want) {
		t.Errorf("mapped queries have the norm %g, items %g", math.Sqrt(square), want)
	}
}

// TestStartOfAFewItems: where none can be held out, the fit starts at the identity.
func TestStartOfAFewItems(t *testing.T) {
	l := prepare(t, 30, 2, 4)
	split, err := l.Split(DefaultOptions().Common)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{log: l, options: DefaultOptions(), split: split}
	if err := f.chooseStart(); err != nil || f.report.Start != FromIdentity || len(l.HoldOutItems(farShare, 1, 1)) != 0 {
		t.Errorf("%d sets of items are held out, and the fit starts at %s, %v", len(l.HoldOutItems(farShare, 1, 1)), f.report.Start, err)
	}
}

// TestFormsThatStartAtTheIdentity: a form without another start does not take it, however far the identity is.
func TestFormsThatStartAtTheIdentity(t *testing.T) {
	l, err := samples.Prepare(fittest.FlippedData(), true)
	if err != nil {
		t.Fatal(err)
	}
	for form, want := range map[bilinear.Form]Start{bilinear.Full: FromLeastSquares, bilinear.LowRank: FromLeastSquares, bilinear.Diagonal: FromIdentity, bilinear.IdentityLowRank: FromIdentity} {
		f := &fitter{log: l, options: DefaultOptions()}
		f.options.Form = form
		if f.split, err = l.Split(f.options.Common); err != nil {
			t.Fatal(err)
		}
		f.judge = judge.New(l, fit.MRR, f.split.HeldOut, nil)
		f.planRounds()
		if err := f.chooseStart(); err != nil || f.report.Start != want {
			t.Errorf("%s starts at %s, %v", form, f.report.Start, err)
		}
	}
}
