package bilinear

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
)

// itemSets is the most sets of held-out items by which the pull is chosen.
const itemSets = 5

// scales returns the scales to try if the options give none: the middle one first.
func scales() (middle float64, others []float64) { return 20, []float64{40, 10} }

// trial is a setting, and the quality of the fits with it.
type trial struct {
	setting
	fit.PullTrial
	marks []float64 // the measure of each held-out query, for items that no trial held out
}

// String describes the trial in one line.
func (t *trial) String() string {
	text := fmt.Sprintf("%s: held-out MRR@10 %.4f, nDCG@10 %.4f", t.setting, t.LoggedMRR, t.LoggedNDCG)
	if t.Cold != nil {
		text += fmt.Sprintf("; held-out items %.4f, plain %.4f", t.Cold.Value, t.Cold.Baseline)
	}
	return text
}

// marks rates the fits of one setting; each slice has one number for each query of the judges.
type marks struct {
	Logged judge.Ratings // of held-out queries, for items that the fit did not hold out
	Cold   []float64     // the measure, for held-out items
	Rounds int           // that the fit took
}

// holdout is a set of items whose pairs are withheld from a fit, and the judges of
// that fit.
type holdout struct {
	items  []bool       // nil: no item is held out
	logged *judge.Judge // judges held-out queries by the items that are not held out
	cold   *judge.Judge // judges the items of the set; nil without such items
	plain  judge.Probe  // ranks by the plain inner product, the baseline of cold
}

// chooser chooses a setting by trials. Each trial fits once per holdout.
type chooser struct {
	*fitter
	holdouts []holdout
	trials   map[setting]*trial // with these holdouts
	tried    []*trial           // in the order in which they were tried
	whole    bool               // trials are whole fits
	sets     [][]bool           // the sets of items to hold out, as a mark for each item; nil if items without logs are not judged
}

// chooseSetting finds the scale under which held-out queries find logged items best,
// then the pull, then, where nothing else holds the fit back, the rate. Unless triesWhole, short trials choose
// the scale and two pulls, between which whole fits decide.
//
// Where items without logs matter, trials are judged on held-out items too, weighed by
// their share of the traffic to come. If the options ask to guard them, the pull also has
// to be admissible: held-out items are found better than by the plain inner product, by a
// standard error.
func (f *fitter) chooseSetting(ctx context.Context) (*chooser, *trial, error) {
	o := f.options
	c := &chooser{fitter: f}
	if o.Cold != fit.ColdIgnore {
		c.sets = f.log.DecidingItemSets(f.split, o.ColdShare, f.itemSets(), o.Seed)
	}
	f.report.ColdTraffic = o.ColdTraffic
	if o.ColdTraffic < 0 {
		f.report.ColdTraffic = f.log.ColdTraffic()
	}
	f.report.Guarded = len(c.sets) > 0 && (o.Cold == fit.ColdGuard || f.report.ColdTraffic >= fit.LeastColdTraffic)
	c.whole = f.triesWhole()
	var withheld [][]bool
	if f.report.Guarded {
		withheld = c.sets
	}
	if err := c.holdOut(withheld); err != nil {
		return nil, nil, err
	}
	if err := f.measureSpeeds(); err != nil {
		return nil, nil, err
	}
	f.planWork(c.estimateFits(len(c.sets)))
	s, err := c.chooseScale(ctx)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := c.choosePull(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	chosen, err = c.chooseRate(ctx, chosen)
	return c, chosen, err
}

// mustGuard reports whether the fit has to keep items without logs, whatever their traffic.
func (f *fitter) mustGuard() bool { return f.report.Guarded && f.options.Cold == fit.ColdGuard }

// triesWhole reports whether all trials are whole fits: where items without logs are guarded, because they lose more the
// longer a fit is, and in a short log, where a short trial says little of a whole fit, and whole fits cost little.
func (f *fitter) triesWhole() bool {
	return !f.large && (f.mustGuard() || f.pairs < wholePairs)
}

// holdOut makes the later trials withhold these sets of items, one set per fit. Without sets they
// withhold nothing.
func (c *chooser) holdOut(sets [][]bool) error {
	c.holdouts, c.trials = nil, map[setting]*trial{}
	if len(sets) == 0 {
		c.holdouts = []holdout{{logged: c.judge}}
	}
	for _, set := range sets {
		plain, err := c.plainWithout(set)
		if err != nil {
			return err
		}
		c.holdouts = append(c.holdouts, holdout{
			items: set, plain: plain,
			logged: c.thin(c.newJudge(c.split.HeldOut, func(x int32) bool { return !set[x] })),
			cold:   c.thin(c.newJudge(c.log.UnseenQueries(c.split, set), func(x int32) bool { return set[x] })),
		})
	}
	return nil
}

// chooseScale returns a setting with the best scale, under a pull of medium strength. In short trials the middle scale stands
// unless another gains two standard errors, because they say little about scales that are about as good.
func (c *chooser) chooseScale(ctx context.Context) (setting, error) {
	o := c.options
	s := setting{scale: o.Scale, rate: o.rateFor(o.Form)}
	if o.Scale > 0 {
		return s, nil
	}
	// The best scale depends on the pull, and a guarded fit needs a stronger one.
	middle, others := scales()
	s.pull, s.scale = o.Pulls[min(1, len(o.Pulls)-1)], middle
	if c.report.Guarded {
		s.pull = o.Pulls[(len(o.Pulls)-1)/2] // where the search for the pull will start
	}
	best, err := c.try(ctx, s)
	if err != nil {
		return s, err
	}
	for _, s.scale = range others {
		t, err := c.try(ctx, s)
		if err != nil {
			return s, err
		}
		least := 0.0
		if !c.whole {
			least = 2 * c.compareLogged(t, best).StandardError
		}
		if c.value(t)-c.value(best) > least {
			best = t
		}
	}
	return best.setting, nil
}

// choosePull returns the trial with the best pull.
func (c *chooser) choosePull(ctx context.Context, s setting) (*trial, error) {
	pulls := c.options.Pulls
	try := func(i int) (*trial, error) {
		s.pull = pulls[i]
		return c.try(ctx, s)
	}
	if c.mustGuard() {
		return searchGuarded(len(pulls), try, func(t *trial) float64 { return t.Logged(c.options.Measure) })
	}
	if len(pulls) == 1 {
		s.pull = pulls[0]
		return c.tryWhole(ctx, s)
	}
	tried, err := searchUnguarded(len(pulls), try, c.value, !c.large)
	if err != nil {
		return nil, err
	}
	best := bestTrial(tried, c.value)
	return c.tryWhole(ctx, c.weakestAsGood(tried, best).setting, best.setting)
}

// tryWhole makes whole fits with the settings, and returns the best.
func (c *chooser) tryWhole(ctx context.Context, settings ...setting) (*trial, error) {
	if !c.whole {
		c.whole, c.trials = true, map[setting]*trial{}
	}
	var whole []*trial
	for _, s := range settings {
		t, err := c.try(ctx, s)
		if err != nil {
			return nil, err
		}
		whole = append(whole, t)
	}
	return bestTrial(whole, c.value), nil
}

// weakestAsGood returns the first trial, from weak to strong, that is at most two standard
// errors behind the best. A short trial favours a strong pull, which can hold back a longer fit.
func (c *chooser) weakestAsGood(tried []*trial, best *trial) *trial {
	for _, t := range tried {
		if lost := c.compareLogged(best, t); max(lost.Gain, c.value(best)-c.value(t)) <= 2*lost.StandardError {
			return t
		}
	}
	return best
}

// compareLogged compares two trials on the held-out queries, for items that the fits have seen.
func (c *chooser) compareLogged(a, b *trial) fit.Comparison {
	o := judge.Outcomes{Scores: a.marks, Baseline: b.marks}
	for _, h := range c.holdouts {
		o.Weights, o.Items = append(o.Weights, h.logged.Weights...), append(o.Items, h.logged.FirstItems...)
	}
	return judge.Compare(o)
}

// value rates a trial for the traffic to come. A fit that has to guard items without logs
// weighs both sides alike, because what the one loses a stronger pull takes from the other.
func (c *chooser) value(t *trial) float64 {
	if c.options.Cold == fit.ColdGuard {
		return t.Value(c.options.Measure, 0.5)
	}
	return t.Value(c.options.Measure, c.report.ColdTraffic)
}

// searchGuarded finds the weakest of n pulls that is admissible, because held-out items gain with
// the pull, and goes on to stronger pulls until logged items lose by the given measure. try must
// return the same trial for the same pull.
func searchGuarded(n int, try func(i int) (*trial, error), logged func(*trial) float64) (*trial, error) {
	weakest, err := train.FindWeakest(n, func(i int) (bool, error) {
		t, err := try(i)
		return err == nil && t.Admissible, err
	})
	if err != nil {
		return nil, err
	}
	best, err := try(weakest)
	if err != nil {
		return nil, err
	}
	for i := weakest + 1; i < n; i++ {
		t, err := try(i)
		if err != nil {
			return nil, err
		}
		if logged(t) < logged(best) {
			break
		}
		if logged(t) > logged(best) {
			best = t
		}
	}
	return best, nil
}

// searchUnguarded tries every second of n pulls, because quality can have several peaks, and then
// the neighbours of the best, if neighbours is set. It returns the trials from weak to strong.
func searchUnguarded(n int, try func(i int) (*trial, error), value func(*trial) float64, neighbours bool) ([]*trial, error) {
	tried := make([]*trial, n)
	tryOnce := func(i int) (err error) {
		if i >= 0 && i < n && tried[i] == nil {
			tried[i], err = try(i)
		}
		return err
	}
	best := 0
	for i := 0; i < n; i += 2 {
		if err := tryOnce(i); err != nil {
			return nil, err
		}
		if value(tried[i]) > value(tried[best]) {
			best = i
		}
	}
	if neighbours {
		if err := tryOnce(best - 1); err != nil {
			return nil, err
		}
		if err := tryOnce(best + 1); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(tried, func(t *trial) bool { return t == nil }), nil
}

// bestTrial returns the trial of the best value, and the first of equal ones.
func bestTrial(tried []*trial, value func(*trial) float64) *trial {
	best := tried[0]
	for _, t := range tried {
		if value(t) > value(best) {
			best = t
		}
	}
	return best
}

// chooseRate also tries a slower rate, unless the options give a rate, items without logs are
// guarded, or a fit to a large log gained until its last round.
func (c *chooser) chooseRate(ctx context.Context, chosen *trial) (*trial, error) {
	if c.report.Guarded || c.options.Rate > 0 || c.large && chosen.Rounds == c.rounds {
		return chosen, nil
	}
	s := chosen.setting
	s.rate /= 5
	slower, err := c.try(ctx, s)
	if err != nil {
		return nil, err
	}
	return bestTrial([]*trial{chosen, slower}, c.value), nil
}

// compareCold fits with the chosen setting once more, without a set of items, and reports how well
// these items are found. If new items are guarded, the trials have measured that.
func (c *chooser) compareCold(ctx context.Context, chosen *trial) error {
	if c.report.Guarded || len(c.sets) == 0 {
		return nil
	}
	if err := c.holdOut(c.sets[:1]); err != nil {
		return err
	}
	c.whole = !c.large
	t, err := c.try(ctx, chosen.setting)
	if err != nil {
		return err
	}
	c.tried = c.tried[:len(c.tried)-1]
	chosen.Cold = t.Cold
	return nil
}

// reportTrials puts the trials into the report, and warns if items without logs lose.
func (c *chooser) reportTrials(chosen *trial) {
	chosen.Chosen = true
	r := &c.report
	r.Cold = chosen.Cold
	last := map[setting]*trial{} // a whole fit comes after the short trial of its setting
	for _, t := range c.tried {
		last[t.setting] = t
	}
	for _, t := range c.tried {
		if last[t.setting] == t {
			r.Pulls = append(r.Pulls, t.PullTrial)
		}
	}
	if r.Guarded {
		r.Guarding = fit.NewGuarding(c.options.Measure, r.ColdTraffic, chosen.PullTrial, r.Pulls)
	}
	if r.Cold != nil && r.Cold.Gain < 0 {
		r.Warnings = append(r.Warnings, fit.ColdWarning(c.options.Measure, *r.Cold, c.options.Cold == fit.ColdGuard))
	}
}

// try fits with a setting, without the held-out queries, once per holdout.
func (c *chooser) try(ctx context.Context, s setting) (*trial, error) {
	if t := c.trials[s]; t != nil {
		return t, nil
	}
	var all []marks
	for i, h := range c.holdouts {
		planned := c.plans.trial
		if c.whole && !c.triesWhole() {
			planned = c.plans.judged
		}
		c.begin(planned)
		m, err := c.fitWithout(ctx, s, i, h)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	t := c.rate(s, all)
	c.trials[s] = t
	c.tried = append(c.tried, t)
	c.options.Notef("%s", t)
	return t, nil
}

// rate makes a trial from the marks of its fits, one for each holdout.
func (c *chooser) rate(s setting, all []marks) *trial {
	t := &trial{setting: s, PullTrial: fit.PullTrial{Pull: s.pull, Scale: s.scale, Rate: s.rate, Admissible: true}}
	var logged judge.Ratings
	var weights []float64
	var cold judge.Outcomes
	for i, h := range c.holdouts {
		t.Rounds = max(t.Rounds, all[i].Rounds)
		logged.Append(all[i].Logged)
		weights = append(weights, h.logged.Weights...)
		if h.cold == nil {
			continue
		}
		cold.Append(h.cold.Outcomes(all[i].Cold, h.cold.Marks(h.plain)))
	}
	t.LoggedMRR, t.LoggedNDCG = judge.Mean(logged.MRR, weights), judge.Mean(logged.NDCG, weights)
	t.marks = logged.By(c.options.Measure)
	if c.holdouts[0].cold != nil {
		comparison := judge.Compare(cold)
		t.Cold = &comparison
		t.Admissible = !c.report.Guarded || c.options.Cold != fit.ColdGuard || comparison.ClearlyBetter()
	}
	return t
}

// fitWithout fits with a setting, without the items of the i-th holdout, and returns the marks that
// its judges give.
func (c *chooser) fitWithout(ctx context.Context, s setting, i int, h holdout) (marks, error) {
	name := s.String()
	if h.items != nil {
		name = fmt.Sprintf("%s, without item set %d of %d", s, i+1, len(c.holdouts))
	}
	if !c.whole {
		name += ", in short"
	}
	return train.Try(c.fitter.trials, name, func() (marks, error) {
		pairs := c.log.TrainingPairs(c.split, h.items)
		if len(pairs) == 0 {
			return marks{}, errNoPairs(c.options.ColdShare)
		}
		form, err := c.newForm(c.options.Form, pairs)
		if err != nil {
			return marks{}, err
		}
		var trained *train.Snapshot
		if c.whole {
			l := c.newLearner(form, pairs, s)
			trained, err = c.fitter.trials.Train(ctx, l, c.plan(name, l, h.logged))
		} else {
			l := c.watch(newLearner(c.log, form, pairs, s, c.short, c.options))
			trained, err = c.fitter.trials.Train(ctx, l, train.Plan{Name: name, Rounds: c.short, Note: c.noteRound})
		}
		if err != nil {
			return marks{}, err
		}
		m := marks{Rounds: trained.TakenRounds, Logged: h.logged.Rate(h.logged.FindHits(form.probe))}
		c.task.Add(c.costOf(h.logged))
		if h.cold != nil {
			m.Cold = h.cold.Marks(form.probe)
		} else if !c.report.Guarded {
			c.keepIfBest(form, h.logged.Mean(m.Logged.By(c.options.Measure)), s, m.Rounds)
		}
		return m, nil
	})
}

// keepIfBest keeps the form of a trial if it is the best so far and better than the plain similarity: the fit may need
// it again, or be interrupted. A whole fit takes the place of a short trial.
func (c *chooser) keepIfBest(form form, value float64, s setting, rounds int) {
	least := c.judge.Mean(c.judge.Marks(c.plain))
	if c.best != nil && c.best.whole == c.whole {
		least = c.best.value
	}
	if value > least {
		c.best = &bestForm{form: form, judged: form, value: value, setting: s, rounds: rounds, whole: c.whole}
	}
}

// estimateFits returns the number of fits that choosing usually takes with the given
// number of item sets.
func (c *chooser) estimateFits(sets int) int {
	_, others := scales()
	n := bits.Len(uint(len(c.options.Pulls))) // a search by halves, and the next pull
	if !c.report.Guarded {
		n, sets = 2*n-1, 1 // every other pull, the rate, the look at cold items
	}
	if c.options.Scale <= 0 {
		n += len(others)
	}
	return n * sets
}
