package fit

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/rerank/bilinear"
)

// work is one run of Bilinear.
type work struct {
	problem *problem
	options Options
	split   split
	judge   *judge // of the held-out queries
	report  Report
}

func (w *work) run(ctx context.Context) (*Fitted, error) {
	pull, err := w.choosePull(ctx)
	if err != nil {
		return nil, err
	}
	baseline := w.judge.reciprocal(plain)
	judged, rounds, err := w.heldOut(ctx, w.options.Form, pull)
	if err != nil {
		return nil, err
	}
	scores := w.judge.reciprocal(judged.probe)
	w.report.Pull, w.report.Rounds = pull, rounds
	w.report.Logged = compare(scores, baseline, w.judge.items)
	w.add("plain inner product", baseline)
	final := newForm(w.options.Form, w.options.Rank, w.problem, w.options.Seed)
	if rounds > 0 {
		if err := w.refit(ctx, final, pull, rounds); err != nil {
			return nil, err
		}
	}
	if f, ok := final.(*full); ok {
		return w.finishFull(ctx, f, judged.(*full), scores)
	}
	w.add(string(w.options.Form), scores)
	return w.finish(w.options.Form, final), nil
}

// heldOut fits the pairs of the training queries and returns the rounds that the
// held-out ones judged best.
func (w *work) heldOut(ctx context.Context, kind bilinear.Form, pull float64) (form, int, error) {
	f := newForm(kind, w.options.Rank, w.problem, w.options.Seed)
	done := w.options.Progress.begin(fmt.Sprintf("fitting %s without the held-out queries", kind), w.options.Rounds)
	rounds, err := train(ctx, w.problem, f, w.problem.pairs(w.split.train, nil), w.options.recipe(kind, pull, w.report.Guarded), w.stopper(w.judge, f), done)
	return f, rounds, err
}

// stopper is the judgement by which a fit is stopped early. There is none where
// items without logs are guarded: the pull alone then holds the fit back, as the
// rounds that are best for logged items are not those that are best for others.
func (w *work) stopper(j *judge, f form) func() float64 {
	if w.report.Guarded {
		return nil
	}
	return func() float64 { return mean(j.reciprocal(f.probe)) }
}

// refit fits all pairs for as many rounds.
func (w *work) refit(ctx context.Context, f form, pull float64, rounds int) error {
	r := w.options.recipe(w.options.Form, pull, w.report.Guarded)
	r.stop = rounds
	done := w.options.Progress.begin(fmt.Sprintf("fitting %s to all pairs", w.options.Form), rounds)
	_, err := train(ctx, w.problem, f, w.problem.pairs(w.split.all(), nil), r, nil, done)
	return err
}

// finishFull adds the spectrum and the simpler forms, and cuts the rank if asked.
func (w *work) finishFull(ctx context.Context, final, judged *full, scores []float64) (*Fitted, error) {
	diagonal, _, err := w.heldOut(ctx, bilinear.Diagonal, 1e-5)
	if err != nil {
		return nil, err
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
	w.report.Spectrum = spectrum(df, dj, w.judge, w.options.Energy, w.options.Reduce)
	rank := w.report.Spectrum.Suggested
	w.add(fmt.Sprintf("I + rank %d", rank), w.judge.reciprocal(dj.cut(rank).probe))
	w.add(string(bilinear.Full), scores)
	switch {
	case w.options.Reduce == 0:
		return w.finish(bilinear.Full, final), nil
	case w.options.Reduce > 0:
		rank = w.options.Reduce
	}
	w.report.Form, w.report.CutTo = bilinear.IdentityLowRank, rank
	return w.finish(bilinear.IdentityLowRank, df.cut(rank)), nil
}

func (w *work) finish(kind bilinear.Form, f form) *Fitted {
	w.report.recommend(w.judge.items)
	dim := w.problem.items.Cols
	return &Fitted{
		Config:  bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: w.options.Normalise, Form: kind},
		Tensors: f.tensors(), Report: w.report,
	}
}
