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

// watch is told of the rounds of a fit; the zero value is nobody.
type watch struct {
	from *trainState // where to go on; nil: at the start
	// after is called with the state after each round and its mean loss.
	after func(s *trainState, loss float64) error
}

// trainState is what a trainer needs to go on, beside its data and recipe.
type trainState struct {
	Round  int
	Arrays [][]float32 // the parameters, then the moments of Adam
	Step   int
	Order  []int
	Next   int
	Random []byte
	Best   float64
	At     int         // the round of Best
	Kept   [][]float32 // its parameters
}

// train fits f to the pairs. With a judgement it keeps the parameters that were
// judged best, after each round, and returns the number of their rounds: 0 where
// the start was best. Without one it takes the rounds of the recipe. It returns
// the context's error; f is then the best so far.
func train(ctx context.Context, p *problem, f form, pairs []pair, r recipe, judged func() float64, w watch) (int, error) {
	t := newTrainer(p, f, pairs, r)
	s := &trainState{Best: -1}
	switch {
	case w.from != nil:
		s = w.from
		if err := t.restore(s); err != nil {
			return 0, err
		}
	case judged != nil:
		s.Best, s.Kept = judged(), clones(f.params())
	}
	stop := r.rounds
	if r.stop > 0 {
		stop = r.stop
	}
	var failed error
	for failed == nil && s.Round < stop && (judged == nil || s.Round-s.At < r.patience) {
		loss, err := t.round(ctx)
		if err != nil {
			failed = err
			break
		}
		s.Round++
		if judged == nil {
			s.At = s.Round
		} else if v := judged(); v > s.Best || v == s.Best && s.At > 0 { // later rounds are steadier
			s.Best, s.At, s.Kept = v, s.Round, clones(f.params())
		}
		if w.after != nil {
			t.describe(s)
			failed = w.after(s, loss)
		}
	}
	for i, v := range s.Kept {
		copy(f.params()[i], v)
	}
	return s.At, failed
}

func clones(arrays [][]float32) [][]float32 {
	var out [][]float32
	for _, a := range arrays {
		out = append(out, slices.Clone(a))
	}
	return out
}

// trainer takes the steps of train.
type trainer struct {
	problem    *problem
	form       form
	recipe     recipe
	candidates *candidates
	adam       *adam
	source     *rand.PCG
	rng        *rand.Rand
	pairs      []pair // query by query
	starts     []int  // of each query's pairs, and their end
	order      []int  // of the queries
	next       int    // of order
	chosen     []pair // of a batch
	batch      int
	unit       float64 // mean weight of a pair
	steps      int     // a round
	q, s       rerank.Matrix
}

func newTrainer(p *problem, f form, pairs []pair, r recipe) *trainer {
	source := rand.NewPCG(r.seed, 0xf17)
	t := &trainer{
		problem: p, form: f, recipe: r, source: source, rng: rand.New(source), adam: newAdam(r.rate, f.params()),
		pairs: pairs, starts: starts(pairs),
	}
	queries := len(t.starts) - 1
	for i := range queries {
		t.order = append(t.order, i)
	}
	t.next = queries
	t.batch = min(r.batch, queries, max(minBatch, len(pairs)/roundSteps))
	t.chosen = make([]pair, t.batch)
	for _, p := range pairs {
		t.unit += float64(p.weight) / float64(len(pairs))
	}
	t.steps = max(roundSteps, (min(len(pairs), roundPairs)+t.batch-1)/t.batch)
	t.candidates = newCandidates(p.items, pairs, t.starts, t.batch, r.limit, r.draws, t.rng)
	return t
}

// arrays are the parameters and the moments of Adam.
func (t *trainer) arrays() [][]float32 {
	return slices.Concat(t.form.params(), t.adam.first, t.adam.second)
}

// describe writes the state to s. Marshalling a PCG does not fail.
func (t *trainer) describe(s *trainState) {
	s.Arrays, s.Step, s.Order, s.Next = t.arrays(), t.adam.step, t.order, t.next
	s.Random, _ = t.source.MarshalBinary()
}

func (t *trainer) restore(s *trainState) error {
	for i, a := range t.arrays() {
		copy(a, s.Arrays[i])
	}
	copy(t.order, s.Order)
	t.adam.step, t.next = s.Step, s.Next
	return t.source.UnmarshalBinary(s.Random)
}

// round returns the mean loss of its steps.
func (t *trainer) round(ctx context.Context) (float64, error) {
	var sum float64
	for range t.steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t.adam.rate = t.recipe.rate * (1 - float64(t.adam.step)/float64(t.recipe.rounds*t.steps))
		sum += t.loss(t.choose())
		t.adam.update(t.form.params(), t.form.grads())
	}
	return sum / float64(t.steps), nil
}

// choose returns the next batch: queries in random order, each with one of its
// items. A query counts the same however many it has, as in the means that judge
// the fit.
func (t *trainer) choose() []pair {
	if t.next+t.batch > len(t.order) {
		t.rng.Shuffle(len(t.order), func(i, j int) { t.order[i], t.order[j] = t.order[j], t.order[i] })
		t.next = 0
	}
	for i, q := range t.order[t.next : t.next+t.batch] {
		from, to := t.starts[q], t.starts[q+1]
		if to-from > 1 {
			from += t.rng.IntN(to - from)
		}
		t.chosen[i] = t.pairs[from]
	}
	t.next += t.batch
	return t.chosen
}

// starts are the places where the pairs of each query begin, and the end of all.
func starts(pairs []pair) []int {
	var at []int
	for i, p := range pairs {
		if i == 0 || p.query != pairs[i-1].query {
			at = append(at, i)
		}
	}
	return append(at, len(pairs))
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
	loss := crossEntropy(t.s, batch, t.candidates, t.problem, t.recipe.scale, t.unit)
	t.form.backward(t.s, t.q, x)
	return loss + t.form.pull(t.recipe.pull)
}
