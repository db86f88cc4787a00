package fit

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// recipe is how one form is trained.
type recipe struct {
	rate, scale, pull float64
	batch             int
	// limit is the number of items up to which the softmax runs over all of them;
	// beyond it there are that many draws a batch.
	limit, draws int
	rounds       int // of the schedule, over which the rate falls to zero
	stop         int // rounds to take of them; 0: all
	patience     int // rounds without a better judgement before the end
	seed         uint64
}

const (
	// roundPairs is the number of pairs from one judgement to the next, at most.
	roundPairs = 1 << 14
	// roundSteps is the number of steps in between, at least: a short log is
	// learned in small batches, and gone through more than once.
	roundSteps = 20
	minBatch   = 32
)

// train fits f to the pairs. With a judgement it keeps the parameters that were
// judged best, after each round, and returns the number of their rounds: 0 where
// the start was best. Without one it takes the rounds of the recipe. It returns
// the context's error.
func train(ctx context.Context, p *problem, f form, pairs []pair, r recipe, judged func() float64, done func(int)) (int, error) {
	t := newTrainer(p, f, pairs, r)
	stop := r.rounds
	if r.stop > 0 {
		stop = r.stop
	}
	best, at, kept := -1.0, 0, [][]float32(nil)
	if judged != nil {
		best, kept = judged(), snapshot(f)
	}
	for round := 1; round <= stop; round++ {
		if err := t.round(ctx); err != nil {
			return 0, err
		}
		done(1)
		if judged == nil {
			at = round
			continue
		}
		if v := judged(); v > best {
			best, at, kept = v, round, snapshot(f)
		} else if round-at >= r.patience {
			done(stop - round)
			break
		}
	}
	for i, v := range kept {
		copy(f.params()[i], v)
	}
	return at, nil
}

func snapshot(f form) [][]float32 {
	var kept [][]float32
	for _, p := range f.params() {
		kept = append(kept, slices.Clone(p))
	}
	return kept
}

// trainer takes the steps of train.
type trainer struct {
	problem    *problem
	form       form
	recipe     recipe
	candidates *candidates
	adam       *adam
	rng        *rand.Rand
	order      []pair
	next       int // of order
	batch      int
	unit       float64 // mean weight of a pair
	steps      int     // a round
	q, s       rerank.Matrix
}

func newTrainer(p *problem, f form, pairs []pair, r recipe) *trainer {
	rng := rand.New(rand.NewPCG(r.seed, 0xf17))
	t := &trainer{
		problem: p, form: f, recipe: r, rng: rng, adam: newAdam(r.rate, f.params()),
		order: slices.Clone(pairs), next: len(pairs),
		batch: min(r.batch, len(pairs), max(minBatch, len(pairs)/roundSteps)),
	}
	for _, p := range pairs {
		t.unit += float64(p.weight) / float64(len(pairs))
	}
	t.steps = max(roundSteps, (min(len(pairs), roundPairs)+t.batch-1)/t.batch)
	t.candidates = newCandidates(p.items, pairs, t.batch, r.limit, r.draws, rng)
	return t
}

func (t *trainer) round(ctx context.Context) error {
	for range t.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.next+t.batch > len(t.order) {
			t.rng.Shuffle(len(t.order), func(i, j int) { t.order[i], t.order[j] = t.order[j], t.order[i] })
			t.next = 0
		}
		t.adam.rate = t.recipe.rate * (1 - float64(t.adam.step)/float64(t.recipe.rounds*t.steps))
		t.loss(t.order[t.next : t.next+t.batch])
		t.adam.update(t.form.params(), t.form.grads())
		t.next += t.batch
	}
	return nil
}

// loss computes the loss of a batch and its gradients.
func (t *trainer) loss(batch []pair) float64 {
	t.candidates.draw(batch)
	x := t.candidates.vectors
	t.q = grown(t.q, len(batch), t.problem.queries.Cols)
	for i, p := range batch {
		copy(t.q.Row(i), t.problem.queries.Row(int(p.query)))
	}
	t.s = grown(t.s, len(batch), x.Rows)
	t.form.forward(t.s, t.q, x)
	loss := crossEntropy(t.s, batch, t.candidates, t.problem.relevant, t.recipe.scale, t.unit)
	t.form.backward(t.s, t.q, x)
	return loss + t.form.pull(t.recipe.pull)
}
