package fit

import (
	"context"
	"fmt"
	"slices"
)

// folds is the number of sets of held-out items that decide the pull.
const folds = 5

// pulls chooses the pull to the identity.
type pulls struct {
	work   *work
	guard  bool
	sets   [][]bool // held-out items, one set after the other; a nil set holds out none
	trials []*PullTrial
	done   func(int)
}

// choosePull returns the pull under which held-out queries find logged items
// best: any pull, or, where items without logs are guarded, one under which
// held-out items are found at least as well as by the plain inner product, with a
// margin of half a standard error.
func (w *work) choosePull(ctx context.Context) (float64, error) {
	o := w.options
	c := &pulls{work: w, trials: make([]*PullTrial, len(o.Pulls))}
	c.guard = o.Cold == ColdGuard || o.Cold == ColdAuto && w.problem.counts.LoggedItems < w.problem.counts.Items
	c.sets = w.problem.byItem(o.ColdShare, folds, o.Seed)
	switch {
	case o.Cold == ColdIgnore || len(c.sets) == 0:
		c.sets, c.guard = [][]bool{nil}, false
	case !c.guard:
		c.sets = c.sets[:1] // enough for a warning
	}
	w.report.Guarded = c.guard
	c.done = o.Progress.begin("choosing the pull to the identity", len(o.Pulls)*len(c.sets))
	chosen, err := c.search(ctx)
	if err != nil {
		return 0, err
	}
	c.report(chosen)
	return chosen.Pull, nil
}

// search finds the weakest pull that is admissible, by bisection, as held-out
// items gain with the pull; from there it goes on until logged items lose.
func (c *pulls) search(ctx context.Context) (*PullTrial, error) {
	last := len(c.trials) - 1
	from, to := 0, 0
	if c.guard {
		to = last
	}
	for from < to {
		middle := (from + to) / 2
		t, err := c.try(ctx, middle)
		if err != nil {
			return nil, err
		}
		if t.Admissible {
			to = middle
		} else {
			from = middle + 1
		}
	}
	best, err := c.try(ctx, from)
	if err != nil {
		return nil, err
	}
	for i := from + 1; i <= last; i++ {
		t, err := c.try(ctx, i)
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

func (c *pulls) report(chosen *PullTrial) {
	chosen.Chosen = true
	r := &c.work.report
	r.Cold = chosen.Cold
	for _, t := range c.trials {
		if t != nil {
			r.Pulls = append(r.Pulls, *t)
		}
	}
	if chosen.Cold != nil && chosen.Cold.Gain < 0 {
		r.Warnings = append(r.Warnings, coldWarning(*chosen.Cold, c.guard))
	}
}

// try fits with a pull, without the held-out queries and, one set after the
// other, without the pairs of the held-out items.
func (c *pulls) try(ctx context.Context, i int) (*PullTrial, error) {
	if c.trials[i] != nil {
		return c.trials[i], nil
	}
	t := &PullTrial{Pull: c.work.options.Pulls[i], Admissible: true}
	var scores, baseline []float64
	var items []int32
	for _, set := range c.sets {
		f, logged, err := c.fit(ctx, t.Pull, set)
		if err != nil {
			return nil, err
		}
		t.Logged += logged / float64(len(c.sets))
		c.done(1)
		if set != nil {
			cold := newJudge(c.work.problem, c.fresh(set), func(x int32) bool { return set[x] })
			scores = append(scores, cold.reciprocal(f.probe)...)
			baseline = append(baseline, cold.reciprocal(plain)...)
			items = append(items, cold.items...)
		}
	}
	if len(scores) > 0 {
		cold := compare(scores, baseline, items)
		t.Cold = &cold
		t.Admissible = !c.guard || cold.kept()
	}
	c.trials[i] = t
	return t, nil
}

// fit returns a form fitted without a set, and the quality of logged items.
func (c *pulls) fit(ctx context.Context, pull float64, set []bool) (form, float64, error) {
	w := c.work
	f := newForm(w.options.Form, w.options.Rank, w.problem, w.options.Seed)
	judge := w.judge
	if set != nil {
		judge = newJudge(w.problem, w.split.held, func(x int32) bool { return !set[x] })
	}
	pairs := w.problem.pairs(w.split.train, set)
	if len(pairs) == 0 {
		return nil, 0, fmt.Errorf("%w: no pair is left with %g of the items held out; hold out fewer", ErrData, w.options.ColdShare)
	}
	_, err := train(ctx, w.problem, f, pairs, w.options.recipe(w.options.Form, pull, w.report.Guarded), w.stopper(judge, f), func(int) {})
	return f, mean(judge.reciprocal(f.probe)), err
}

// fresh are the queries of which a fit without the items of the set has seen no pair.
func (c *pulls) fresh(set []bool) []int32 {
	queries := slices.Clone(c.work.split.held)
	for _, q := range c.work.split.train {
		if !slices.ContainsFunc(c.work.problem.relevant[q], func(x int32) bool { return !set[x] }) {
			queries = append(queries, q)
		}
	}
	return queries
}
