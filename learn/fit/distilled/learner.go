package distilled

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// lessons holds the training data of a probe: for each training query, its best items by the
// similarity. Their scores, divided by a temperature, define the target distribution.
type lessons struct {
	items, queries rerank.Matrix    // vectors of norm 1, or all divided by one number
	train          []int32          // rows of the training queries
	lists          []teacher.Ranked // the best items of each training query
	temperature    float64
}

// learner trains a head by the cross-entropy between the softmax of the similarity, at a
// temperature, and the softmax of ⟨u(q), x⟩ over the same items. It is a train.Learner.
type learner struct {
	*lessons
	head    *head
	options Options
	pool    *pool
	batch   int
	steps   int // steps in a round

	// renewLists searches with a head and rebuilds the lists from the found items. It is nil if the
	// lists rank all items.
	renewLists func(ctx context.Context, h *head) error
	// finder holds the head parameters with which the current lists were found; nil for the first
	// lists. isStale means that the lists have to be rebuilt.
	finder  [][]float32
	isStale bool

	q, u, s rerank.Matrix // the queries of a batch, their probes, and the scores
}

var _ train.Learner = (*learner)(nil)

func newLearner(l *lessons, h *head, o Options) *learner {
	d := &learner{lessons: l, head: h, options: o}
	d.batch, d.steps = train.BatchSize(o.Batch, len(l.train), len(l.train))
	d.makePool()
	return d
}

// makePool makes the pool for the current lists.
func (d *learner) makePool() {
	d.pool = newPool(d.items, d.lists, d.batch, d.options.Softmax, d.options.Draws)
}

// Parameters implements train.Learner.
func (d *learner) Parameters() [][]float32 { return d.head.parameters() }

// TakeRound implements train.Learner. What it draws depends on the seed and the round
// alone. The rates fall linearly to zero over all rounds.
func (d *learner) TakeRound(ctx context.Context, round int) (float64, error) {
	if err := d.updateLists(ctx, round); err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(d.options.Seed, 0xd157_0000+uint64(round)))
	var order []int
	var sum float64
	for step := range d.steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if len(order) < d.batch {
			order = rng.Perm(len(d.train))
		}
		sum += d.computeGradients(order[:d.batch], rng)
		order = order[d.batch:]
		d.head.takeStep(1 - float64(round*d.steps+step)/float64(d.options.Rounds*d.steps))
	}
	return sum / float64(d.steps), nil
}

// updateLists rebuilds the lists with the current head after rounds 1, 2, 4, 8 and so on. After
// Resume it rebuilds the lists that were in use.
func (d *learner) updateLists(ctx context.Context, round int) error {
	if d.renewLists == nil {
		return nil
	}
	if round > 0 && round&(round-1) == 0 {
		d.finder, d.isStale = linalg.CloneArrays(d.Parameters()), true
	}
	if !d.isStale {
		return nil
	}
	present := linalg.CloneArrays(d.Parameters())
	linalg.CopyArrays(d.Parameters(), d.finder)
	err := d.renewLists(ctx, d.head)
	linalg.CopyArrays(d.Parameters(), present)
	if err != nil {
		return err
	}
	d.isStale = false
	d.makePool()
	return nil
}

// Position implements train.Learner.
func (d *learner) Position() train.Position {
	return train.Position{Moments: d.head.moments(), Steps: d.head.optimisers[0].Step, Other: d.finder}
}

// Resume implements train.Learner.
func (d *learner) Resume(p train.Position) error {
	if err := train.RestoreArrays(d.head.moments(), p.Moments); err != nil {
		return err
	}
	for _, a := range d.head.optimisers {
		a.Step = p.Steps
	}
	if len(p.Other) == 0 {
		return nil
	}
	if d.renewLists == nil || len(p.Other) != len(d.Parameters()) {
		return fmt.Errorf("%w: its lists are not those of this model", fit.ErrCheckpoint)
	}
	d.finder, d.isStale = p.Other, true
	return nil
}

// sampleLoss returns the mean loss of a batch chosen by the seed.
func (d *learner) sampleLoss(seed uint64) float64 {
	rng := rand.New(rand.NewPCG(seed, 0x5a3))
	loss := d.forward(rng.Perm(len(d.train))[:d.batch], rng)
	if math.IsNaN(loss) {
		return math.Inf(1)
	}
	return loss
}

// computeGradients sets the gradients of the head for a batch, given as numbers of
// training queries, and returns the mean loss.
func (d *learner) computeGradients(batch []int, rng *rand.Rand) float64 {
	loss := d.forward(batch, rng)
	linalg.Multiply(d.u, d.s, false, d.pool.vectors, false)
	d.head.backward(d.u, d.q)
	return loss
}

// forward returns the mean loss of a batch, and leaves its gradient in d.s.
func (d *learner) forward(batch []int, rng *rand.Rand) float64 {
	d.pool.drawCandidates(batch, d.lists, rng)
	d.q = linalg.Resize(d.q, len(batch), d.queries.Cols)
	for i, n := range batch {
		copy(d.q.Row(i), d.queries.Row(int(d.train[n])))
	}
	d.u, d.s = linalg.Resize(d.u, len(batch), d.items.Cols), linalg.Resize(d.s, len(batch), d.pool.vectors.Rows)
	d.head.forward(d.u, d.q)
	linalg.Multiply(d.s, d.u, false, d.pool.vectors, true)
	losses := make([]float64, len(batch))
	linalg.Parallel(len(batch), 4, func(from, to int) {
		var weights []float32
		for i := from; i < to; i++ {
			list := d.lists[batch[i]]
			weights = slices.Grow(weights[:0], len(list.Rows))[:len(list.Rows)]
			writeWeights(weights, list, d.temperature)
			losses[i] = d.pool.divergence(d.s.Row(i), list.Rows, weights, 1/float32(len(batch)))
		}
	})
	return judge.Mean(losses, nil)
}

// negligible is how far a logit has to lie below the greatest to count as −∞: e⁻²⁰ is
// 2·10⁻⁹.
const negligible = 20

// divergence returns the Kullback-Leibler divergence KL(p ‖ softmax(logits)) of a query. It
// replaces the logits, one for each candidate, by share times its gradient. The target p gives
// weights to the items in rows. The logits of other candidates, which are there by chance, are
// corrected by the log of that chance.
func (p *pool) divergence(logits []float32, rows []int32, weights []float32, share float32) float64 {
	own := p.correctOthers(logits, rows)
	top := float32(math.Inf(-1))
	for _, v := range logits {
		top = max(top, v)
	}
	var sum float64
	for i, v := range logits {
		if v < top-negligible {
			logits[i] = 0
			continue
		}
		e := kernel.Exp(v - top)
		logits[i] = e
		sum += float64(e)
	}
	scale, level := share/float32(sum), float64(top)+math.Log(sum)
	for i := range logits {
		logits[i] *= scale
	}
	var loss float64
	for i, w := range weights {
		logits[p.column[rows[i]]] -= w * share
		if w > 0 {
			loss += float64(w) * (math.Log(float64(w)) + level - float64(own[i]))
		}
	}
	return loss
}

// correctOthers returns the logits of the items in rows, and corrects the logits of the other
// candidates.
func (p *pool) correctOthers(logits []float32, rows []int32) []float32 {
	own := make([]float32, len(rows))
	for i, x := range rows {
		own[i] = logits[p.column[x]]
	}
	if p.correction != nil {
		linalg.AddScaled(logits, p.correction, 1)
		for i, x := range rows {
			logits[p.column[x]] = own[i]
		}
	}
	return own
}
