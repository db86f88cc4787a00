package mol

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// TestTrafficOfNewItems: the share that the options name decides whether they are guarded; if they name none, the log does.
func TestTrafficOfNewItems(t *testing.T) {
	for name, c := range map[string]struct {
		cold    fit.Cold
		traffic float64
		guarded bool
	}{
		"hardly any": {fit.ColdAuto, fit.LeastColdTraffic / 2, false}, "enough": {fit.ColdAuto, fit.LeastColdTraffic, true},
		"none, but guarded": {fit.ColdGuard, 0, true}, "much, but ignored": {fit.ColdIgnore, 0.5, false},
	} {
		f, _ := fitterOf(t, func(o *Options) { o.Cold, o.ColdShare, o.ColdTraffic = c.cold, 0.3, c.traffic })
		if f.setGuard(); f.report.ColdTraffic != c.traffic || f.report.Guarded != c.guarded || f.report.Pull != f.options.Pulls[0] {
			t.Errorf("%s: %g of the traffic, guarded %t, pull %g", name, f.report.ColdTraffic, f.report.Guarded, f.report.Pull)
		}
	}
	f, _ := fitterOf(t, func(o *Options) { o.ColdTraffic = -1 })
	if f.setGuard(); f.report.ColdTraffic != f.log.ColdTraffic() {
		t.Errorf("%g of the traffic, the log says %g", f.report.ColdTraffic, f.log.ColdTraffic())
	}
}

// remembered returns a fit whose trials have ended already, with the marks of each set of items for a pull.
func remembered(t *testing.T, cold fit.Cold, marksOf map[float64][]marks) *fitter {
	t.Helper()
	f := &fitter{options: Options{Common: fit.Common{Cold: cold}, Measure: fit.MRR, Rounds: 4}, work: fit.NewWork(nil, "", 1)}
	var err error
	if f.trials, err = train.OpenTrials(&fittest.Checkpoint{}, "mol", fit.Data{}, nil); err != nil {
		t.Fatal(err)
	}
	for pull, all := range marksOf {
		rounds := 4
		if pull == 0 {
			rounds = 0
		} else {
			f.options.Pulls = append(f.options.Pulls, pull)
		}
		for i, m := range all {
			name := fmt.Sprintf("pull %g, %d rounds, without item set %d", pull, rounds, i)
			if _, err := train.Try(f.trials, name, func() (marks, error) { return m, nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(f.options.Pulls)
	return f
}

// found returns the marks of a set of 20 items, each found at a reciprocal rank.
func found(logged, cold, plain float64) marks {
	same := func(v float64) []float64 { return slices.Repeat([]float64{v}, 20) }
	return marks{LoggedMRR: logged, Cold: judge.Outcomes{Scores: same(cold), Baseline: same(plain), Weights: same(1), Items: fittest.AllRows(20)}}
}

// TestATrialIsOfAllItemSets: its value for logged items is the mean over the sets, its value for new items is over all of them.
func TestATrialIsOfAllItemSets(t *testing.T) {
	f := remembered(t, fit.ColdGuard, map[float64][]marks{0.5: {found(0.25, 0.5, 0.25), found(0.75, 0.75, 0.5)}})
	got, err := f.tryPull(t.Context(), 0.5, 4, make([][]bool, 2))
	if err != nil || got.LoggedMRR != 0.5 || got.Cold.Value != 0.625 || got.Cold.Baseline != 0.375 || got.Cold.Queries != 40 || !got.Admissible || got.Pull != 0.5 || got.Rounds != 4 {
		t.Errorf("%+v, %+v, %v", got, got.Cold, err)
	}
	f = remembered(t, fit.ColdGuard, map[float64][]marks{0.5: {found(0.9, 0.25, 0.5)}})
	if got, err := f.tryPull(t.Context(), 0.5, 4, make([][]bool, 1)); err != nil || got.Admissible {
		t.Errorf("new items lose: %+v, %v", got, err)
	}
}

// TestWhichPullIsTaken: from the strongest to weaker ones, for as long as each is better than the one before; the bilinear form
// if none is.
func TestWhichPullIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		cold    fit.Cold
		traffic float64
		marks   map[float64][]marks
		pull    float64
		rounds  int
		tried   []float64
		warns   bool
	}{
		"a weaker one is worse": {fit.ColdAuto, 0, map[float64][]marks{0: {found(0.5, 0.5, 0.5)}, 0.1: {found(0.6, 0.5, 0.5)}, 0.2: {found(0.7, 0.5, 0.5)}, 0.05: {found(0.9, 0.5, 0.5)}}, 0.2, 4, []float64{0, 0.2, 0.1}, false},
		"the weakest":           {fit.ColdAuto, 0, map[float64][]marks{0: {found(0.5, 0.5, 0.5)}, 0.1: {found(0.8, 0.4, 0.5)}, 0.2: {found(0.7, 0.5, 0.5)}}, 0.1, 4, []float64{0, 0.2, 0.1}, true},
		"by new items' traffic": {fit.ColdAuto, 0.5, map[float64][]marks{0: {found(0.5, 0.5, 0.5)}, 0.1: {found(0.8, 0.4, 0.5)}, 0.2: {found(0.7, 0.6, 0.5)}}, 0.2, 4, []float64{0, 0.2, 0.1}, false},
		"the bilinear form":     {fit.ColdAuto, 0, map[float64][]marks{0: {found(0.5, 0.5, 0.5)}, 0.1: {found(0.8, 0.5, 0.5)}, 0.2: {found(0.4, 0.5, 0.5)}}, 0, 0, []float64{0, 0.2}, false},
		"one that keeps them":   {fit.ColdGuard, 0, map[float64][]marks{0: {found(0.9, 0.4, 0.5)}, 0.1: {found(0.9, 0.4, 0.5)}, 0.2: {found(0.4, 0.6, 0.5)}}, 0.2, 4, []float64{0, 0.2, 0.1}, false},
		"none keeps them":       {fit.ColdGuard, 0, map[float64][]marks{0: {found(0.9, 0.4, 0.5)}, 0.2: {found(0.4, 0.4, 0.5)}}, 0, 0, []float64{0, 0.2}, true},
	} {
		f := remembered(t, c.cold, c.marks)
		f.report.ColdTraffic = c.traffic
		if err := f.choosePull(t.Context(), make([][]bool, 1)); err != nil {
			t.Fatal(err)
		}
		r := f.report
		var tried []float64
		chosen := -1.0
		for _, trial := range r.Pulls {
			tried = append(tried, trial.Pull)
			if trial.Chosen {
				chosen = trial.Pull
			}
		}
		if r.Pull != c.pull || r.Rounds != c.rounds || chosen != c.pull || !slices.Equal(tried, c.tried) || r.Cold == nil || r.Guarding == nil || r.Guarding.Traffic != c.traffic {
			t.Errorf("%s: pull %g of %v, %d rounds, %+v; want %g of %v", name, r.Pull, tried, r.Rounds, r.Guarding, c.pull, c.tried)
		}
		if got := strings.Join(r.Warnings, "; "); (got != "") != c.warns || c.warns && strings.Contains(got, "no pull that was tried") != (c.cold == fit.ColdGuard) {
			t.Errorf("%s: warns of %q", name, got)
		}
	}
}

// TestTheMeasureChoosesThePull: the one that is best by the measure of the options, whatever the other measure says.
func TestTheMeasureChoosesThePull(t *testing.T) {
	trials := map[float64][]marks{0: {found(0.5, 0.5, 0.5)}, 0.1: {found(0.6, 0.5, 0.5)}, 0.2: {found(0.7, 0.5, 0.5)}}
	for pull, ndcg := range map[float64]float64{0: 0.5, 0.1: 0.8, 0.2: 0.6} {
		trials[pull][0].LoggedNDCG = ndcg
	}
	for measure, want := range map[fit.Measure]float64{fit.MRR: 0.2, fit.NDCG: 0.1} {
		f := remembered(t, fit.ColdAuto, trials)
		f.options.Measure = measure
		if err := f.choosePull(t.Context(), make([][]bool, 1)); err != nil || f.report.Pull != want || f.report.Guarding.Measure != measure {
			t.Errorf("%s takes the pull %g, %v; want %g", measure, f.report.Pull, err, want)
		}
	}
}

// TestNetsAreMarkedByTheMeasure: rounds, new items and the verdict are judged by the measure of the options, and so is the
// bilinear form at which a mixture starts.
func TestNetsAreMarkedByTheMeasure(t *testing.T) {
	found := map[fit.Measure][2][]float64{} // marks of held-out queries, and of new items
	for _, measure := range fit.Measures() {
		f, n := fitterOf(t, func(o *Options) { o.Measure = measure })
		if form := f.options.formOptions(4); form.Measure != measure {
			t.Errorf("the bilinear form is fitted by %s, want %s", form.Measure, measure)
		}
		m, err := f.judgeWithout(n, make([]bool, f.log.Items.Rows))
		if err != nil {
			t.Fatal(err)
		}
		set := slices.Repeat([]bool{true}, f.log.Items.Rows)
		cold, err := f.judgeWithout(n, set)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.measure(n); err != nil {
			t.Fatal(err)
		}
		if want := map[fit.Measure]float64{fit.MRR: m.LoggedMRR, fit.NDCG: m.LoggedNDCG}[measure]; !(math.Abs(f.report.Logged.Value-want) <= 1e-12) || m.LoggedMRR == m.LoggedNDCG {
			t.Errorf("%s: the verdict is by %g, want %g", measure, f.report.Logged.Value, want)
		}
		found[measure] = [2][]float64{cold.Cold.Scores, cold.Cold.Baseline}
	}
	for i, name := range []string{"the net", "the plain inner product"} {
		if mrr, ndcg := found[fit.MRR][i], found[fit.NDCG][i]; len(mrr) == 0 || slices.Equal(mrr, ndcg) {
			t.Errorf("new items by %s: both measures give %v", name, mrr)
		}
	}
}

// TestLoggedItemsJudgeAlone: the held-out queries of items that the fit has not seen do not judge it as logged ones.
func TestLoggedItemsJudgeAlone(t *testing.T) {
	f, n := fitterOf(t, func(*Options) {})
	set := make([]bool, f.log.Items.Rows)
	for x := range set {
		set[x] = x%2 == 0
	}
	m, err := f.judgeWithout(n, set)
	if err != nil {
		t.Fatal(err)
	}
	ranks := func(wanted func(int32) bool) float64 {
		v, err := f.newView(n)
		if err != nil {
			t.Fatal(err)
		}
		j := f.newJudge(f.split.HeldOut, wanted)
		all, err := v.marks(j)
		if err != nil {
			t.Fatal(err)
		}
		return j.Mean(all)
	}
	if want, all := ranks(func(x int32) bool { return !set[x] }), ranks(nil); m.LoggedMRR != want || want == all {
		t.Errorf("logged items are found at %g, want %g; all at %g", m.LoggedMRR, want, all)
	}
}

// TestTheRateFallsOverTheRounds of the options, and a learner goes on with its batches.
func TestTheRateFallsOverTheRounds(t *testing.T) {
	f, _ := fitterOf(t, func(o *Options) { o.Rounds, o.Batch = 1000, 8 })
	moved := func(round int) (sum float64) {
		n := newNet(f.options, f.log, identity(f.log.Items.Cols), false)
		l := f.newLearner(n, f.trainingPairs(nil), 0)
		before := linalg.CloneArrays(n.arrays())
		l.adam.Step = round * l.batches.Steps
		if _, err := l.TakeRound(t.Context(), round); err != nil {
			t.Fatal(err)
		}
		for i, v := range n.arrays() {
			for k := range v {
				sum += math.Abs(float64(v[k] - before[i][k]))
			}
		}
		return sum
	}
	if early, late := moved(400), moved(999); late == 0 || late > early/100 {
		t.Errorf("round 400 moves the net by %g, the last one by %g", early, late)
	}
}

// TestPullOfAMixture: the loss has λ‖θ − θ₀‖². A guarded net pulls its gates ten times as strongly, and leaves the biases of its
// sides where they are.
func TestPullOfAMixture(t *testing.T) {
	f, n := fitterOf(t, func(*Options) {})
	pairs := f.trainingPairs(nil)[:6]
	loss := func(pull float64) float64 {
		return newLearner(f.log, n, pairs, pull, f.options).computeGradients(pairs)
	}
	var sides, gates float64
	count := len(n.query.parameters()) + len(n.item.parameters())
	for k, p := range n.learned {
		for i, v := range p.Data {
			d := float64(v - p.start[i])
			if k < count {
				sides += d * d
			} else {
				gates += d * d
			}
		}
	}
	if sides == 0 || gates == 0 {
		t.Fatalf("the net is at its start: %g, %g", sides, gates)
	}
	if got := loss(0.5) - loss(0); !(math.Abs(got-0.5*(sides+gates)) <= 1e-3*(sides+gates)) {
		t.Errorf("a pull of 0.5 costs %g, want %g", got, 0.5*(sides+gates))
	}
	n.guarded = true
	loss(0)
	free := linalg.CloneArrays(gradientArrays(n.learned))
	if got := loss(0.5) - loss(0); !(math.Abs(got-0.5*(sides+10*gates)) <= 1e-3*(sides+10*gates)) {
		t.Errorf("a guarded pull of 0.5 costs %g, want %g", got, 0.5*(sides+10*gates))
	}
	loss(0.5)
	for k, p := range n.learned {
		factor := 1.0
		if k >= count {
			factor = 10
		}
		isBias := &p.Data[0] == &n.query.out.bias.Data[0] || &p.Data[0] == &n.item.bias.Data[0]
		for i, g := range p.grad.Data {
			want := float64(free[k][i]) + factor*float64(p.Data[i]-p.start[i])
			if isBias {
				want = 0
			}
			if !(math.Abs(float64(g)-want) <= 1e-3*(1+math.Abs(want))) {
				t.Fatalf("parameter %d of array %d has the gradient %g, want %g", i, k, g, want)
			}
		}
	}
}

// TestUsersOfABatch: each pair is learned with the user and the vector of its own query.
func TestUsersOfABatch(t *testing.T) {
	f, n := fitterOf(t, func(o *Options) { o.UserTables = []int{50} })
	pairs := f.trainingPairs(nil)[:7]
	slices.Reverse(pairs)
	l := f.newLearner(n, pairs, 0)
	l.computeGradients(pairs)
	for i, p := range pairs {
		if l.users[i] != f.log.Users[p.Query] || !slices.Equal(l.queries.Row(i), f.log.Queries.Row(int(p.Query))) {
			t.Errorf("pair %d is of query %d, but is learned with user %d", i, p.Query, l.users[i])
		}
	}
}

// TestDropoutKeepsTheMean: what is left is larger, so that a query is as strong in training as in service. Kinds, rows and steps
// drop differently.
func TestDropoutKeepsTheMean(t *testing.T) {
	v := slices.Repeat([]float32{2}, 20000)
	drop(v, 0.25, rand.New(rand.NewPCG(1, 2)))
	var sum float64
	zeros := 0
	for _, x := range v {
		sum += float64(x)
		if x == 0 {
			zeros++
		} else if !(math.Abs(float64(x)-2/0.75) <= 1e-6) {
			t.Fatalf("a number that is left is %g", x)
		}
	}
	if mean := sum / 20000; !(math.Abs(mean-2) <= 0.05) || zeros < 4500 || zeros > 5500 {
		t.Errorf("the mean of 2 becomes %g, %d of 20000 are dropped", mean, zeros)
	}
	one := noise{seed: 1, step: 2}
	first := one.rowSource(dropQuery, 3).Uint64()
	for name, other := range map[string]*rand.Rand{
		"seed": noise{seed: 2, step: 2}.rowSource(dropQuery, 3), "step": noise{seed: 1, step: 3}.rowSource(dropQuery, 3), "row": one.rowSource(dropQuery, 4), "kind": one.rowSource(dropGate, 3),
	} {
		if other.Uint64() == first {
			t.Errorf("another %s drops the same numbers", name)
		}
	}
	if again := one.rowSource(dropQuery, 3).Uint64(); again != first {
		t.Error("one row drops other numbers on another core")
	}
}

// TestDroppedGates: the others add up to 1, and if all would be dropped, none is.
func TestDroppedGates(t *testing.T) {
	some, all := 0, 0
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		g := []float32{1, 2, 3}
		computeGates(g, 0.5, rng)
		left := 0
		var sum float64
		for _, v := range g {
			sum += float64(v)
			if v > 0 {
				left++
			}
		}
		if !(math.Abs(sum-1) <= 1e-6) {
			t.Fatalf("gates %v", g)
		}
		if left == 3 {
			all++
		} else {
			some++
		}
	}
	if some < 120 || all < 20 {
		t.Errorf("%d of 200 rows drop gates, %d keep all", some, all)
	}
	whole := []float32{1, 2, 3}
	if computeGates(whole, 0, rng); whole[0] == 0 || whole[1] == 0 {
		t.Errorf("without dropout the gates are %v", whole)
	}
}

// TestFirstRows: the rows of the best scores, in their order among equal ones.
func TestFirstRows(t *testing.T) {
	if got := topRows([]float32{1, 3, 3, 2, 3}, 4); !slices.Equal(got, []int32{1, 2, 4, 3}) {
		t.Errorf("%v", got)
	}
}

// TestOptionsOfAMixture: each has its range.
func TestOptionsOfAMixture(t *testing.T) {
	d := fit.Data{Items: rerank.NewMatrix(2, 8), Queries: rerank.NewMatrix(2, 8)}
	for name, c := range map[string]struct {
		change func(*Options)
		ok     bool
	}{
		"defaults": {func(*Options) {}, true}, "64 by 64": {func(o *Options) { o.PairsQuery, o.PairsItem = 64, 64 }, true}, "65 components": {func(o *Options) { o.PairsItem = 65 }, false},
		"65 of the query": {func(o *Options) { o.PairsQuery = 65 }, false}, "long components": {func(o *Options) { o.Dim = 9 }, false}, "other gates": {func(o *Options) { o.Gates = "item" }, false},
		"narrow gate": {func(o *Options) { o.GateQueryHidden = 1 }, false}, "linear pair part": {func(o *Options) { o.GatePairHidden = 0 }, true}, "no item part": {func(o *Options) { o.GateItemHidden = 0 }, false},
		"wide": {func(o *Options) { o.QueryHidden = maxHidden + 1 }, false}, "other activation": {func(o *Options) { o.QueryHidden, o.QueryActivation = 4, "relu" }, false}, "unused activation": {func(o *Options) { o.QueryActivation = "relu" }, true},
		"cold softmax": {func(o *Options) { o.Temperature = 1e-4 }, false}, "all dropped": {func(o *Options) { o.GateDropout = 1 }, false}, "query dropped": {func(o *Options) { o.Dropout = 1 }, false}, "users dropped": {func(o *Options) { o.UserDropout = -0.1 }, false},
		"users of nobody": {func(o *Options) { o.UserTables = []int{5} }, false}, "batch of one": {func(o *Options) { o.Batch = 1 }, false}, "negative pull": {func(o *Options) { o.Pulls = []float64{0, -1} }, false}, "no rate": {func(o *Options) { o.Rate = 0 }, false},
		"negative balance": {func(o *Options) { o.Balance = -1 }, false}, "no draws": {func(o *Options) { o.Draws = 0 }, false}, "negative softmax": {func(o *Options) { o.Softmax = -1 }, false}, "no rounds": {func(o *Options) { o.Rounds = -1 }, false},
		"nothing held out": {func(o *Options) { o.HeldOut = 0 }, false},
	} {
		o := DefaultOptions()
		c.change(&o)
		o.setDefaults()
		if err := o.check(d); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.UserIDs = []int64{1, 2}
	for size, ok := range map[int]bool{0: false, 1: true, maxUsers: true, maxUsers + 1: false} {
		o := DefaultOptions()
		o.UserTables = []int{7, size}
		o.setDefaults()
		if err := o.check(d); (err == nil) != ok {
			t.Errorf("a table of %d users: %v", size, err)
		}
	}
	o := Options{Common: fit.Common{}, PairsItem: 4}
	if o.componentDim(10) != 3 {
		t.Errorf("four components of ten numbers have %d each", o.componentDim(10))
	}
	if o.Dim = 5; o.componentDim(10) != 5 {
		t.Errorf("components have %d numbers, want 5", o.componentDim(10))
	}
	for gates, want := range map[Gates][2]float64{GatesQuery: {1e-5, 16}, GatesFull: {1e-4, 8}} {
		o := Options{Gates: gates}
		if o.setDefaults(); o.Pulls[0] != want[0] || o.Rounds != int(want[1]) || !slices.IsSorted(o.Pulls) {
			t.Errorf("%s: pulls %v, %d rounds", gates, o.Pulls, o.Rounds)
		}
	}
}

// TestUsageOfGates: the entropy of a query's gates and of their mean, and the share of the largest.
func TestUsageOfGates(t *testing.T) {
	var u GateUsage
	u.add([]float64{0.5, 0.5, 0})
	u.add([]float64{0, 0, 1})
	if !(math.Abs(u.MeanEntropy-math.Log(2)) <= 1e-9) || u.Largest != 1.5 || !slices.Equal(u.Mass, []float64{0.5, 0.5, 1}) {
		t.Errorf("%+v", u)
	}
	f, n := fitterOf(t, func(*Options) {})
	v, err := f.newView(n)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(f.log, fit.MRR, f.split.HeldOut, nil)
	got, err := v.measureGates(j)
	var sum float64
	for _, m := range got.Mass {
		sum += m
	}
	if err != nil || got.Queries != len(j.Queries) || !(math.Abs(sum-1) <= 1e-4) || got.MeanEntropy <= 0 || got.MeanEntropy > got.Entropy+1e-9 || got.Largest > 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPullOfTheFits: the fit that is judged and the fit to all pairs are pulled as the report says, for its rounds.
func TestPullOfTheFits(t *testing.T) {
	for pull, still := range map[float64]bool{0: false, 1e8: true} {
		f, _ := fitterOf(t, func(o *Options) { o.Rounds, o.Cold, o.Batch = 3, fit.ColdIgnore, 8 })
		var err error
		if f.trials, err = train.OpenTrials(nil, "mol", fit.Data{}, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.chooseStarts(t.Context(), 3, 0); err != nil {
			t.Fatal(err)
		}
		f.report.Pull, f.report.Guarded, f.report.Rounds = pull, true, 3 // so that every round is taken
		judged, trained, err := f.trainJudged(t.Context())
		if err != nil || trained.TakenRounds != 3 || f.report.Rounds != 3 {
			t.Fatalf("%+v, %v", trained, err)
		}
		final, err := f.trainFinal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]*net{"judged": judged, "final": final} {
			gates := n.learned[len(n.learned)-1]
			var moved float64
			for i, v := range gates.Data {
				moved = max(moved, math.Abs(float64(v-gates.start[i])))
			}
			if (moved < 2e-3) != still {
				t.Errorf("%s, pulled by %g: the gates move by %g", name, pull, moved)
			}
		}
	}
}

// underived derives the fields of a similarity, but cannot compute them.
type underived struct{ rerank.Deriver }

var errUnderived = errors.New("the field cannot be derived")

func (underived) Derive(rerank.Matrix, string, rerank.Items) error { return errUnderived }

// TestFieldsThatCannotBeDerived end the measurement of first stages.
func TestFieldsThatCannotBeDerived(t *testing.T) {
	f, n := fitterOf(t, func(*Options) {})
	v, err := f.newView(n)
	if err != nil {
		t.Fatal(err)
	}
	v.abilities.Derive = underived{v.abilities.Derive}
	if _, err := v.measureRecall(judge.New(f.log, fit.MRR, f.split.HeldOut, nil)); !errors.Is(err, errUnderived) {
		t.Errorf("%v", err)
	}
}
