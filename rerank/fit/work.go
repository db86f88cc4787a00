package fit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/rerank/bilinear"
)

// work is one run of Bilinear.
type work struct {
	problem *problem
	options Options
	split   split
	judge   *judge // of the held-out queries
	keeper  *keeper
	state   workState
	best    *promising
	report  Report
	noted   time.Time // when a round was noted last
}

// noteEvery is the least time between two notes of rounds.
const noteEvery = 2 * time.Second

// workState is what is known of a fit before its end.
type workState struct {
	Trials map[string]trialMarks
	Fits   map[string]*trainState // finished, without the moments
	Key    string                 // of Run
	Run    *trainState            // the one under way
}

// promising is the best form before the end.
type promising struct {
	form    form
	judged  form // of the same setting, and without the held-out queries
	quality float64
	setting setting
}

func (w *work) run(ctx context.Context) (*Fitted, error) {
	w.state.Trials, w.state.Fits = map[string]trialMarks{}, map[string]*trainState{}
	if err := w.keeper.load(&w.state); err != nil {
		return nil, err
	}
	s, err := w.choose(ctx)
	if err != nil {
		return w.interrupted(err)
	}
	judged, rounds, err := w.heldOut(ctx, w.options.Form, s)
	if err != nil {
		if rounds > 0 {
			w.best = &promising{form: judged, judged: judged, setting: s}
		}
		return w.interrupted(err)
	}
	w.report.Pull, w.report.Scale, w.report.Rate, w.report.Rounds = s.pull, s.scale, s.rate, rounds
	scores := w.measure(judged)
	final := newForm(w.options.Form, w.options.Rank, w.problem, w.options.Seed)
	if rounds > 0 {
		w.best = &promising{form: judged, judged: judged, setting: s}
		if err := w.refit(ctx, final, s, rounds); err != nil {
			return w.interrupted(err)
		}
	}
	if f, ok := final.(*full); ok {
		return w.finishFull(ctx, f, judged.(*full), scores)
	}
	w.add(string(w.options.Form), scores)
	return w.finish(w.options.Form, final), nil
}

// promise takes a form of a trial if it is the best so far, and better than the
// plain inner product.
func (w *work) promise(f form, quality float64, s setting) {
	least := w.judge.mean(w.judge.reciprocal(plain))
	if w.best != nil {
		least = w.best.quality
	}
	if quality > least {
		w.best = &promising{form: f, judged: f, quality: quality, setting: s}
	}
}

// interrupted is the best so far, if there is any, with the error that ended the work.
func (w *work) interrupted(err error) (*Fitted, error) {
	if w.best == nil || !isContext(err) {
		return nil, err
	}
	s := w.best.setting
	w.report.Interrupted = true
	w.report.Pull, w.report.Scale, w.report.Rate = s.pull, s.scale, s.rate
	w.report.Choices = nil
	w.add(string(w.options.Form), w.measure(w.best.judged))
	return w.finish(w.options.Form, w.best.form), err
}

// measure compares a form with the plain inner product, on the held-out queries.
func (w *work) measure(f form) []float64 {
	scores, baseline := w.judge.reciprocal(f.probe), w.judge.reciprocal(plain)
	w.report.Logged = w.judge.compare(scores, baseline)
	w.add("plain inner product", baseline)
	return scores
}

// noteRound is for the rounds of long fits: short ones would be hundreds of lines.
func (w *work) noteRound(key string, s *trainState, loss float64, judged bool) {
	if time.Since(w.noted) < noteEvery {
		return
	}
	w.noted = time.Now()
	if judged {
		w.options.note("%s, round %d: loss %.4f, best mean of held-out MRR@10 and nDCG@10 %.4f", key, s.Round, loss, s.Best)
	} else {
		w.options.note("%s, round %d: loss %.4f", key, s.Round, loss)
	}
}

// stage is train as a stage of the progress.
func (w *work) stage(ctx context.Context, key string, f form, pairs []pair, r recipe, judged func() float64) (int, error) {
	rounds := r.rounds
	if r.stop > 0 {
		rounds = r.stop
	}
	left := rounds
	done := w.options.Progress.begin("fitting "+key, rounds)
	rounds, err := w.train(ctx, key, f, pairs, r, judged, func(n int) { left -= n; done(n) })
	if err == nil {
		done(left)
	}
	return rounds, err
}

// train is train with a checkpoint under that key; done is told of its rounds.
func (w *work) train(ctx context.Context, key string, f form, pairs []pair, r recipe, judged func() float64, done func(int)) (int, error) {
	var at watch
	if w.state.Key == key {
		at.from = w.state.Run
	}
	var last *trainState
	at.after = func(s *trainState, loss float64) error {
		w.noteRound(key, s, loss, judged != nil)
		done(1)
		if w.keeper.to != nil {
			kept := *s
			kept.Arrays = clones(s.Arrays)
			kept.Order = append([]int(nil), s.Order...)
			last, w.state.Key, w.state.Run = &kept, key, &kept
		}
		return w.keeper.save(func() any { return w.state }, false)
	}
	rounds, err := train(ctx, w.problem, f, pairs, r, judged, at)
	if err != nil && last != nil {
		return rounds, errors.Join(err, w.keeper.save(func() any { return w.state }, true))
	}
	w.state.Key, w.state.Run = "", nil
	return rounds, err
}

// save keeps what is known, with no run under way.
func (w *work) save(err error) error {
	return errors.Join(err, w.keeper.save(func() any { return w.state }, false))
}

// heldOut fits the pairs of the training queries and returns the rounds that the
// held-out ones judged best.
func (w *work) heldOut(ctx context.Context, kind bilinear.Form, s setting) (form, int, error) {
	f := newForm(kind, w.options.Rank, w.problem, w.options.Seed)
	key := fmt.Sprintf("%s without the held-out queries", kind)
	if done := w.state.Fits[key]; done != nil {
		for i, v := range done.Arrays {
			copy(f.params()[i], v)
		}
		return f, done.At, nil
	}
	rounds, err := w.stage(ctx, key, f, w.problem.learnable(w.split, nil), w.options.recipe(s), w.stopper(w.judge, f))
	if err != nil {
		return f, rounds, err
	}
	w.state.Fits[key] = &trainState{At: rounds, Arrays: clones(f.params())}
	return f, rounds, w.save(nil)
}

// stopper is the judgement by which a fit is stopped early. There is none where
// items without logs are guarded: the pull alone then holds the fit back, as the
// rounds that are best for logged items are not those that are best for others.
func (w *work) stopper(j *judge, f form) func() float64 {
	if w.report.Guarded {
		return nil
	}
	return func() float64 { return j.quality(f.probe) }
}

// refit fits all pairs for as many rounds.
func (w *work) refit(ctx context.Context, f form, s setting, rounds int) error {
	r := w.options.recipe(s)
	r.stop = rounds
	_, err := w.stage(ctx, fmt.Sprintf("%s to all pairs", w.options.Form), f, w.problem.pairs(w.split.all(), nil), r, nil)
	return err
}

// finishFull adds the spectrum and the simpler forms, and cuts the rank if asked.
func (w *work) finishFull(ctx context.Context, final, judged *full, scores []float64) (*Fitted, error) {
	simple := setting{pull: 1e-5, scale: w.report.Scale, rate: w.options.rate(bilinear.Diagonal)}
	diagonal, _, err := w.heldOut(ctx, bilinear.Diagonal, simple)
	if err != nil {
		w.best = &promising{form: final, judged: judged, setting: setting{w.report.Pull, w.report.Scale, w.report.Rate}}
		return w.interrupted(err)
	}
	w.add(string(bilinear.Diagonal), w.judge.reciprocal(diagonal.probe))
	if w.report.Rounds == 0 && w.options.Reduce == 0 { // W = I has no spectrum
		w.add(string(bilinear.Full), scores)
		return w.finish(bilinear.Full, final), nil
	}
	dj, err := decompose(judged.w)
	if err != nil {
		return nil, err
	}
	df, err := decompose(final.w)
	if err != nil {
		return nil, err
	}
	w.report.Spectrum = spectrum(df, dj, w.judge, w.options, w.judge.mean(scores))
	rank := w.report.Spectrum.Suggested
	w.add(fmt.Sprintf("I + rank %d", rank), w.judge.reciprocal(dj.cut(rank).probe))
	w.add(string(bilinear.Full), scores)
	switch {
	case w.options.Reduce == 0:
		return w.finish(bilinear.Full, final), nil
	case w.options.Reduce > 0:
		rank = w.options.Reduce
	}
	return w.cut(ctx, final, judged, df, dj, rank)
}

// cut makes I plus a low rank of a full form. The first components of W − I are
// its best approximation, and not the form of that rank that finds items best:
// its factors are fitted some rounds more.
func (w *work) cut(ctx context.Context, final, judged *full, df, dj *decomposition, rank int) (*Fitted, error) {
	r := w.options.recipe(setting{w.report.Pull, w.report.Scale, w.options.rate(bilinear.IdentityLowRank) / 5})
	r.rounds = max(1, r.rounds/2)
	w.report.Form, w.report.CutTo = bilinear.IdentityLowRank, rank
	held, whole := dj.cut(rank), df.cut(rank)
	for _, part := range []struct {
		name  string
		form  form
		pairs []pair
	}{
		{"without the held-out queries", held, w.problem.learnable(w.split, nil)},
		{"to all pairs", whole, w.problem.pairs(w.split.all(), nil)},
	} {
		key := fmt.Sprintf("I + rank %d %s", rank, part.name)
		if _, err := w.stage(ctx, key, part.form, part.pairs, r, nil); err != nil {
			w.report.Form, w.report.CutTo = bilinear.Full, 0
			w.best = &promising{form: final, judged: judged, setting: setting{w.report.Pull, w.report.Scale, w.report.Rate}}
			return w.interrupted(err)
		}
	}
	w.add(fmt.Sprintf("I + rank %d, fitted on", rank), w.judge.reciprocal(held.probe))
	return w.finish(bilinear.IdentityLowRank, whole), nil
}

func (w *work) finish(kind bilinear.Form, f form) *Fitted {
	w.report.recommend(w.judge)
	dim := w.problem.items.Cols
	return &Fitted{
		Config:  bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: w.options.Normalise, Form: kind},
		Tensors: f.tensors(), Report: w.report,
	}
}
