// Package mol fits Mixture-of-Logits similarities to a log (RAILS).
package mol

import (
	"context"
	"errors"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Fitted is the outcome of a fit.
type Fitted struct {
	Config  mol.Config
	Tensors tensor.Set
	Report  Report
}

// Fit fits a Mixture-of-Logits. It first fits a bilinear form, at which the mixture starts. The mixture is judged on
// held-out queries after every round, and then fits all pairs for the number of
// rounds that was best. Where items without logs are guarded, the fit chooses the
// pull to the start, and whether to mix at all, on held-out items. It uses every core. It returns fit.ErrData,
// fit.ErrOption, fit.ErrCheckpoint, the error of the checkpoint, or the context's
// error; with the last it also returns the best model so far, if there is one.
func Fit(ctx context.Context, d fit.Data, o Options) (*Fitted, error) {
	o.setDefaults()
	if err := o.check(d); err != nil {
		return nil, err
	}
	if err := d.CheckInnerProduct(); err != nil {
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
	trials, err := train.OpenTrials(o.Checkpoint, "mol", d, o)
	if err != nil {
		return nil, err
	}
	f := &fitter{log: log, options: o, split: split, trials: trials, itemScale: 1, queryScale: 1}
	if !o.Normalise {
		f.itemScale, f.queryScale = samples.RootMeanSquareNorm(d.Items), samples.RootMeanSquareNorm(d.Queries)
	}
	f.report = Report{
		Gates: o.Gates, PairsQuery: o.PairsQuery, PairsItem: o.PairsItem, Dim: o.componentDim(log.Items.Cols),
		L2Norm: o.L2Norm, Measure: o.Measure, Seed: o.Seed, Normalise: o.Normalise, Counts: log.Counts,
	}
	return f.run(ctx)
}

// fitter is one run of Fit.
type fitter struct {
	log     *samples.Log
	options Options
	split   samples.Split
	trials  *train.Trials
	starts  *bilinear.Starts
	report  Report
	// itemScale and queryScale are the numbers by which the log divided all item
	// vectors and all query vectors.
	itemScale, queryScale float32

	plans plans
	work  *fit.Work // the progress of the whole fit
	task  *fit.Task // the part under way
}

// newJudge makes a judge by the measure of the options.
func (f *fitter) newJudge(queries []int32, wanted func(item int32) bool) *judge.Judge {
	return judge.New(f.log, f.options.Measure, queries, wanted)
}

// run chooses the pull, judges a fit on the held-out queries, and fits all pairs.
func (f *fitter) run(ctx context.Context) (*Fitted, error) {
	rounds := f.options.Rounds
	sets := f.setGuard()
	if err := f.chooseStarts(ctx, rounds, len(sets)); err != nil {
		return nil, err
	}
	if f.report.Guarded {
		if err := f.choosePull(ctx, sets); err != nil {
			return nil, err
		}
	}
	f.begin(f.plans.judged)
	judged, trained, err := f.trainJudged(ctx)
	if err != nil {
		return f.interrupt(judged, trained, err)
	}
	f.begin(f.plans.measured)
	if err := f.measure(judged); err != nil {
		return nil, err
	}
	if !f.report.Guarded && len(sets) > 0 {
		f.begin(f.plans.trial)
		if err := f.compareCold(ctx, sets[0]); err != nil {
			return f.interrupt(judged, trained, err)
		}
	}
	f.begin(f.plans.final)
	final, err := f.trainFinal(ctx)
	if err != nil {
		return f.interrupt(judged, trained, err)
	}
	f.task.End()
	return f.finish(final), nil
}

// interrupt returns the net that the held-out queries judged, if it was trained for a
// round at least, with the error that ended the fit, and with that of measuring the net.
func (f *fitter) interrupt(judged *net, trained *train.Snapshot, err error) (*Fitted, error) {
	if trained == nil || trained.Round == 0 || !train.IsInterruption(err) {
		return nil, err
	}
	f.report.Interrupted = true
	f.report.addHistory(trained)
	f.report.Rounds = trained.BestRound
	if f.report.Logged.Queries == 0 {
		if failed := f.measure(judged); failed != nil {
			return nil, errors.Join(err, failed)
		}
	}
	return f.finish(judged), err
}

// trainJudged fits the pairs of the training queries. The held-out queries choose the
// number of rounds, but not where items without logs are guarded: the rounds that are
// best for logged items are not those that are best for others.
func (f *fitter) trainJudged(ctx context.Context) (*net, *train.Snapshot, error) {
	n := f.newNet(f.starts.WithoutHeldOut())
	sample := f.thin(f.newJudge(f.split.HeldOut, nil))
	rounds := f.options.Rounds
	if f.report.Guarded {
		rounds = f.report.Rounds
	}
	plan := train.Plan{
		Name: "judged fit", Rounds: rounds, Patience: f.patience(), KeepTrained: true, Note: f.noteRound,
		Judge: func(int) (float64, error) {
			defer f.task.Add(sample.Cost())
			v, err := f.newView(n)
			if err != nil {
				return 0, err
			}
			found, err := v.marks(sample)
			return sample.Mean(found), err
		},
	}
	trained, err := f.trials.Train(ctx, f.newLearner(n, f.trainingPairs(nil), f.report.Pull), plan)
	if err != nil {
		return n, trained, err
	}
	f.report.addHistory(trained)
	f.report.Rounds = trained.TakenRounds
	return n, trained, nil
}

// patience is the number of rounds without a better rating before a trial ends.
const patience = 6

// patience returns the patience of the judged fit, 0 if it guards items without logs and takes every round.
func (f *fitter) patience() int {
	if f.report.Guarded {
		return 0
	}
	return patience
}

// trainingPairs lists the pairs that a judged fit learns from, without the items that
// withheld marks and without items that are held-out questions.
func (f *fitter) trainingPairs(withheld []bool) []samples.Pair {
	return f.log.TrainingPairs(f.split, withheld)
}

// trainFinal fits all pairs for the number of rounds that was best.
func (f *fitter) trainFinal(ctx context.Context) (*net, error) {
	pairs := f.log.Pairs(f.split.All(), nil)
	w, err := f.starts.Fit(ctx, "bilinear form to all pairs", pairs)
	if err != nil {
		return nil, err
	}
	n := f.newNet(w)
	_, err = f.trials.Train(ctx, f.newLearner(n, pairs, f.report.Pull), train.Plan{
		Name: "final fit", Rounds: f.report.Rounds, Note: f.noteRound,
	})
	return n, err
}

// newNet makes a net that starts at the bilinear form W.
func (f *fitter) newNet(w rerank.Matrix) *net { return newNet(f.options, f.log, w, f.report.Guarded) }

// newLearner makes a learner with a pull, whose steps count as work of the task under way.
func (f *fitter) newLearner(n *net, pairs []samples.Pair, pull float64) *learner {
	l := newLearner(f.log, n, pairs, pull, f.options)
	l.worked = func(multiplications float64) { f.task.Add(multiplications) }
	return l
}

// noteRound notes the last round of a trial.
func (f *fitter) noteRound(s *train.Snapshot) {
	if s.BestParameters != nil {
		f.options.Notef("%s, round %d: loss %.3f, held-out %s %.4f", s.Trial, s.Round, s.LastRound().MeanLoss, f.options.Measure.Name(), s.LastRound().Rating)
	} else {
		f.options.Notef("%s, round %d: loss %.3f", s.Trial, s.Round, s.LastRound().MeanLoss)
	}
}

// finish returns the net as the outcome of the fit.
func (f *fitter) finish(n *net) *Fitted {
	f.report.Parameters = n.countNumbers()
	if f.report.Rounds == 0 {
		f.report.Warnings = append(f.report.Warnings, "no mixture was better than the bilinear form at which it starts, which this model is: fit bilinear stores less")
	}
	f.report.recommend()
	return &Fitted{Config: n.config(), Tensors: f.tensors(n, f.queryScale, f.itemScale), Report: f.report}
}
