package bilinear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// setting holds the values that a fit chooses by trials: the strength of the pull to the identity,
// the factor of φ before the softmax, and the learning rate.
type setting struct{ pull, scale, rate float64 }

func (s setting) String() string {
	return fmt.Sprintf("pull %g, scale %g, rate %g", s.pull, s.scale, s.rate)
}

// learner trains a form on pairs. It is a train.Learner.
type learner struct {
	form       form
	pull       float64
	rate       float64 // of the first step; it falls to 0 over all rounds
	rounds     int     // over which the rate falls
	queries    rerank.Matrix
	batches    *train.Batches
	candidates *train.Candidates
	loss       train.CrossEntropy
	adam       *train.Adam

	worked func(multiplications float64) // called after each step with its multiplications; may be nil

	batchQueries, scores rerank.Matrix
}

// stepCost returns about how many multiplications a step takes: the scores of the batch,
// and the gradients by both sides.
func (t *learner) stepCost() float64 {
	return stepCost(t.batches.Size, len(t.candidates.Rows), t.candidates.Vectors.Cols)
}

func stepCost(batch, candidates, dim int) float64 {
	return 3 * float64(batch) * float64(candidates) * float64(dim)
}

var _ train.Learner = (*learner)(nil)

// newLearner makes a learner of f. It uses the batch size, the seed and the limits of
// the softmax of the options; the rate falls to 0 over the given rounds, or, if they are 0,
// over as many as the options give a log of this size.
func newLearner(l *samples.Log, f form, pairs []samples.Pair, s setting, rounds int, o Options) *learner {
	pairs = samples.DrawPairs(pairs, o.PairsPerQuery, o.Seed)
	batches := train.NewBatches(pairs, o.Batch, rand.NewPCG(o.Seed, 0xf17))
	if rounds == 0 {
		rounds = o.roundsFor(batches.Size, batches.Steps)
	}
	return &learner{
		form: f, pull: s.pull, rate: s.rate, rounds: rounds, queries: l.Queries, batches: batches,
		candidates: train.NewCandidates(l.Items, pairs, train.CandidateLimits{All: o.Softmax, Draws: o.Draws, Batch: batches.Size, Looks: l.Looks}),
		loss:       train.CrossEntropy{Log: l, Scale: s.scale, MeanWeight: batches.MeanWeight},
		adam:       train.NewAdam(s.rate, f.params()),
	}
}

// Parameters implements train.Learner.
func (t *learner) Parameters() [][]float32 { return t.form.params() }

// TakeRound implements train.Learner.
func (t *learner) TakeRound(ctx context.Context, _ int) (float64, error) {
	var sum float64
	for range t.batches.Steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t.adam.Rate = t.rate * (1 - float64(t.adam.Step)/float64(t.rounds*t.batches.Steps))
		sum += t.computeGradients(t.batches.Next())
		t.adam.Update(t.form.params(), t.form.grads())
		if t.worked != nil {
			t.worked(t.stepCost())
		}
	}
	return sum / float64(t.batches.Steps), nil
}

// computeGradients sets the gradients of the form for a batch, and returns the loss.
func (t *learner) computeGradients(batch []samples.Pair) float64 {
	t.candidates.Draw(batch, t.batches.Random)
	items := t.candidates.Vectors
	t.batchQueries = linalg.Resize(t.batchQueries, len(batch), t.queries.Cols)
	for i, p := range batch {
		copy(t.batchQueries.Row(i), t.queries.Row(int(p.Query)))
	}
	t.scores = linalg.Resize(t.scores, len(batch), items.Rows)
	t.form.forward(t.scores, t.batchQueries, items)
	loss := t.loss.Apply(t.scores, batch, t.candidates)
	t.form.backward(t.scores, t.batchQueries, items)
	return loss + t.form.addPull(t.pull)
}

// Position implements train.Learner.
func (t *learner) Position() train.Position {
	return train.Position{Moments: t.moments(), Steps: t.adam.Step, Batches: t.batches.Position()}
}

// Resume implements train.Learner.
func (t *learner) Resume(p train.Position) error {
	t.adam.Step = p.Steps
	if err := train.RestoreArrays(t.moments(), p.Moments); err != nil {
		return err
	}
	return t.batches.Resume(p.Batches)
}

func (t *learner) moments() [][]float32 {
	return slices.Concat(t.adam.First, t.adam.Second)
}

// errNoPairs says that a set of held-out items left nothing to learn from.
func errNoPairs(share float64) error {
	return fmt.Errorf("%w: no pair is left with %g of the items held out; hold out fewer", fit.ErrData, share)
}
