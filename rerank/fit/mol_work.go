package fit

import (
	"context"
	"fmt"
	"slices"
)

// molWork is one run of MoL.
type molWork struct {
	problem *problem
	options MoLOptions
	split   split
	keeper  *keeper
	state   molState
	judge   *judge // of the held-out queries
	report  MoLReport
	// itemScale and queryScale are what all vectors of a side were divided by.
	itemScale, queryScale float32
}

// molState is what is known of a fit before its end.
type molState struct {
	Folds  map[string]molFold // by pull and fold
	Judged *molRun            // the finished fit without the held-out queries
	Run    *molRun            // the one under way
}

// molFold is a fit without the pairs of some items.
type molFold struct {
	Logged           float64
	Scores, Baseline []float64
	Items            []int32
}

// save keeps the state of the fit, with that of a run under way.
func (w *molWork) save(run *molRun, atOnce bool) error {
	return w.keeper.save(func() any {
		s := w.state
		s.Run = run
		return s
	}, atOnce)
}

func (w *molWork) run(ctx context.Context) (*FittedMoL, error) {
	o := w.options
	w.judge = newJudge(w.problem, w.split.held, nil)
	w.report = MoLReport{
		Gates: o.Gates, PairsQuery: o.PairsQuery, PairsItem: o.PairsItem, Dim: o.dim(w.problem.items.Cols),
		L2Norm: o.L2Norm, Seed: o.Seed, Normalise: o.Normalise, Counts: w.problem.counts,
	}
	sets := w.guard()
	cold, err := w.choosePull(ctx, sets)
	if err != nil {
		return nil, err
	}
	judged, err := w.fitJudged(ctx)
	if err != nil {
		return w.interrupted(judged, err)
	}
	if err := w.measure(judged.net); err != nil {
		return nil, err
	}
	if cold != nil {
		if err := w.lookAtCold(ctx, cold); err != nil {
			return w.interrupted(judged, err)
		}
	}
	final, err := w.refit(ctx)
	if err != nil {
		return w.interrupted(judged, err)
	}
	return w.finish(final), nil
}

// interrupted is the fit that the held-out queries judged, if there is one, with
// the error that ended the work.
func (w *molWork) interrupted(t *molTrainer, err error) (*FittedMoL, error) {
	if t == nil || t.state.Round == 0 || !isContext(err) {
		return nil, err
	}
	w.report.Interrupted = true
	w.report.History = t.state.History
	w.report.Rounds = t.state.At
	if w.report.Logged.Queries == 0 {
		if measured := w.measure(t.net); measured != nil {
			return nil, measured
		}
	}
	return w.finish(t.net), err
}

// fitJudged fits the pairs of the training queries. Held-out queries choose the
// number of rounds, but not where items without logs are guarded: the rounds best
// for logged items are not those best for others.
func (w *molWork) fitJudged(ctx context.Context) (*molTrainer, error) {
	r := molRecipe{
		key: "judged fit", pull: w.report.Pull, pairs: w.problem.pairs(w.split.train, nil),
		done: w.options.Progress.begin("fitting without the held-out queries", w.options.Rounds),
	}
	if w.report.Guarded {
		r.rounds = w.options.Rounds
	}
	quick := w.thinned(w.judge)
	r.judged = func(n *molNet) (float64, error) {
		scores, err := w.reciprocal(quick, n)
		return mean(scores), err
	}
	later := w.state.Run
	if w.state.Judged != nil {
		w.state.Run = w.state.Judged
	}
	t, err := w.train(ctx, r)
	if err != nil {
		return t, err
	}
	w.state.Run = later
	w.report.History, w.report.Rounds = t.state.History, t.state.At
	if w.report.Guarded {
		w.report.Rounds = t.state.Round
	}
	if w.state.Judged == nil {
		w.state.Judged = t.snapshot()
		err = w.save(nil, true)
	}
	return t, err
}

// refit fits all pairs for as many rounds.
func (w *molWork) refit(ctx context.Context) (*molNet, error) {
	if w.report.Rounds == 0 {
		return newMoLNet(w.options, w.problem, w.report.Guarded), nil
	}
	t, err := w.train(ctx, molRecipe{
		key: "final fit", pull: w.report.Pull, rounds: w.report.Rounds, pairs: w.problem.pairs(w.split.all(), nil),
		done: w.options.Progress.begin("fitting all pairs", w.report.Rounds),
	})
	if err != nil {
		return nil, err
	}
	return t.net, nil
}

func (w *molWork) finish(n *molNet) *FittedMoL {
	w.report.Parameters = 0
	for _, v := range n.arrays() {
		w.report.Parameters += len(v)
	}
	w.report.recommend()
	return &FittedMoL{Config: n.config(), Tensors: w.tensors(n, w.queryScale, w.itemScale), Report: w.report}
}

// molFolds is the number of sets of held-out items that decide the pull.
const molFolds = 3

// guard decides whether items without logs are guarded, and what depends on it.
// It returns sets of items to hold out; nil: none are to be looked at.
func (w *molWork) guard() [][]bool {
	o := &w.options
	sets := w.problem.byItem(o.ColdShare, molFolds, o.Seed)
	if o.Cold == ColdIgnore {
		sets = nil
	}
	w.report.Guarded = len(sets) > 0 && (o.Cold == ColdGuard || w.problem.counts.LoggedItems < w.problem.counts.Items)
	if w.report.Guarded {
		o.Rounds = (o.Rounds + 1) / 2
	}
	switch {
	case o.Temperature > 0:
	case w.report.Guarded:
		o.Temperature = 0.025
	default:
		o.Temperature = 0.05
	}
	w.report.Temperature = o.Temperature
	return sets
}

// choosePull sets the pull: the weakest under which held-out items are found at
// least as well as by the plain inner product, where items without logs are
// guarded, else the first. It returns the items to look at later, if nothing was
// chosen on them.
func (w *molWork) choosePull(ctx context.Context, sets [][]bool) (later []bool, err error) {
	o := w.options
	w.report.Pull = o.Pulls[0]
	switch {
	case len(sets) == 0:
		return nil, nil
	case !w.report.Guarded:
		return sets[0], nil
	}
	done := o.Progress.begin("choosing the pull on held-out items", len(o.Pulls)*len(sets))
	trials := make([]*PullTrial, len(o.Pulls))
	from, to := 0, len(o.Pulls)-1
	for from < to { // held-out items gain with the pull
		middle := (from + to) / 2
		if trials[middle], err = w.tryPull(ctx, o.Pulls[middle], sets, done); err != nil {
			return nil, err
		}
		if trials[middle].Admissible {
			to = middle
		} else {
			from = middle + 1
		}
	}
	if trials[from] == nil {
		if trials[from], err = w.tryPull(ctx, o.Pulls[from], sets, done); err != nil {
			return nil, err
		}
	}
	chosen := trials[from]
	chosen.Chosen = true
	w.report.Pull, w.report.Cold = chosen.Pull, chosen.Cold
	for _, t := range trials {
		if t != nil {
			w.report.Pulls = append(w.report.Pulls, *t)
		}
	}
	w.warnCold()
	return nil, nil
}

func (w *molWork) warnCold() {
	if c := w.report.Cold; c != nil && c.Gain < 0 {
		w.report.Warnings = append(w.report.Warnings, coldWarning(*c, w.report.Guarded))
	}
}

// tryPull fits without the pairs of each set of items.
func (w *molWork) tryPull(ctx context.Context, pull float64, sets [][]bool, done func(int)) (*PullTrial, error) {
	t := &PullTrial{Pull: pull}
	var scores, baseline []float64
	var items []int32
	for i, set := range sets {
		f, err := w.fold(ctx, pull, i, set)
		if err != nil {
			return nil, err
		}
		done(1)
		t.Logged += f.Logged / float64(len(sets))
		scores, baseline, items = slices.Concat(scores, f.Scores), slices.Concat(baseline, f.Baseline), slices.Concat(items, f.Items)
	}
	cold := compare(scores, baseline, items)
	t.Cold, t.Admissible = &cold, cold.kept()
	return t, nil
}

// lookAtCold fits without the pairs of some items, to warn.
func (w *molWork) lookAtCold(ctx context.Context, set []bool) error {
	f, err := w.fold(ctx, w.report.Pull, 0, set)
	if err != nil {
		return err
	}
	cold := compare(f.Scores, f.Baseline, f.Items)
	w.report.Cold = &cold
	w.warnCold()
	return nil
}

// fold fits without the held-out queries and the pairs of a set of items, and
// judges logged items and those of the set apart. Where the number of rounds is
// known, it takes as many.
func (w *molWork) fold(ctx context.Context, pull float64, i int, set []bool) (molFold, error) {
	key := fmt.Sprintf("pull %g, without item set %d", pull, i)
	if f, ok := w.state.Folds[key]; ok {
		return f, nil
	}
	r := molRecipe{key: key, pull: pull, rounds: w.options.Rounds, pairs: w.problem.pairs(w.split.train, set)}
	if !w.report.Guarded {
		r.rounds = max(1, w.report.Rounds)
	}
	if len(r.pairs) == 0 {
		return molFold{}, fmt.Errorf("%w: no pair is left with %g of the items held out; hold out fewer", ErrData, w.options.ColdShare)
	}
	r.done = w.options.Progress.begin("fitting without some items", r.rounds)
	t, err := w.train(ctx, r)
	if err != nil {
		return molFold{}, err
	}
	logged, err := w.reciprocal(w.thinned(newJudge(w.problem, w.split.held, func(x int32) bool { return !set[x] })), t.net)
	if err != nil {
		return molFold{}, err
	}
	cold := w.thinned(newJudge(w.problem, w.fresh(set), func(x int32) bool { return set[x] }))
	f := molFold{Logged: mean(logged), Baseline: cold.reciprocal(plain), Items: cold.items}
	if f.Scores, err = w.reciprocal(cold, t.net); err != nil {
		return molFold{}, err
	}
	if w.state.Folds == nil {
		w.state.Folds = map[string]molFold{}
	}
	w.state.Folds[key] = f
	return f, w.save(nil, false)
}

// fresh are the queries of which a fit without the items of the set has seen no pair.
func (w *molWork) fresh(set []bool) []int32 {
	queries := slices.Clone(w.split.held)
	for _, q := range w.split.train {
		if !slices.ContainsFunc(w.problem.relevant[q], func(x int32) bool { return !set[x] }) {
			queries = append(queries, q)
		}
	}
	return queries
}
