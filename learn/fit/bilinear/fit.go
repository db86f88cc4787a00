// Package bilinear fits bilinear forms φ(q, x) = qᵀWx to a log.
package bilinear

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Fitted is the outcome of a fit.
type Fitted struct {
	Config  bilinear.Config
	Tensors tensor.Set
	Report  Report
}

// Fit fits φ = qᵀWx. It starts at the identity, or, where queries and items lie in
// different coordinates, at the least-squares map between them. It chooses the scale, the
// pull to the start and the number of rounds on held-out queries and held-out items, judges
// the choice on the held-out queries, and then fits all pairs. It uses every core. It returns fit.ErrData,
// fit.ErrOption, fit.ErrCheckpoint or the context's error; with the last it also
// returns the best form so far, if one was better than the plain inner product.
func Fit(ctx context.Context, d fit.Data, o Options) (*Fitted, error) {
	if err := o.check(d); err != nil {
		return nil, err
	}
	log, err := samples.Prepare(d, o.Normalise)
	if err != nil {
		return nil, err
	}
	split, err := log.Split(o.Common)
	if err != nil {
		return nil, err
	}
	trials, err := train.OpenTrials(o.Checkpoint, "bilinear", d, o)
	if err != nil {
		return nil, err
	}
	f, err := newFitter(log, split, trials, o)
	if err != nil {
		return nil, err
	}
	return f.run(ctx)
}

// fitter is one run of Fit.
type fitter struct {
	log     *samples.Log
	options Options
	split   samples.Split
	judge   *judge.Judge // of the held-out queries
	plain   judge.Probe  // what the fit is compared with on the held-out queries
	trials  *train.Trials
	best    *bestForm     // so far; nil if none was better than the plain similarity
	rivals  []judge.Rival // of the plain similarity, for the verdict
	report  Report

	pairs    int  // of the log that the fit learns from
	large    bool // the log is so large that every part of the fit is short
	rounds   int  // of a whole fit
	short    int  // rounds of a short trial
	plans    plans
	speeds   speeds
	work     *fit.Work // the progress of the whole fit
	task     *fit.Task // the part under way
	lastNote time.Time // when a round was noted last
}

// bestForm is the best form before the end of a fit.
type bestForm struct {
	form form
	// judged is a form of the same setting that has not seen the held-out queries.
	judged  form
	value   float64 // the measure of judged on the held-out queries
	setting setting
	rounds  int  // that it took
	whole   bool // it is no short trial's
}

// newFitter begins a fit: it decides where W starts.
func newFitter(log *samples.Log, split samples.Split, trials *train.Trials, o Options) (*fitter, error) {
	f := &fitter{log: log, options: o, split: split, trials: trials}
	f.judge = f.newJudge(split.HeldOut, nil)
	f.report = Report{Counts: log.Counts, Form: o.Form, Measure: o.Measure, Seed: o.Seed, Normalise: o.Normalise}
	f.planRounds()
	err := f.chooseStart()
	if err != nil {
		return nil, err
	}
	f.plain, err = f.plainWithout(nil)
	return f, err
}

// newJudge makes a judge by the measure of the options.
func (f *fitter) newJudge(queries []int32, wanted func(item int32) bool) *judge.Judge {
	return judge.New(f.log, f.options.Measure, queries, wanted)
}

// run chooses the setting, judges it on the held-out queries and fits all pairs.
func (f *fitter) run(ctx context.Context) (*Fitted, error) {
	c, chosen, err := f.chooseSetting(ctx)
	if err != nil {
		return f.interrupt(err)
	}
	if err := c.compareCold(ctx, chosen); err != nil {
		return f.interrupt(err)
	}
	c.reportTrials(chosen)
	s := chosen.setting
	f.report.setSetting(s)
	judged, rounds, err := f.trainJudged(ctx, s)
	if err != nil {
		if rounds > 0 {
			f.best = &bestForm{form: judged, judged: judged, setting: s}
		}
		return f.interrupt(err)
	}
	f.report.Rounds = rounds
	final, err := f.newForm(f.options.Form, f.allPairs())
	if err != nil {
		return nil, err
	}
	if rounds > 0 {
		f.begin(f.plans.final)
		f.best = &bestForm{form: judged, judged: judged, setting: s}
		name := fmt.Sprintf("%s to all pairs", f.options.Form)
		if err := f.trainStage(ctx, name, f.newLearner(final, f.allPairs(), s), rounds); err != nil {
			return f.interrupt(err)
		}
	}
	if full, ok := final.(*fullForm); ok {
		return f.finishFull(ctx, full, judged.(*fullForm))
	}
	f.addRival(string(f.options.Form), judged)
	return f.finish(f.options.Form, final)
}

// interrupt returns the best form so far, if there is one, with the error that ended
// the fit.
func (f *fitter) interrupt(err error) (*Fitted, error) {
	if f.best == nil || !train.IsInterruption(err) {
		return nil, err
	}
	f.report.Interrupted = true
	f.report.setSetting(f.best.setting)
	f.rivals = nil
	f.addRival(string(f.options.Form), f.best.judged)
	fitted, failed := f.finish(f.options.Form, f.best.form)
	return fitted, errors.Join(err, failed)
}

// isSquare reports whether queries and items have one dimension, so that they have an inner
// product.
func (f *fitter) isSquare() bool { return f.log.Queries.Cols == f.log.Items.Cols }

// plainWithout returns the similarity with which a fit without the pairs of the withheld items is
// compared: the plain inner product, or the least-squares start if queries and items have
// different dimensions.
func (f *fitter) plainWithout(withheld []bool) (judge.Probe, error) {
	if f.isSquare() {
		return judge.InnerProduct, nil
	}
	s, err := f.startOf(f.log.TrainingPairs(f.split, withheld))
	return s.probe, err
}

// newForm makes a form at the start of a fit to the pairs.
func (f *fitter) newForm(kind bilinear.Form, pairs []samples.Pair) (form, error) {
	s, err := f.startOf(pairs)
	return newForm(kind, f.options.Rank, f.log, f.options.Seed, s), err
}

func (f *fitter) allPairs() []samples.Pair { return f.log.Pairs(f.split.All(), nil) }

func (f *fitter) newLearner(form form, pairs []samples.Pair, s setting) *learner {
	return f.watch(newLearner(f.log, form, pairs, s, 0, f.options))
}

// watch counts a new learner and its steps as work of the task under way.
func (f *fitter) watch(l *learner) *learner {
	f.task.Add(f.speeds.setup)
	l.worked = func(n float64) { f.task.Add(n) }
	return l
}

// begin ends the task under way and begins the next one.
func (f *fitter) begin(planned float64) {
	f.task.End()
	f.task = f.work.Begin(planned)
}

// trainJudged returns the form of the chosen setting without the held-out queries, and its rounds. Where nothing was
// withheld from the trials, the chosen one has fitted it.
func (f *fitter) trainJudged(ctx context.Context, s setting) (form, int, error) {
	f.begin(f.plans.judged)
	if b := f.best; b != nil && b.whole && b.setting == s {
		return b.judged, b.rounds, nil
	}
	return f.trainWithoutHeldOut(ctx, f.options.Form, s)
}

// trainWithoutHeldOut fits a form to the pairs of the training queries, and returns
// the number of rounds that the held-out queries judged best.
func (f *fitter) trainWithoutHeldOut(ctx context.Context, kind bilinear.Form, s setting) (form, int, error) {
	pairs := f.log.TrainingPairs(f.split, nil)
	form, err := f.newForm(kind, pairs)
	if err != nil {
		return form, 0, err
	}
	name := fmt.Sprintf("%s without the held-out queries", kind)
	l := f.newLearner(form, pairs, s)
	plan := f.plan(name, l, f.judge)
	if kind != f.options.Form { // a simpler form, to compare with
		l = f.watch(newLearner(f.log, form, pairs, s, f.simpleRounds(), f.options))
		plan = train.Plan{Name: name, Rounds: f.simpleRounds(), Note: f.noteRound}
	}
	plan.KeepTrained = true
	trained, err := f.trials.Train(ctx, l, plan)
	if trained == nil {
		return form, 0, err
	}
	return form, trained.TakenRounds, err
}

// plan returns the plan of a trial of l that the judge ends early. Where items without
// logs are guarded, nothing ends a trial early and the pull alone holds the fit back:
// the rounds that are best for logged items are not those that are best for others.
func (f *fitter) plan(name string, l *learner, j *judge.Judge) train.Plan {
	plan := train.Plan{Name: name, Rounds: l.rounds, Note: f.noteRound}
	if !f.report.Guarded {
		plan.Judge = func(int) (float64, error) {
			defer f.task.Add(f.costOf(j))
			return j.Quality(l.form.probe), nil
		}
		plan.Patience, plan.PreferLater = patience(l.rounds), true // later rounds are steadier
	}
	return plan
}

// trainStage trains a learner for a number of rounds that is known.
func (f *fitter) trainStage(ctx context.Context, name string, l *learner, rounds int) error {
	_, err := f.trials.Train(ctx, l, train.Plan{
		Name: name, Rounds: rounds, Note: f.noteRound,
	})
	return err
}

// noteInterval is the least time between two notes of rounds: the short trials of a
// fit have hundreds of rounds.
const noteInterval = 2 * time.Second

// noteRound notes the last round of a trial.
func (f *fitter) noteRound(s *train.Snapshot) {
	if time.Since(f.lastNote) < noteInterval {
		return
	}
	f.lastNote = time.Now()
	if s.BestParameters != nil {
		f.options.Notef("%s, round %d: loss %.4f, best mean of held-out MRR@10 and nDCG@10 %.4f", s.Trial, s.Round, s.LastRound().MeanLoss, s.Best)
	} else {
		f.options.Notef("%s, round %d: loss %.4f", s.Trial, s.Round, s.LastRound().MeanLoss)
	}
}

// finishFull compares a full form with simpler ones, reports the spectrum of W − I (of W,
// after a least-squares start), and cuts the form to a lower rank if the options ask for it.
// judged is the form without the held-out queries.
func (f *fitter) finishFull(ctx context.Context, final, judged *fullForm) (*Fitted, error) {
	f.addRival(string(bilinear.Full), judged)
	if f.isSquare() {
		f.begin(f.plans.simple)
		simple := setting{pull: 1e-5, scale: f.report.Scale, rate: f.options.rateFor(bilinear.Diagonal)}
		diagonal, _, err := f.trainWithoutHeldOut(ctx, bilinear.Diagonal, simple)
		if err != nil {
			f.best = &bestForm{form: final, judged: judged, setting: f.report.setting()}
			return f.interrupt(err)
		}
		f.addRival(string(bilinear.Diagonal), diagonal)
	}
	identity := f.report.Start == FromIdentity
	if identity && f.report.Rounds == 0 && f.options.Reduce == 0 { // W = I has no spectrum
		return f.finish(bilinear.Full, final)
	}
	judgedParts, err := decompose(judged.w, identity)
	if err != nil {
		return nil, err
	}
	finalParts, err := decompose(final.w, identity)
	if err != nil {
		return nil, err
	}
	f.begin(f.plans.spectrum)
	f.report.Spectrum = describeSpectrum(finalParts, judgedParts, f.judge, f.options, f.judge.Mean(f.judge.Marks(judged.probe)))
	rank := f.report.Spectrum.Suggested
	if 2*rank < min(final.w.Rows, final.w.Cols) { // with fewer numbers than the full form
		f.addRival(f.report.rankName(rank), judgedParts.cut(rank))
	}
	switch {
	case f.options.Reduce == 0:
		return f.finish(bilinear.Full, final)
	case f.options.Reduce > 0:
		rank = f.options.Reduce
	}
	cut, err := f.cutRank(ctx, finalParts, judgedParts, rank)
	if err != nil {
		f.best = &bestForm{form: final, judged: judged, setting: f.report.setting()}
		return f.interrupt(err)
	}
	return f.finish(f.report.Form, cut)
}

// cutRank makes I plus a matrix of low rank of a full form, or, after a least-squares start,
// a matrix of low rank alone. The leading components approximate W best, but another matrix
// of the same rank finds items better: the factors are fitted some rounds more.
func (f *fitter) cutRank(ctx context.Context, final, judged *decomposition, rank int) (form, error) {
	s := f.report.setting()
	s.rate = f.options.rateFor(bilinear.IdentityLowRank) / 5
	rounds := max(1, f.options.Rounds/2)
	judgedCut, finalCut := judged.cut(rank), final.cut(rank)
	for _, part := range []struct {
		name  string
		form  *lowRankForm
		pairs []samples.Pair
	}{
		{"without the held-out queries", judgedCut, f.log.TrainingPairs(f.split, nil)},
		{"to all pairs", finalCut, f.allPairs()},
	} {
		var err error
		if part.form.start, err = f.startOf(part.pairs); err != nil {
			return nil, err
		}
		name := f.report.rankName(rank) + " " + part.name
		if err := f.trainStage(ctx, name, f.watch(newLearner(f.log, part.form, part.pairs, s, rounds, f.options)), rounds); err != nil {
			return nil, err
		}
	}
	f.addRival(f.report.rankName(rank)+", fitted on", judgedCut)
	f.report.CutTo, f.report.Form = rank, bilinear.IdentityLowRank
	if f.report.Start == FromLeastSquares {
		f.report.Form = bilinear.LowRank
	}
	return finalCut, nil
}

// finish returns the form as the outcome of the fit.
func (f *fitter) finish(kind bilinear.Form, final form) (*Fitted, error) {
	f.begin(f.plans.decision)
	if err := f.decide(); err != nil {
		return nil, err
	}
	f.task.End()
	return &Fitted{
		Config:  bilinear.Config{QueryDim: f.log.Queries.Cols, ItemDim: f.log.Items.Cols, Normalise: f.options.Normalise, Form: kind},
		Tensors: final.tensors(), Report: f.report,
	}, nil
}
