package mol

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
)

// fitterOf returns a fit of random data, and a net whose parameters are random.
func fitterOf(t *testing.T, change func(*Options)) (*fitter, *net) {
	t.Helper()
	o := smallMoL()
	change(&o)
	o.setDefaults()
	o.Temperature = max(o.Temperature, 0.05)
	log := prepare(t, 60, 40, 7)
	log.Users = make([]int64, 60)
	for q := range log.Users {
		log.Users[q] = int64(q)
	}
	c := fit.DefaultCommon()
	c.HeldOut = 0.3
	split, err := log.Split(c)
	if err != nil {
		t.Fatal(err)
	}
	n := newNet(o, log, identity(log.Items.Cols), false)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, v := range n.arrays() {
		for i := range v {
			v[i] += float32(rng.NormFloat64()) / 4
		}
	}
	return &fitter{log: log, split: split, options: o, queryScale: 1, itemScale: 1}, n
}

// TestAGuardedFitIsShort: a fit that guards items without logs takes half of the rounds, because its marks come from items
// that it learns.
func TestAGuardedFitIsShort(t *testing.T) {
	for cold, want := range map[fit.Cold]struct {
		rounds int
		sets   bool
	}{fit.ColdGuard: {4, true}, fit.ColdIgnore: {7, false}} {
		f, _ := fitterOf(t, func(o *Options) { o.Rounds, o.Cold = 7, cold })
		if sets := f.setGuard(); f.options.Rounds != want.rounds || (sets != nil) != want.sets || f.report.Guarded != want.sets || (f.patience() == 0) != want.sets {
			t.Errorf("%s: %d rounds, guarded %t; want %+v", cold, f.options.Rounds, f.report.Guarded, want)
		}
	}
}

// TestRoundsLimitTheBilinearForm at which a mixture starts, where twice as many are fewer than its own.
func TestRoundsLimitTheBilinearForm(t *testing.T) {
	own := bilinear.DefaultOptions()
	for rounds, want := range map[int][2]int{1: {2, own.Steps * 2 / own.Rounds}, own.Rounds / 2: {own.Rounds, own.Steps}, 100: {own.Rounds, own.Steps}} {
		o := DefaultOptions()
		if got := o.formOptions(rounds); got.Rounds != want[0] || got.Steps != want[1] || got.Rate != formRate {
			t.Errorf("with %d rounds the form takes %d, or %d steps, at the rate %g; want %v", rounds, got.Rounds, got.Steps, got.Rate, want)
		}
	}
}

// TestWhichTrialIsBetter: the one of the greater value for the traffic to come, and where the operator guards items
// without logs the one that keeps them.
func TestWhichTrialIsBetter(t *testing.T) {
	logged := &fit.PullTrial{LoggedMRR: 0.9, Cold: &fit.Comparison{Value: 0.1}}
	kept := &fit.PullTrial{LoggedMRR: 0.4, Cold: &fit.Comparison{Value: 0.55}, Admissible: true}
	for _, c := range []struct {
		cold    fit.Cold
		traffic float64
		want    *fit.PullTrial
	}{{fit.ColdAuto, 0, logged}, {fit.ColdAuto, 0.99, kept}, {fit.ColdGuard, 0, kept}} {
		f := &fitter{options: Options{Common: fit.Common{Cold: c.cold}}}
		f.report.ColdTraffic = c.traffic
		if f.isBetter(logged, kept) != (c.want == logged) || f.isBetter(kept, logged) != (c.want == kept) || f.isBetter(kept, kept) {
			t.Errorf("%s with %g of the traffic to new items: %+v is not the better one alone", c.cold, c.traffic, c.want)
		}
	}
}

// TestWhoJudgesNewItems: items that a fit has not seen are judged by queries that it has not seen either.
func TestWhoJudgesNewItems(t *testing.T) {
	f, n := fitterOf(t, func(*Options) {})
	set := make([]bool, f.log.Items.Rows)
	for x := range set {
		set[x] = x%4 == 0
	}
	m, err := f.judgeWithout(n, set)
	if err != nil {
		t.Fatal(err)
	}
	unseen := judge.New(f.log, fit.MRR, f.log.UnseenQueries(f.split, set), func(x int32) bool { return set[x] })
	if c := m.Cold; len(c.Scores) == 0 || !slices.Equal(c.Items, unseen.FirstItems) || len(c.Scores) != len(c.Items) || len(c.Baseline) != len(c.Items) {
		t.Errorf("%d marks, %d of the plain inner product, of the items %v; want those of %v", len(c.Scores), len(c.Baseline), c.Items, unseen.FirstItems)
	}
	for _, x := range m.Cold.Items {
		if !set[x] {
			t.Errorf("item %d judges as a new one", x)
		}
	}
}

// TestNewItemsAreNotLearned: a fit that judges a set of items learns from no pair of it, so that nothing is left where
// the set has every item.
func TestNewItemsAreNotLearned(t *testing.T) {
	f, _ := fitterOf(t, func(o *Options) { o.Rounds = 1 })
	var err error
	if f.trials, err = train.OpenTrials(nil, "mol", fit.Data{}, nil); err != nil {
		t.Fatal(err)
	}
	set := make([]bool, f.log.Items.Rows)
	for x := range set {
		set[x] = true
	}
	if _, err := f.fitWithout(t.Context(), 0, 1, 0, set); !errors.Is(err, fit.ErrData) {
		t.Errorf("without any item a fit learns: %v", err)
	}
}

// TestModelsOfRawVectors: the weights of a model that takes raw vectors score them as the fit scored the scaled ones.
func TestModelsOfRawVectors(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"linear": func(*Options) {}, "gated": func(o *Options) { o.QueryHidden = 6 }, "full": func(o *Options) { o.Gates = GatesFull },
	} {
		f, n := fitterOf(t, change)
		const queryScale, itemScale = 4, 8
		plain, raw := f.tensors(n, 1, 1), f.tensors(n, queryScale, itemScale)
		for key, want := range plain {
			scale := 1.0
			got := raw[key]
			switch w := want.Data; {
			case key == distilled.Prefix+"mean_item":
				scale = itemScale
			case w[0] != got.Data[0]:
				scale = float64(got.Data[0]) / float64(w[0])
			}
			if scale != 1 && scale != 1./queryScale && scale != 1./itemScale && scale != itemScale {
				t.Errorf("%s: %s is scaled by %g", name, key, scale)
			}
			for i, v := range want.Data {
				if !(math.Abs(float64(got.Data[i])-scale*float64(v)) <= 1e-6*math.Abs(scale*float64(v))) {
					t.Fatalf("%s: %s[%d] is %g, want %g times %g", name, key, i, got.Data[i], scale, v)
				}
			}
		}
		if first := "_query_embeddings_fn._query_emb_proj_module.1._w"; name == "gated" && (plain[first].Data == nil || raw[first].Data[0] != plain[first].Data[0]/queryScale) {
			t.Errorf("the first layer of a gated query takes raw queries as %g, want %g", raw[first].Data[0], plain[first].Data[0]/queryScale)
		}
	}
}

// TestAnInterruptedFitReportsWhatItKept: the rounds of the parameters that it returns.
func TestAnInterruptedFitReportsWhatItKept(t *testing.T) {
	f, n := fitterOf(t, func(o *Options) { o.UserTables = []int{50} })
	f.report.Logged.Queries = 1 // measured already
	got, err := f.interrupt(n, &train.Snapshot{Round: 5, BestRound: 3}, context.Canceled)
	if got == nil || err == nil || !got.Report.Interrupted || got.Report.Rounds != 3 {
		t.Fatalf("%+v, %v; want three rounds, interrupted", got, err)
	}
	if got, _ := f.interrupt(n, &train.Snapshot{}, context.Canceled); got != nil {
		t.Error("a fit without a round has an outcome")
	}
	f.report.Logged.Queries = 0
	n.options.UserTables = nil // so that the net cannot be measured: it has a table of users
	if _, err := f.interrupt(n, &train.Snapshot{Round: 5, BestRound: 3}, context.Canceled); !errors.Is(err, context.Canceled) || !errors.Is(err, rerank.ErrModel) {
		t.Errorf("%v, want both the interruption and what failed after it", err)
	}
}

// TestServedAsLearned: a net is judged as it would be served, by the vectors of the log as they are, and by the users of
// its queries.
func TestServedAsLearned(t *testing.T) {
	f, n := fitterOf(t, func(o *Options) { o.UserTables = []int{50} })
	n.options.Normalise = true
	v, err := f.newView(n)
	if err != nil {
		t.Fatal(err)
	}
	if v.similarity.Spec().Normalise {
		t.Error("vectors that the log has scaled are normalised again")
	}
	copy(f.log.Queries.Row(1), f.log.Queries.Row(0))
	scores := func(q int32) []float32 {
		e, err := v.encodeQuery(q)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]float32, v.features.Rows)
		if err := e.Score(out, rerank.Items{Features: v.features}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first, other := scores(0), scores(1)
	if slices.Equal(first, other) {
		t.Error("two users are scored as one")
	}
	if f.log.Users[1] = f.log.Users[0]; !slices.Equal(first, scores(1)) {
		t.Error("one user's query is scored in two ways")
	}
}

// TestFieldsThatAreTried: a first stage is measured on the fields that strategies search, and on no other.
func TestFieldsThatAreTried(t *testing.T) {
	f, n := fitterOf(t, func(o *Options) { o.Gates = GatesFull })
	v, err := f.newView(n)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCompanion(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range v.abilities.Derive.Fields() {
		if _, has := c.fields[field.Name]; has != (len(field.Strategies) > 0) {
			t.Errorf("field %q, which %v search, is derived: %t", field.Name, field.Strategies, has)
		}
	}
}

// TestZerosHaveNoDirection: a part of zeros stays so, and its gradient is finite.
func TestZerosHaveNoDirection(t *testing.T) {
	v := rerank.Matrix{Rows: 1, Cols: 4, Data: []float32{0, 0, 3, 4}}
	norms, d := rerank.NewMatrix(1, 2), rerank.Matrix{Rows: 1, Cols: 4, Data: []float32{1, 2, 1, 2}}
	normaliseParts(norms, v, 2, 0.5)
	normaliseBackward(d, v, norms, 2, 0.5)
	if !slices.Equal(norms.Data, []float32{0.5, 5}) || !slices.Equal(v.Data[:2], []float32{0, 0}) || !slices.Equal(d.Data[:2], []float32{2, 4}) {
		t.Errorf("norms %v, parts %v, gradients %v", norms.Data, v.Data, d.Data)
	}
}

// TestStagesOfTheReport: each is measured at each depth, average by gates too where the gates are of the item.
func TestStagesOfTheReport(t *testing.T) {
	for gates, want := range map[Gates]int{GatesQuery: 7, GatesFull: 8} {
		stages := firstStages(gates)
		if len(stages) != want*len(recallDepths()) {
			t.Errorf("%s: %d stages", gates, len(stages))
		}
		for _, s := range stages {
			if byGates := s.plan.Weights == rerank.GateWeights; byGates != (s.name == "average, weighed by gates") || byGates && (!s.plan.Derived || s.plan.Strategy != rerank.Average) {
				t.Errorf("%s: stage %q is %+v", gates, s.name, s.plan)
			}
			if s.plan.Strategy == rerank.Combined && s.plan.AverageDepth != 4*s.plan.Depth {
				t.Errorf("%s: stage %q is %+v", gates, s.name, s.plan)
			}
		}
	}
}

// TestMomentsOfUsers: what a learner goes on with has the running means of the user embeddings too.
func TestMomentsOfUsers(t *testing.T) {
	f, n := fitterOf(t, func(o *Options) { o.UserTables = []int{5, 3} })
	l := f.newLearner(n, f.trainingPairs(nil), 0)
	numbers := 0
	for _, v := range l.moments() {
		numbers += len(v)
	}
	if want := 2 * n.countNumbers(); numbers != want || len(n.users) != 2 {
		t.Errorf("%d running means of %d numbers, want two of each", numbers, n.countNumbers())
	}
}

// TestProgressIsOfTheWholeFit: one stage from the beginning to the end, which counts each step, so that the time that
// it says is left is that of the fit.
func TestProgressIsOfTheWholeFit(t *testing.T) {
	for _, cold := range []fit.Cold{fit.ColdGuard, fit.ColdAuto, fit.ColdIgnore} {
		var stages []string
		var planned, done, calls int
		o := DefaultOptions()
		o.Cold, o.ColdTraffic, o.Rounds, o.GateQueryHidden = cold, 0, 2, 8
		o.Progress = func(stage string, steps int) func(int) {
			stages, planned = append(stages, stage), steps
			return func(n int) { done, calls = done+n, calls+1 }
		}
		if _, err := Fit(t.Context(), fittest.RandomData(600, 100, 8), o); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(stages, []string{"fitting"}) || done < planned-1 || done > planned || calls < 6 {
			t.Errorf("%s: stages %q, %d of %d done in %d calls", cold, stages, done, planned, calls)
		}
	}
}
