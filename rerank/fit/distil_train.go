package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// lessons are what a probe learns from: the best items of every training query
// by the similarity, at a temperature.
type lessons struct {
	items, queries rerank.Matrix // unit vectors, or divided by one number
	train          []int32       // query rows
	lists          []ranked      // of each of train
	temperature    float64
}

// distiller trains one head by the cross-entropy between the softmax of the
// similarity, at a temperature, and that of ⟨u(q), x⟩ over the same items.
type distiller struct {
	*lessons
	head  *probeHead
	pool  *pool
	batch int
	steps int // a round

	q, u, s rerank.Matrix
}

func newDistiller(l *lessons, h *probeHead, o DistilOptions) *distiller {
	n := len(l.train)
	d := &distiller{lessons: l, head: h, batch: min(o.Batch, n, max(minBatch, n/roundSteps))}
	d.steps = max(roundSteps, (min(n, roundPairs)+d.batch-1)/d.batch)
	d.pool = newPool(l.items, l.lists, d.batch, o.Softmax, o.Draws)
	return d
}

// round takes the steps of a round; what is drawn depends on the seed and the
// round alone, so that a fit can go on from any of them. The rates fall linearly
// to zero over all rounds. It returns the mean loss, or the context's error.
func (d *distiller) round(ctx context.Context, seed uint64, round, rounds int) (float64, error) {
	rng := rand.New(rand.NewPCG(seed, 0xd157_0000+uint64(round)))
	var order []int
	var sum float64
	for step := range d.steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if len(order) < d.batch {
			order = rng.Perm(len(d.train))
		}
		sum += d.loss(order[:d.batch], rng)
		order = order[d.batch:]
		d.head.step(1 - float64(round*d.steps+step)/float64(rounds*d.steps))
	}
	return sum / float64(d.steps), nil
}

// loss computes the loss of a batch, numbers of train, and its gradients.
func (d *distiller) loss(batch []int, rng *rand.Rand) float64 {
	loss := d.forward(batch, rng)
	multiply(d.u, d.s, false, d.pool.vectors, false)
	d.head.backward(d.u, d.q)
	return loss
}

// forward computes the mean loss of a batch, and its gradient in s.
func (d *distiller) forward(batch []int, rng *rand.Rand) float64 {
	d.pool.draw(batch, d.lists, rng)
	d.q = grown(d.q, len(batch), d.queries.Cols)
	for i, n := range batch {
		copy(d.q.Row(i), d.queries.Row(int(d.train[n])))
	}
	d.u, d.s = grown(d.u, len(batch), d.items.Cols), grown(d.s, len(batch), d.pool.vectors.Rows)
	d.head.forward(d.u, d.q)
	multiply(d.s, d.u, false, d.pool.vectors, true)
	losses := make([]float64, len(batch))
	spread(len(batch), 4, func(from, to int) {
		var weights []float32
		for i := from; i < to; i++ {
			list := d.lists[batch[i]]
			weights = slices.Grow(weights[:0], len(list.rows))[:len(list.rows)]
			list.weights(weights, d.temperature)
			losses[i] = d.pool.divergence(d.s.Row(i), list.rows, weights, 1/float32(len(batch)))
		}
	})
	return mean(losses)
}

// negligible is the distance below the greatest logit from which on exp is taken
// for 0: e⁻²⁰ is 2·10⁻⁹.
const negligible = 20

// divergence replaces the logits of a query, one a candidate, by the gradient of
// the Kullback-Leibler divergence KL(p ‖ softmax(logits)) times share, and returns
// the divergence. p is the target: weights of item rows. Candidates that are
// there by chance are corrected by its log, the targets themselves are not.
func (p *pool) divergence(logits []float32, rows []int32, weights []float32, share float32) float64 {
	own := p.own(logits, rows)
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

// own returns the logits of the rows, and corrects those of all other candidates.
func (p *pool) own(logits []float32, rows []int32) []float32 {
	own := make([]float32, len(rows))
	for i, x := range rows {
		own[i] = logits[p.column[x]]
	}
	if p.correction != nil {
		add(logits, p.correction, 1)
		for i, x := range rows {
			logits[p.column[x]] = own[i]
		}
	}
	return own
}
