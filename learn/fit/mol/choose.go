package mol

import (
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
)

// itemSets is the most sets of held-out items by which the pull is chosen.
const itemSets = 3

// marks holds the ratings of a fit that was trained without some items.
type marks struct {
	LoggedMRR, LoggedNDCG float64 // of held-out queries, for items that the fit did not hold out
	// Cold holds the measure of each query for held-out items, by the fit and by the plain inner product.
	Cold judge.Outcomes
}

// setGuard decides whether items without logs are guarded, and sets the options and
// the part of the report that depend on it. It returns sets of items to hold out, nil
// if nothing is to be measured on held-out items.
func (f *fitter) setGuard() [][]bool {
	o := &f.options
	sets := f.log.DecidingItemSets(f.split, o.ColdShare, itemSets, o.Seed)
	if o.Cold == fit.ColdIgnore {
		sets = nil
	}
	f.report.ColdTraffic = o.ColdTraffic
	if o.ColdTraffic < 0 {
		f.report.ColdTraffic = f.log.ColdTraffic()
	}
	f.report.Guarded = len(sets) > 0 && (o.Cold == fit.ColdGuard || f.report.ColdTraffic >= fit.LeastColdTraffic)
	if f.report.Guarded {
		o.Rounds = (o.Rounds + 1) / 2
	}
	f.report.Pull = o.Pulls[0]
	return sets
}

// chooseStarts chooses the setting of the bilinear forms at which the mixtures start, and takes the temperature of their
// softmax if the options give none. The progress begins when the work of this choice is known. rounds is the number of
// rounds that the options ask for.
func (f *fitter) chooseStarts(ctx context.Context, rounds, sets int) (err error) {
	o := f.options.formOptions(rounds)
	o.Progress = func(_ string, steps int) func(int) {
		planned := fit.WorkUnit * float64(steps)
		f.planWork(planned, sets)
		f.begin(planned)
		return func(n int) { f.task.Add(fit.WorkUnit * float64(n)) }
	}
	if f.starts, err = bilinear.ChooseStarts(ctx, f.log, f.split, f.trials, o); err != nil {
		return err
	}
	if f.options.Temperature == 0 {
		f.options.Temperature = 1 / f.starts.Scale()
	}
	f.report.Temperature = f.options.Temperature
	return nil
}

// choosePull tries the bilinear form, and mixtures that are pulled to it from the strongest pull to weaker ones for as long
// as each is better on held-out items and queries than what was tried before. It takes the best.
func (f *fitter) choosePull(ctx context.Context, sets [][]bool) error {
	best, err := f.tryPull(ctx, 0, 0, sets)
	if err != nil {
		return err
	}
	trials := []*fit.PullTrial{best}
	for _, pull := range slices.Backward(f.options.Pulls) {
		t, err := f.tryPull(ctx, pull, f.options.Rounds, sets)
		if err != nil {
			return err
		}
		trials = append(trials, t)
		if !f.isBetter(t, best) {
			break
		}
		best = t
	}
	best.Chosen = true
	f.report.Pull, f.report.Rounds, f.report.Cold = best.Pull, best.Rounds, best.Cold
	for _, t := range trials {
		f.report.Pulls = append(f.report.Pulls, *t)
	}
	f.report.Guarding = fit.NewGuarding(f.options.Measure, f.report.ColdTraffic, *best, f.report.Pulls)
	f.warnCold()
	return nil
}

// isBetter reports whether a trial is better than another: of a greater value, or, if the options guard items without
// logs, the only one that keeps them.
func (f *fitter) isBetter(t, other *fit.PullTrial) bool {
	if f.options.Cold == fit.ColdGuard && t.Admissible != other.Admissible {
		return t.Admissible
	}
	return f.value(t) > f.value(other)
}

// value rates a trial for the traffic to come. A fit that has to guard items without logs gives these and the
// others equal weight.
func (f *fitter) value(t *fit.PullTrial) float64 {
	if f.options.Cold == fit.ColdGuard {
		return t.Value(f.options.Measure, 0.5)
	}
	return t.Value(f.options.Measure, f.report.ColdTraffic)
}

// warnCold warns if items without logs lose.
func (f *fitter) warnCold() {
	if c := f.report.Cold; c != nil && c.Gain < 0 {
		f.report.Warnings = append(f.report.Warnings, fit.ColdWarning(f.options.Measure, *c, f.options.Cold == fit.ColdGuard))
	}
}

// tryPull fits with a pull once per set of items, without the set. In 0 rounds it tries the bilinear form.
func (f *fitter) tryPull(ctx context.Context, pull float64, rounds int, sets [][]bool) (*fit.PullTrial, error) {
	t := &fit.PullTrial{Pull: pull, Rounds: rounds}
	var cold judge.Outcomes
	for i, set := range sets {
		f.begin(f.plans.trial)
		m, err := f.fitWithout(ctx, pull, rounds, i, set)
		if err != nil {
			return nil, err
		}
		t.LoggedMRR += m.LoggedMRR / float64(len(sets))
		t.LoggedNDCG += m.LoggedNDCG / float64(len(sets))
		cold.Append(m.Cold)
	}
	comparison := judge.Compare(cold)
	t.Cold = &comparison
	t.Admissible = t.Cold.ClearlyBetter()
	return t, nil
}

// compareCold fits without a set of items, for the best number of rounds, and reports how well
// these items are found.
func (f *fitter) compareCold(ctx context.Context, set []bool) error {
	m, err := f.fitWithout(ctx, f.report.Pull, f.report.Rounds, 0, set)
	if err != nil {
		return err
	}
	cold := judge.Compare(m.Cold)
	f.report.Cold = &cold
	f.warnCold()
	return nil
}

// fitWithout fits for some rounds without the held-out queries and without the pairs
// of the i-th set of items, and judges the items of the set and the others apart.
func (f *fitter) fitWithout(ctx context.Context, pull float64, rounds, i int, set []bool) (marks, error) {
	name := fmt.Sprintf("pull %g, %d rounds, without item set %d", pull, rounds, i)
	return train.Try(f.trials, name, func() (marks, error) {
		pairs := f.trainingPairs(set)
		if len(pairs) == 0 {
			return marks{}, fmt.Errorf("%w: no pair is left with %g of the items held out; hold out fewer", fit.ErrData, f.options.ColdShare)
		}
		w, err := f.starts.Fit(ctx, fmt.Sprintf("bilinear form without item set %d", i), pairs)
		if err != nil {
			return marks{}, err
		}
		n := f.newNet(w)
		_, err = f.trials.Train(ctx, f.newLearner(n, pairs, pull), train.Plan{
			Name: name, Rounds: rounds, Note: f.noteRound,
		})
		if err != nil {
			return marks{}, err
		}
		return f.judgeWithout(n, set)
	})
}

// judgeWithout judges a net that has not seen the items of the set.
func (f *fitter) judgeWithout(n *net, set []bool) (marks, error) {
	logged := f.thin(f.newJudge(f.split.HeldOut, func(x int32) bool { return !set[x] }))
	cold := f.thin(f.newJudge(f.log.UnseenQueries(f.split, set), func(x int32) bool { return set[x] }))
	v, err := f.newView(n)
	if err != nil {
		return marks{}, err
	}
	hits, err := v.findHits(logged)
	if err != nil {
		return marks{}, err
	}
	found, err := v.marks(cold)
	if err != nil {
		return marks{}, err
	}
	f.task.Add(logged.Cost() + cold.Cost())
	rated := logged.Rate(hits)
	return marks{
		LoggedMRR: logged.Mean(rated.MRR), LoggedNDCG: logged.Mean(rated.NDCG),
		Cold: cold.Outcomes(found, cold.Marks(judge.InnerProduct)),
	}, nil
}
