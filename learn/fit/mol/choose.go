package mol

import (
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
)

// itemSets is the number of sets of held-out items that decide the pull, at most.
const itemSets = 3

// marks holds the ratings of a fit that was trained without some items.
type marks struct {
	LoggedMRR float64 // of held-out queries, for items that the fit has seen
	// Scores and Baseline are reciprocal ranks of held-out items, by the fit and by the
	// plain inner product. Items names the item of each.
	Scores, Baseline []float64
	Items            []int32
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
	switch {
	case o.Temperature > 0:
	case f.report.Guarded:
		o.Temperature = 0.025
	default:
		o.Temperature = 0.05
	}
	f.report.Temperature, f.report.Pull = o.Temperature, o.Pulls[0]
	return sets
}

// choosePull finds the weakest pull with which held-out items are found clearly better than
// by the plain inner product, or the strongest pull if no pull achieves that. If the options
// do not ask for that, it takes the pull, of those that it tried, that is best for the
// traffic to come.
func (f *fitter) choosePull(ctx context.Context, sets [][]bool) error {
	pulls := f.options.Pulls
	tried := make([]*fit.PullTrial, len(pulls))
	chosen, err := train.FindWeakest(len(pulls), func(i int) (_ bool, err error) {
		if tried[i] == nil {
			tried[i], err = f.tryPull(ctx, pulls[i], sets)
		}
		return err == nil && tried[i].Admissible, err
	})
	if err != nil {
		return err
	}
	chosen = f.weigh(tried, chosen)
	tried[chosen].Chosen = true
	f.report.Pull, f.report.Cold = tried[chosen].Pull, tried[chosen].Cold
	for _, t := range tried {
		if t != nil {
			f.report.Pulls = append(f.report.Pulls, *t)
		}
	}
	f.report.Guarding = fit.NewGuarding(f.report.ColdTraffic, *tried[chosen], f.report.Pulls)
	f.warnCold()
	return nil
}

// weigh returns the trial that is best for the traffic to come, or the chosen one if the options guard items without
// logs. Pulls that were not tried are nil.
func (f *fitter) weigh(tried []*fit.PullTrial, chosen int) int {
	for i, t := range tried {
		if f.options.Cold == fit.ColdAuto && t != nil && t.Value(f.report.ColdTraffic) > tried[chosen].Value(f.report.ColdTraffic) {
			chosen = i
		}
	}
	return chosen
}

// warnCold warns if items without logs lose.
func (f *fitter) warnCold() {
	if c := f.report.Cold; c != nil && c.Gain < 0 {
		f.report.Warnings = append(f.report.Warnings, fit.ColdWarning(*c, f.options.Cold == fit.ColdGuard))
	}
}

// tryPull fits with a pull once per set of items, without the set.
func (f *fitter) tryPull(ctx context.Context, pull float64, sets [][]bool) (*fit.PullTrial, error) {
	t := &fit.PullTrial{Pull: pull}
	var all marks
	for i, set := range sets {
		f.begin(f.plans.trial)
		m, err := f.fitWithout(ctx, pull, f.options.Rounds, i, set)
		if err != nil {
			return nil, err
		}
		t.LoggedMRR += m.LoggedMRR / float64(len(sets))
		all.Scores, all.Baseline, all.Items = slices.Concat(all.Scores, m.Scores), slices.Concat(all.Baseline, m.Baseline), slices.Concat(all.Items, m.Items)
	}
	t.Cold = all.compareCold()
	t.Admissible = t.Cold.ClearlyBetter()
	return t, nil
}

// compareCold compares the fit with the plain inner product on held-out items.
func (m marks) compareCold() *fit.Comparison {
	c := judge.Compare(judge.Outcomes{Scores: m.Scores, Baseline: m.Baseline, Items: m.Items})
	return &c
}

// compareCold fits without a set of items, for the best number of rounds, and reports how well
// these items are found.
func (f *fitter) compareCold(ctx context.Context, set []bool) error {
	m, err := f.fitWithout(ctx, f.report.Pull, max(1, f.report.Rounds), 0, set)
	if err != nil {
		return err
	}
	f.report.Cold = m.compareCold()
	f.warnCold()
	return nil
}

// fitWithout fits for some rounds without the held-out queries and without the pairs
// of the i-th set of items, and judges the items of the set and the others apart.
func (f *fitter) fitWithout(ctx context.Context, pull float64, rounds, i int, set []bool) (marks, error) {
	name := fmt.Sprintf("pull %g, without item set %d", pull, i)
	return train.Try(f.trials, name, func() (marks, error) {
		pairs := f.trainingPairs(set)
		if len(pairs) == 0 {
			return marks{}, fmt.Errorf("%w: no pair is left with %g of the items held out; hold out fewer", fit.ErrData, f.options.ColdShare)
		}
		n := f.newNet()
		_, err := f.trials.Train(ctx, f.newLearner(n, pairs, pull), train.Plan{
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
	logged := f.thin(judge.New(f.log, f.split.HeldOut, func(x int32) bool { return !set[x] }))
	cold := f.thin(judge.New(f.log, f.log.UnseenQueries(f.split, set), func(x int32) bool { return set[x] }))
	ranks, err := f.reciprocalRanks(logged, n)
	if err != nil {
		return marks{}, err
	}
	m := marks{LoggedMRR: judge.Mean(ranks, nil), Baseline: cold.ReciprocalRanks(judge.InnerProduct), Items: cold.FirstItems}
	m.Scores, err = f.reciprocalRanks(cold, n)
	f.task.Add(logged.Cost() + cold.Cost())
	return m, err
}
