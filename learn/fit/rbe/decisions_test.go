package rbe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/rerank"
)

// TestQueriesAreDivided by the seed: each is held out, or known, among the known ones are the support queries, and a tenth of them
// monitors the training of the others.
func TestQueriesAreDivided(t *testing.T) {
	o := DefaultOptions()
	o.HeldOut, o.SupportQueries = 0.25, 10
	s := o.splitQueries(80)
	all := slices.Sorted(slices.Values(slices.Concat(s.heldOut, s.known)))
	if len(s.heldOut) != 20 || !slices.Equal(all, rowNumbers(80)) || !slices.IsSorted(s.heldOut) || !slices.IsSorted(s.known) {
		t.Errorf("%+v", s)
	}
	supports := o.drawSupportQueries(s.known)
	if len(supports) != 10 || !slices.IsSorted(supports) || slices.ContainsFunc(supports, func(q int) bool { return !slices.Contains(s.known, q) }) {
		t.Errorf("support queries %v of %v", supports, s.known)
	}
	f := &fitter{options: o, split: s}
	learn, watch := f.drawWatched()
	if len(watch) != 6 || !slices.Equal(slices.Sorted(slices.Values(slices.Concat(learn, watch))), s.known) || !slices.IsSorted(learn) || !slices.IsSorted(watch) {
		t.Errorf("%v teach and %v monitor", learn, watch)
	}
	if asked := o.AskedQueries(80); !slices.Equal(asked, slices.Sorted(slices.Values(slices.Concat(s.heldOut, supports)))) {
		t.Errorf("without perceptrons the scores of %v are read", asked)
	}
	o.Hidden = 4
	if asked := o.AskedQueries(80); len(asked) != 80 {
		t.Errorf("with perceptrons the scores of %v are read", asked)
	}
	o.Seed++
	other := o.splitQueries(80)
	f = &fitter{options: o, split: s}
	if _, again := f.drawWatched(); slices.Equal(other.heldOut, s.heldOut) || slices.Equal(o.drawSupportQueries(s.known), supports) || slices.Equal(again, watch) {
		t.Error("two seeds divide the queries alike")
	}
	for _, o.SupportQueries = range []int{0, 60, 100} {
		if got := o.drawSupportQueries(s.known); !slices.Equal(got, s.known) {
			t.Errorf("%d support queries are %v", o.SupportQueries, got)
		}
	}
}

// TestHitRateOfQueries: the share of the best items that is found, and its interval to both sides within 0 and 1.
func TestHitRateOfQueries(t *testing.T) {
	got := newHitRate(HitPair{5, 4}, []int{4, 2, 3, 3}, 4)
	half := 1.96 * math.Sqrt((0.0625+0.0625)/3/4)
	if got.P != 5 || got.T != 4 || got.Mean != 0.75 || !(math.Abs(got.Low-(0.75-half)) <= 1e-9) || !(math.Abs(got.High-(0.75+half)) <= 1e-9) {
		t.Errorf("%+v, want 0.75 ± %g", got, half)
	}
	if got := newHitRate(HitPair{1, 1}, []int{1, 0}, 1); got.Low != 0 || got.High != 1 {
		t.Errorf("two queries give %+v", got)
	}
	if got := newHitRate(HitPair{1, 1}, nil, 1); got.Mean != 0 {
		t.Errorf("no query gives %+v", got)
	}
	truth := rerank.Matrix{Rows: 1, Cols: 5, Data: []float32{5, 4, 3, 2, 1}}
	approximate := rerank.Matrix{Rows: 1, Cols: 5, Data: []float32{1, 5, 2, 4, 3}} // items 1, 3, 4, 2, 0
	for _, c := range []struct {
		pair HitPair
		want float64
	}{{HitPair{1, 1}, 0}, {HitPair{1, 2}, 0.5}, {HitPair{4, 2}, 0.5}, {HitPair{5, 1}, 1}, {HitPair{2, 4}, 0.5}, {HitPair{9, 9}, 1}} {
		if got := hitRates(approximate, truth, []HitPair{c.pair})[0]; got.Mean != c.want || got.P != c.pair.P {
			t.Errorf("%+v: %+v, want %g", c.pair, got, c.want)
		}
	}
	if got := rootMeanSquareError(approximate, truth); !(math.Abs(got-math.Sqrt((16.+1+1+4+4)/5)) <= 1e-9) {
		t.Errorf("the error is %g", got)
	}
}

// TestSelectionsByTheirMeaning: popular items have the highest means, categories take turns, best items first, and items of none
// are left out.
func TestSelectionsByTheirMeaning(t *testing.T) {
	scores := rerank.Matrix{Rows: 6, Cols: 2, Data: []float32{1, 1, 9, 9, 5, 5, 8, 8, 2, 2, 7, 7}}
	if got := rankByMeans(scores); !slices.Equal(got, []int{1, 3, 5, 2, 4, 0}) {
		t.Errorf("by their means: %v", got)
	}
	categories := []string{"a", "b", "a", "", "a", "b"}
	for m, want := range map[int][]int{1: {1}, 2: {1, 2}, 4: {1, 2, 5, 4}, 9: {1, 2, 5, 4, 0}} {
		if got := selectPerCategory(scores, categories, m); !slices.Equal(got, want) {
			t.Errorf("%d by category: %v, want %v", m, got, want)
		}
	}
	for how, want := range map[Selection][]int{SelectFirst: {0, 1, 2}, SelectPopular: {1, 3, 5}} {
		if got, err := Select(t.Context(), scores, 3, how, 1, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", how, got, err)
		}
	}
	many := fittest.NormalMatrix(rand.New(rand.NewPCG(1, 2)), 60, 4)
	for _, how := range []Selection{SelectRandom, SelectKMeans, SelectBisecting, SelectMinibatch} {
		first, err := Select(t.Context(), many, 6, how, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := Select(t.Context(), many, 6, how, 1, nil)
		other, _ := Select(t.Context(), many, 6, how, 2, nil)
		if len(first) != 6 || !slices.Equal(first, again) || slices.Equal(first, other) {
			t.Errorf("%s: %v, again %v, by another seed %v", how, first, again, other)
		}
	}
}

// TestItemsOfAStep: all items of a small collection; of a large one the ten best of each query of the batch, and random ones.
func TestItemsOfAStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := &learner{items: rerank.NewMatrix(300, 1), truth: fittest.NormalMatrix(rng, 3, 300)}
	for draws, all := range map[int]bool{299: false, 300: true, 20: false} {
		l.options.Draws = draws
		got := l.drawItems([]int{0, 2}, rng)
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || (len(got) == 300) != all || len(got) > draws+20 {
			t.Errorf("%d draws: %d items, %v", draws, len(got), got)
		}
		for _, q := range []int{0, 2} {
			for _, x := range highestRows(l.truth.Row(q), 10) {
				if !slices.Contains(got, x) {
					t.Errorf("%d draws: item %d, one of the best of query %d, is left out", draws, x, q)
				}
			}
		}
	}
}

// TestALearnerAtItsStart adds nothing to CUR. Its softmax is as warm as the scores are spread, and the bound of a query is the
// score of its Top-th item.
func TestALearnerAtItsStart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	items, queries, features, truth := fittest.NormalMatrix(rng, 40, 3), fittest.NormalMatrix(rng, 9, 3), fittest.NormalMatrix(rng, 9, 2), fittest.NormalMatrix(rng, 9, 40)
	for i := range features.Data {
		features.Data[i] *= 100
	}
	o := neuralRBE()
	o.Loss, o.Top = LossListwise, 5
	l := newLearner(items, queries, features, truth, o)
	a, c := l.embedQueries(queries, features), l.embedItems()
	for q := range 9 {
		for x := range 40 {
			var got, want float64
			for i := range 3 {
				want += float64(queries.Row(q)[i]) * float64(items.Row(x)[i])
			}
			for i, v := range a.Row(q) {
				got += float64(v) * float64(c.Row(x)[i])
			}
			if !(math.Abs(got-want) <= 1e-5) {
				t.Fatalf("query %d and item %d score %g, by CUR %g", q, x, got, want)
			}
		}
		sorted := slices.Sorted(slices.Values(truth.Row(q)))
		if l.bounds[q] > float64(sorted[35]) || l.bounds[q] <= float64(sorted[34]) {
			t.Errorf("query %d has the bound %g, its fifth score is %g", q, l.bounds[q], sorted[35])
		}
	}
	if scale := rootMeanSquare(queries) / rootMeanSquare(features); !(math.Abs(float64(l.featureScale)-scale) <= 1e-6) || scale > 0.02 {
		t.Errorf("features are read times %g, want %g", l.featureScale, scale)
	}
	if l.tau != rowDeviation(truth)/4 || !(math.Abs(rowDeviation(rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 3, 8, 10}})-1) <= 1e-9) {
		t.Errorf("the temperature is %g of %g", l.tau, rowDeviation(truth))
	}
	in := l.queryInputs(queries, features)
	if in.Cols != 5 || in.Row(4)[2] != queries.Row(4)[2] || in.Row(4)[4] != l.featureScale*features.Row(4)[1] {
		t.Errorf("query 4 is read as %v", in.Row(4))
	}
	o.Seed++
	if other := newLearner(items, queries, features, truth, o); slices.Equal(other.query.params[0], l.query.params[0]) {
		t.Error("two seeds begin with the same perceptrons")
	}
	o.Loss = LossSoftmax
	if other := newLearner(items, queries, rerank.NewMatrix(9, 0), truth, o); other.bounds != nil || other.queryInputs(queries, rerank.NewMatrix(9, 0)).Cols != 3 {
		t.Errorf("without features: %+v", other.bounds)
	}
}

// TestRoundsAreDrawn: a round's order depends on the seed and its number alone.
func TestRoundsAreDrawn(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	items, queries, truth := fittest.NormalMatrix(rng, 20, 3), fittest.NormalMatrix(rng, 12, 3), fittest.NormalMatrix(rng, 12, 20)
	after := func(seed uint64, round int) []float32 {
		o := neuralRBE()
		o.Batch = 4
		l := newLearner(items, queries, rerank.NewMatrix(12, 0), truth, o)
		l.options.Seed = seed
		if _, err := l.TakeRound(t.Context(), round); err != nil {
			t.Fatal(err)
		}
		if l.adam.Step != 3 {
			t.Errorf("a round takes %d steps", l.adam.Step)
		}
		return l.query.params[3]
	}
	first := after(1, 1)
	if !slices.Equal(first, after(1, 1)) || slices.Equal(first, after(1, 2)) || slices.Equal(first, after(2, 1)) {
		t.Error("rounds or seeds give one order, or one round two")
	}
}

// TestPerceptronGradients: backward finds the slope of a weighted sum of the outputs by every parameter.
func TestPerceptronGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := newELUNet(3, 4, 2, 1, rng)
	x, slopes := rerank.NewMatrix(5, 3), rerank.NewMatrix(5, 2)
	for _, m := range []rerank.Matrix{x, slopes} {
		for i := range m.Data {
			m.Data[i] = float32(rng.NormFloat64())
		}
	}
	sum := func() (sum float64) {
		for i, y := range n.forward(x).Data {
			sum += float64(y) * float64(slopes.Data[i])
		}
		return sum
	}
	sum()
	n.backward(slopes)
	for array, parameters := range n.params {
		for i, v := range parameters {
			const step = 1e-2
			parameters[i] = v + step
			above := sum()
			parameters[i] = v - step
			if got, want := float64(n.grads[array][i]), (above-sum())/(2*step); !(math.Abs(got-want) <= 1e-2*(1+math.Abs(want))) {
				t.Errorf("the slope of parameter %d of array %d is %g, want %g", i, array, got, want)
			}
			parameters[i] = v
		}
	}
}
