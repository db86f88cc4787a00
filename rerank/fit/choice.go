package fit

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
)

// folds is the number of sets of held-out items that decide the pull.
const folds = 5

// scales are tried, where none is given, from the middle outwards.
var scales = []float64{10, 20, 40}

// setting is what is chosen by fits without the held-out queries.
type setting struct{ pull, scale, rate float64 }

func (s setting) String() string {
	return fmt.Sprintf("pull %g, scale %g, rate %g", s.pull, s.scale, s.rate)
}

// trial is a setting and what it did.
type trial struct {
	setting
	trialMarks
	PullTrial
}

// trialMarks are those of each query, one set of held-out items after the other.
type trialMarks struct {
	Reciprocal, Gain []float64 // of held-out queries, on logged items
	Cold             []float64 // reciprocal ranks of held-out items
}

// choice chooses the setting.
type choice struct {
	work   *work
	guard  bool
	sets   [][]bool // held-out items; a nil set holds out none
	logged []*judge // of logged items, by set
	cold   []*judge // of held-out items, by set, where it holds out any
	trials map[setting]*trial
	order  []*trial
	done   func(int)
}

// choose finds the scale under which held-out queries find logged items best,
// then the pull, then, where nothing else holds the fit back, the rate.
//
// Any pull will do, or, where items without logs are guarded, one under which
// held-out items are found better than by the plain inner product by a standard
// error.
func (w *work) choose(ctx context.Context) (setting, error) {
	o := w.options
	c := &choice{work: w, trials: map[setting]*trial{}}
	w.report.Guarded = o.Cold == ColdGuard || o.Cold == ColdAuto && w.problem.counts.LoggedItems+w.problem.counts.ZeroItems < w.problem.counts.Items
	sets := w.problem.byItem(o.ColdShare, folds, o.Seed)
	if o.Cold == ColdIgnore || len(sets) == 0 {
		w.report.Guarded = false
	}
	c.guard = w.report.Guarded
	if c.hold([][]bool{nil}); c.guard {
		c.hold(sets)
	}
	c.done = o.Progress.begin("choosing how the fit is held back", c.about(len(sets)))
	s, err := c.chooseScale(ctx)
	if err != nil {
		return s, err
	}
	best, err := c.choosePull(ctx, s)
	if err != nil {
		return s, err
	}
	if best, err = c.chooseRate(ctx, best); err != nil {
		return s, err
	}
	if !c.guard && o.Cold != ColdIgnore && len(sets) > 0 { // enough for a warning
		if err := c.lookAtCold(ctx, best, sets[:1]); err != nil {
			return s, err
		}
	}
	c.report(best)
	return best.setting, nil
}

// hold makes the sets of the trials that follow.
func (c *choice) hold(sets [][]bool) {
	p := c.work.problem
	c.sets, c.logged, c.cold = sets, nil, nil
	c.trials = map[setting]*trial{}
	for _, set := range sets {
		if set == nil {
			c.logged = append(c.logged, c.work.judge)
			continue
		}
		c.logged = append(c.logged, newJudge(p, c.work.split.held, func(x int32) bool { return !set[x] }))
		c.cold = append(c.cold, newJudge(p, c.fresh(set), func(x int32) bool { return set[x] }))
	}
}

func (c *choice) chooseScale(ctx context.Context) (setting, error) {
	o := c.work.options
	s := setting{scale: o.Scale, rate: o.rate(o.Form)}
	if o.Scale > 0 {
		return s, nil
	}
	// Under a stronger pull another scale is best, and the guard needs one.
	s.pull, s.scale = o.Pulls[min(1, len(o.Pulls)-1)], scales[1]
	if c.guard {
		s.pull = o.Pulls[(len(o.Pulls)-1)/2] // where the search for the pull begins
	}
	best, err := c.try(ctx, s)
	if err != nil {
		return s, err
	}
	for _, scale := range []float64{scales[2], scales[0]} {
		s.scale = scale
		t, err := c.try(ctx, s)
		if err != nil {
			return s, err
		}
		if t.worth() > best.worth() {
			best = t
			break
		}
	}
	return best.setting, nil
}

// worth is what scales are compared by under one pull: where items without logs
// are guarded, what they lose is lost to the pull that must make up for it.
func (t *trial) worth() float64 {
	if t.PullTrial.Cold == nil {
		return t.Logged
	}
	return t.Logged + t.PullTrial.Cold.MRR
}

func (c *choice) choosePull(ctx context.Context, s setting) (*trial, error) {
	pulls := c.work.options.Pulls
	at := func(i int) (*trial, error) {
		s.pull = pulls[i]
		return c.try(ctx, s)
	}
	if c.guard {
		return guarded(len(pulls), at)
	}
	tried, err := unguarded(len(pulls), at)
	if err != nil {
		return nil, err
	}
	return best(tried), nil
}

// guarded finds the weakest pull that is admissible, by bisection, as held-out
// items gain with the pull; from there it goes on until logged items lose.
func guarded(n int, at func(i int) (*trial, error)) (*trial, error) {
	from, to := 0, n-1
	for from < to {
		middle := (from + to) / 2
		t, err := at(middle)
		if err != nil {
			return nil, err
		}
		if t.Admissible {
			to = middle
		} else {
			from = middle + 1
		}
	}
	best, err := at(from)
	if err != nil {
		return nil, err
	}
	for i := from + 1; i < n; i++ {
		t, err := at(i)
		if err != nil {
			return nil, err
		}
		if t.Logged < best.Logged {
			break
		}
		if t.Logged > best.Logged {
			best = t
		}
	}
	return best, nil
}

// unguarded tries every other pull, as quality has more than one peak, then the
// neighbours of the best, and returns what it tried, weak to strong.
func unguarded(n int, at func(i int) (*trial, error)) ([]*trial, error) {
	tried := make([]*trial, n)
	try := func(i int) (err error) {
		if i >= 0 && i < n && tried[i] == nil {
			tried[i], err = at(i)
		}
		return err
	}
	best := 0
	for i := 0; i < n; i += 2 {
		if err := try(i); err != nil {
			return nil, err
		}
		if tried[i].Logged > tried[best].Logged {
			best = i
		}
	}
	if err := try(best - 1); err != nil {
		return nil, err
	}
	if err := try(best + 1); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(tried, func(t *trial) bool { return t == nil }), nil
}

// best is the trial of the best MRR@10, the weaker pull on a tie. nDCG@10 does
// not decide: it keeps rising under pulls so weak that the first hit is lost.
func best(tried []*trial) *trial {
	best := tried[0]
	for _, t := range tried {
		if t.Logged > best.Logged {
			best = t
		}
	}
	return best
}

// chooseRate tries a slower rate too.
func (c *choice) chooseRate(ctx context.Context, chosen *trial) (*trial, error) {
	if c.guard || c.work.options.Rate > 0 {
		return chosen, nil
	}
	s := chosen.setting
	s.rate /= 5
	t, err := c.try(ctx, s)
	if err != nil {
		return nil, err
	}
	return best([]*trial{chosen, t}), nil
}

// lookAtCold fits with a setting once more, without the pairs of a set.
func (c *choice) lookAtCold(ctx context.Context, best *trial, sets [][]bool) error {
	logged := best.PullTrial
	c.hold(sets)
	t, err := c.try(ctx, best.setting)
	if err != nil {
		return err
	}
	c.order = c.order[:len(c.order)-1]
	best.PullTrial, best.PullTrial.Cold = logged, t.PullTrial.Cold
	return nil
}

func (c *choice) report(chosen *trial) {
	chosen.Chosen = true
	r := &c.work.report
	r.Cold = chosen.PullTrial.Cold
	for _, t := range c.order {
		r.Pulls = append(r.Pulls, t.PullTrial)
	}
	if r.Cold != nil && r.Cold.Gain < 0 {
		r.Warnings = append(r.Warnings, coldWarning(*r.Cold, c.guard))
	}
}

// try fits with a setting, without the held-out queries and, one set after the
// other, without the pairs of the held-out items.
func (c *choice) try(ctx context.Context, s setting) (*trial, error) {
	if t := c.trials[s]; t != nil {
		return t, nil
	}
	t := &trial{setting: s, PullTrial: PullTrial{Pull: s.pull, Scale: s.scale, Rate: s.rate, Admissible: true}}
	for i, set := range c.sets {
		m, err := c.marks(ctx, s, i, set)
		if err != nil {
			return nil, err
		}
		t.Reciprocal, t.Gain = append(t.Reciprocal, m.Reciprocal...), append(t.Gain, m.Gain...)
		t.trialMarks.Cold = append(t.trialMarks.Cold, m.Cold...)
		c.done(1)
	}
	t.Logged = c.compare(c.logged, t.Reciprocal, t.Reciprocal).MRR
	t.NDCG = c.compare(c.logged, t.Gain, t.Gain).MRR
	if len(c.cold) > 0 {
		var baseline []float64
		for _, j := range c.cold {
			baseline = append(baseline, j.reciprocal(plain)...)
		}
		cold := c.compare(c.cold, t.trialMarks.Cold, baseline)
		t.PullTrial.Cold = &cold
		t.Admissible = !c.guard || cold.kept()
	}
	c.trials[s] = t
	c.order = append(c.order, t)
	c.work.options.note("%s: held-out MRR@10 %.4f, nDCG@10 %.4f%s", s, t.Logged, t.NDCG, t.coldNote())
	return t, nil
}

// marks are those of one set, from the checkpoint or by a fit.
func (c *choice) marks(ctx context.Context, s setting, i int, set []bool) (trialMarks, error) {
	w := c.work
	key := s.String()
	if set != nil {
		key = fmt.Sprintf("%s, without item set %d of %d", s, i+1, len(c.sets))
	}
	if m, done := w.state.Trials[key]; done {
		return m, nil
	}
	f := newForm(w.options.Form, w.options.Rank, w.problem, w.options.Seed)
	pairs := w.problem.learnable(w.split, set)
	if len(pairs) == 0 {
		return trialMarks{}, fmt.Errorf("%w: no pair is left with %g of the items held out; hold out fewer", ErrData, w.options.ColdShare)
	}
	j := c.logged[i]
	if _, err := w.train(ctx, key, f, pairs, w.options.recipe(s), w.stopper(j, f), func(int) {}); err != nil {
		return trialMarks{}, err
	}
	m := trialMarks{}
	m.Reciprocal, m.Gain = j.marks(f.probe)
	if set != nil {
		m.Cold = c.cold[i].reciprocal(f.probe)
	} else if !w.report.Guarded {
		w.promise(f, j.mean(m.Reciprocal), s)
	}
	w.state.Trials[key] = m
	return m, w.save(nil)
}

// coldNote is what a note has to say of held-out items.
func (t *trial) coldNote() string {
	if t.PullTrial.Cold == nil {
		return ""
	}
	return fmt.Sprintf("; held-out items %.4f, plain %.4f", t.PullTrial.Cold.MRR, t.PullTrial.Cold.Baseline)
}

// about is the number of fits that the choice mostly takes.
func (c *choice) about(sets int) int {
	n := bits.Len(uint(len(c.work.options.Pulls))) // of a search by halves, and the next pull
	if !c.guard {
		n, sets = 2*n-1, 1 // every other pull, the rate, the look at cold items
	}
	if c.work.options.Scale <= 0 {
		n += len(scales) - 1
	}
	return n * sets
}

// compare is over the queries of several judges, one after the other.
func (c *choice) compare(judges []*judge, scores, baseline []float64) Comparison {
	var weights []float64
	var items []int32
	for _, j := range judges {
		weights, items = append(weights, j.weights...), append(items, j.items...)
	}
	return compareWeighted(scores, baseline, weights, items)
}

// fresh are the queries of which a fit without the items of the set has seen no pair.
func (c *choice) fresh(set []bool) []int32 {
	queries := slices.Clone(c.work.split.held)
	for _, q := range c.work.split.train {
		if !slices.ContainsFunc(c.work.problem.relevant[q], func(x int32) bool { return !set[x] }) {
			queries = append(queries, q)
		}
	}
	return queries
}
