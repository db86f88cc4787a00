package fit

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// components are those of one side, a row an example, and their gradients.
type components struct {
	rerank.Matrix
	d, norms rerank.Matrix
}

func (c *components) shape(rows, parts, dim int) {
	c.Matrix, c.d = grown(c.Matrix, rows, parts*dim), grown(c.d, rows, parts*dim)
	c.norms = grown(c.norms, rows, parts)
}

// apart is the same numbers with one component a row.
func apart(m rerank.Matrix, dim int) rerank.Matrix {
	return rerank.Matrix{Rows: len(m.Data) / dim, Cols: dim, Data: m.Data}
}

// noise decides what is dropped in one step; the zero value drops nothing.
type noise struct {
	on         bool
	seed, step uint64
}

// row is the source of an example's noise: it does not depend on who computes it.
func (n noise) row(kind, r int) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed^uint64(kind)<<56, n.step<<24|uint64(r)))
}

// Kinds of noise.
const (
	dropQuery = 1 + iota
	dropGate
	dropUser
)

// molBatch is what a step sees: queries, their users, and the candidates.
type molBatch struct {
	q, x  rerank.Matrix
	users []int64 // nil: there are no user tables
}

// forward writes φτ of every query and candidate to s.
func (n *molNet) forward(s rerank.Matrix, b molBatch) {
	o := n.options
	n.itemSide.shape(b.x.Rows, o.PairsItem, n.dim)
	n.item.forward(n.itemSide.Matrix, b.x)
	n.querySide.shape(b.q.Rows, o.PairsQuery, n.dim)
	n.queryForward(b)
	if o.L2Norm {
		normaliseParts(n.itemSide.norms, n.itemSide.Matrix, n.dim, molEps)
		normaliseParts(n.querySide.norms, n.querySide.Matrix, n.dim, molEps)
	}
	n.gates, n.dGates = grown(n.gates, b.q.Rows, n.pairs()), grown(n.dGates, b.q.Rows, n.pairs())
	n.gate.forward(&n.gatePass, n.gates, b.q)
	if !n.full() {
		n.fixed.forward(n, s)
		return
	}
	n.itemGates, n.dItemGates = grown(n.itemGates, b.x.Rows, n.pairs()), grown(n.dItemGates, b.x.Rows, n.pairs())
	n.byItem.forward(&n.itemPass, n.itemGates, b.x)
	n.mixed.forward(n, s)
}

// queryForward projects the queries and appends their users' embeddings.
func (n *molNet) queryForward(b molBatch) {
	if len(n.users) == 0 {
		n.query.forward(n.querySide.Matrix, b.q)
		return
	}
	width := n.options.projected() * n.dim
	n.projected = grown(n.projected, b.q.Rows, width)
	n.query.forward(n.projected, b.q)
	for r := range b.q.Rows {
		row := n.querySide.Row(r)
		copy(row, n.projected.Row(r))
		for t, table := range n.users {
			out := row[width+t*n.dim:][:n.dim]
			copy(out, table.Row(table.row(b.users[r])))
			n.dropUser(out, r, t)
		}
	}
}

// dropUser drops elements of a user's embedding or of its gradient.
func (n *molNet) dropUser(v []float32, row, table int) {
	if p := n.options.UserDropout; n.noise.on && p > 0 {
		drop(v, p, n.noise.row(dropUser+table, row))
	}
}

// drop zeroes each element with probability p and divides the others by 1 − p.
func drop(v []float32, p float64, rng *rand.Rand) {
	scale := float32(1 / (1 - p))
	for i := range v {
		if rng.Float64() < p {
			v[i] = 0
		} else {
			v[i] *= scale
		}
	}
}

// backward computes all gradients from that of the last forward's s, and returns
// the load-balancing loss, of which they are too.
func (n *molNet) backward(ds rerank.Matrix, b molBatch) float64 {
	o := n.options
	var balance float64
	if n.full() {
		balance = n.mixed.backward(n, ds)
		n.byItem.backward(&n.itemPass, grads(n.byItem.parameters()), nil, n.dItemGates)
	} else {
		balance = n.fixed.backward(n, ds)
	}
	n.gate.backward(&n.gatePass, grads(n.gate.parameters()), nil, n.dGates)
	if o.L2Norm {
		normaliseBackward(n.itemSide.d, n.itemSide.Matrix, n.itemSide.norms, n.dim, molEps)
		normaliseBackward(n.querySide.d, n.querySide.Matrix, n.querySide.norms, n.dim, molEps)
	}
	n.item.learn(nil, b.x, n.itemSide.d)
	if len(n.users) == 0 {
		n.query.backward(n.querySide.d)
		return balance
	}
	width := o.projected() * n.dim
	n.dProjected = grown(n.dProjected, b.q.Rows, width)
	for r := range b.q.Rows {
		row := n.querySide.d.Row(r)
		copy(n.dProjected.Row(r), row)
		for t, table := range n.users {
			d := row[width+t*n.dim:][:n.dim]
			n.dropUser(d, r, t)
			table.adam.add(table.row(b.users[r]), d)
		}
	}
	n.query.backward(n.dProjected)
	return balance
}

// guardGates is how much more strongly a guarded net's gates are pulled.
const guardGates = 10

// pull adds the gradient of λ‖θ − θ₀‖² of all parameters but the user tables,
// θ₀ their start, and returns its value. A guarded net's gates count more, and
// the biases of its sides stay where they are.
func (n *molNet) pull(lambda float64) float64 {
	sides := n.query.parameters()
	sides = append(sides[:len(sides):len(sides)], n.item.parameters()...)
	var sum float64
	for k, p := range n.learned {
		factor := lambda
		if n.guarded && k >= len(sides) {
			factor *= guardGates
		}
		for i, v := range p.Data {
			d := v - p.start[i]
			sum += factor * float64(d) * float64(d)
			p.grad.Data[i] += float32(2*factor) * d
		}
	}
	if n.guarded {
		clear(n.query.out.bias.grad.Data)
		clear(n.item.bias.grad.Data)
	}
	return sum
}

// gateProbabilities turns logits into gates, in place: a softmax over those that
// are not dropped, or over all where all would be.
func gateProbabilities(g []float32, p float64, rng *rand.Rand) {
	if rng != nil && p > 0 {
		kept := false
		mask := make([]bool, len(g))
		for i := range mask {
			mask[i] = rng.Float64() >= p
			kept = kept || mask[i]
		}
		for i, keep := range mask {
			if kept && !keep {
				g[i] = excluded
			}
		}
	}
	kernel.Softmax(g)
}

// softmaxBackward replaces the gradient d of the gates g by that of their logits.
func softmaxBackward(d, g []float32) {
	var mean float32
	for i, v := range g {
		mean += v * d[i]
	}
	for i, v := range g {
		d[i] = v * (d[i] - mean)
	}
}

// balancing is L_MI = −H(mean gates) + mean H(gates) over n gates (RAILS, eq. 3),
// natural logarithms of p + 1e-6 as in the reference implementation.
type balancing struct {
	weight float64
	count  int
	sum    []float64 // of the gates
	mixed  float64   // Σ p·log(p + ε) over all gates
	slope  []float32 // of −H(mean gates) by each gate
}

const balanceEps = 1e-6

func (b *balancing) reset(weight float64, pairs int) {
	b.weight, b.count, b.mixed = weight, 0, 0
	b.sum = append(b.sum[:0], make([]float64, pairs)...)
}

// see takes gates and leaves the logarithms of p + ε in logs, for add.
func (b *balancing) see(logs, g []float32) {
	b.count++
	for i, v := range g {
		l := math.Log(float64(v) + balanceEps)
		logs[i] = float32(l)
		b.sum[i] += float64(v)
		b.mixed += float64(v) * l
	}
}

func (b *balancing) merge(other *balancing) {
	b.count += other.count
	b.mixed += other.mixed
	for i, v := range other.sum {
		b.sum[i] += v
	}
}

// loss is weight·L_MI; it prepares what add needs.
func (b *balancing) loss() float64 {
	n := float64(b.count)
	loss := -b.mixed / n
	b.slope = b.slope[:0]
	for _, v := range b.sum {
		p := v / n
		loss += p * math.Log(p+balanceEps)
		b.slope = append(b.slope, float32(math.Log(p+balanceEps)+p/(p+balanceEps)))
	}
	return b.weight * loss
}

// add adds the gradient by the gates g to d.
func (b *balancing) add(d, logs, g []float32) {
	scale := float32(b.weight / float64(b.count))
	for i, v := range g {
		d[i] += scale * (b.slope[i] - logs[i] - v/(v+balanceEps))
	}
}
