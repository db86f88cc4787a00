package bilinear

import (
	"context"

	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Starts fits the full bilinear forms at which a richer similarity starts, all with the setting that
// a fit of a bilinear form chooses. It is not safe for concurrent use.
type Starts struct {
	fitter  *fitter
	setting setting
	rounds  int
	judged  rerank.Matrix
	fitted  map[string]rerank.Matrix // by the name of the trial
}

// ChooseStarts chooses the setting as Fit does, without the report. The trials are the caller's, which remember it. It
// returns fit.ErrData, fit.ErrCheckpoint or the context's error.
func ChooseStarts(ctx context.Context, log *samples.Log, split samples.Split, trials *train.Trials, o Options) (*Starts, error) {
	f, err := newFitter(log, split, trials, o)
	if err != nil {
		return nil, err
	}
	_, chosen, err := f.chooseSetting(ctx)
	if err != nil {
		return nil, err
	}
	judged, rounds, err := f.trainJudged(ctx, chosen.setting)
	if err != nil {
		return nil, err
	}
	f.task.End()
	return &Starts{fitter: f, setting: chosen.setting, rounds: rounds, judged: judged.(*fullForm).w, fitted: map[string]rerank.Matrix{}}, nil
}

// Scale returns the factor of φ before the softmax.
func (t *Starts) Scale() float64 { return t.setting.scale }

// WithoutHeldOut returns the W that has not seen the held-out queries.
func (t *Starts) WithoutHeldOut() rerank.Matrix { return t.judged }

// Fit fits a W to the pairs, once for each name, which is its trial's. The caller does not change it.
func (t *Starts) Fit(ctx context.Context, name string, pairs []samples.Pair) (rerank.Matrix, error) {
	if w, ok := t.fitted[name]; ok {
		return w, nil
	}
	w, err := train.Try(t.fitter.trials, name, func() (rerank.Matrix, error) {
		if len(pairs) == 0 {
			return rerank.Matrix{}, errNoPairs(t.fitter.options.ColdShare)
		}
		form, err := t.fitter.newForm(bilinear.Full, pairs)
		if err != nil {
			return rerank.Matrix{}, err
		}
		if t.rounds > 0 {
			err = t.fitter.trainStage(ctx, name, newLearner(t.fitter.log, form, pairs, t.setting, 0, t.fitter.options), t.rounds)
		}
		return form.(*fullForm).w, err
	})
	if err == nil {
		t.fitted[name] = w
	}
	return w, err
}
