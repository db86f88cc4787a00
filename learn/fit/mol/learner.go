package mol

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// learner trains a net on pairs. It is a train.Learner.
type learner struct {
	net        *net
	options    Options
	pull       float64
	log        *samples.Log
	batches    *train.Batches
	candidates *train.Candidates
	loss       train.CrossEntropy
	adam       *train.Adam

	worked func(multiplications float64) // is told of each step; may be nil

	queries, scores rerank.Matrix // of the batch
	users           []int64
}

var _ train.Learner = (*learner)(nil)

// newLearner makes a learner of n, which is pulled to its start with the given
// strength. The learning rate falls to 0 over the rounds of the options.
func newLearner(l *samples.Log, n *net, pairs []samples.Pair, pull float64, o Options) *learner {
	batches := train.NewBatches(pairs, o.Batch, rand.NewPCG(o.Seed, 0xf18))
	return &learner{
		net: n, options: o, pull: pull, log: l, batches: batches,
		candidates: train.NewCandidates(l.Items, pairs, train.CandidateLimits{All: o.Softmax, Draws: o.Draws, Batch: batches.Size, Looks: l.Looks}),
		loss:       train.CrossEntropy{Log: l, Scale: 1 / o.Temperature, MeanWeight: batches.MeanWeight},
		adam:       train.NewAdam(o.Rate, valuesOf(n.learned)),
	}
}

// valuesOf returns the arrays of the parameters.
func valuesOf(parameters []*parameter) [][]float32 {
	var v [][]float32
	for _, p := range parameters {
		v = append(v, p.Data)
	}
	return v
}

// gradientArrays returns the arrays of the gradients.
func gradientArrays(parameters []*parameter) [][]float32 {
	var v [][]float32
	for _, p := range parameters {
		v = append(v, p.grad.Data)
	}
	return v
}

// arrays returns all that the net learns, user tables included.
func (n *net) arrays() [][]float32 {
	v := valuesOf(n.learned)
	for _, t := range n.users {
		v = append(v, t.Data)
	}
	return v
}

// countNumbers returns how many numbers the net has.
func (n *net) countNumbers() int {
	count := 0
	for _, v := range n.arrays() {
		count += len(v)
	}
	return count
}

// Parameters implements train.Learner.
func (t *learner) Parameters() [][]float32 { return t.net.arrays() }

// TakeRound implements train.Learner.
func (t *learner) TakeRound(ctx context.Context, _ int) (float64, error) {
	sum := 0.0
	for range t.batches.Steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		batch := t.batches.Next()
		rate := t.options.Rate * (1 - float64(t.adam.Step)/float64(t.options.Rounds*t.batches.Steps))
		t.net.noise = noise{on: true, seed: t.options.Seed, step: uint64(t.adam.Step)}
		sum += t.computeGradients(batch)
		t.adam.Rate = rate
		t.adam.Update(valuesOf(t.net.learned), gradientArrays(t.net.learned))
		for _, table := range t.net.users {
			table.adam.Update(table.Matrix, rate, t.adam.Step)
		}
		if t.worked != nil {
			t.worked(stepCost * float64(t.batches.Size) * float64(len(t.candidates.Rows)) * float64(t.candidates.Vectors.Cols))
		}
	}
	return sum / float64(t.batches.Steps), nil
}

// computeGradients sets the gradients of the net for a batch, and returns the loss.
func (t *learner) computeGradients(pairs []samples.Pair) float64 {
	t.candidates.Draw(pairs, t.batches.Random)
	b := batch{x: t.candidates.Vectors}
	t.queries = linalg.Resize(t.queries, len(pairs), t.log.Queries.Cols)
	t.users = t.users[:0]
	for i, pair := range pairs {
		copy(t.queries.Row(i), t.log.Queries.Row(int(pair.Query)))
		if t.net.noise.on && t.options.Dropout > 0 {
			drop(t.queries.Row(i), t.options.Dropout, t.net.noise.rowSource(dropQuery, i))
		}
		if len(t.net.users) > 0 {
			t.users = append(t.users, t.log.Users[pair.Query])
		}
	}
	b.q, b.users = t.queries, t.users
	t.scores = linalg.Resize(t.scores, len(pairs), b.x.Rows)
	t.net.forward(t.scores, b)
	loss := t.loss.Apply(t.scores, pairs, t.candidates)
	loss += t.net.backward(t.scores, b)
	return loss + t.net.addPull(t.pull)
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
	v := slices.Concat(t.adam.First, t.adam.Second)
	for _, table := range t.net.users {
		v = append(v, table.adam.First.Data, table.adam.Second.Data)
	}
	return v
}
