package mol

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// components holds the components of one side, one query or candidate a row, and
// their gradient d. norms holds what each component was divided by.
type components struct {
	rerank.Matrix
	d, norms rerank.Matrix
}

// resize makes room for so many rows.
func (c *components) resize(rows, parts, dim int) {
	c.Matrix, c.d = linalg.Resize(c.Matrix, rows, parts*dim), linalg.Resize(c.d, rows, parts*dim)
	c.norms = linalg.Resize(c.norms, rows, parts)
}

// splitRows returns the same numbers with one component a row.
func splitRows(m rerank.Matrix, dim int) rerank.Matrix {
	return rerank.Matrix{Rows: len(m.Data) / dim, Cols: dim, Data: m.Data}
}

// noise decides what one training step drops. The zero value drops nothing.
type noise struct {
	on         bool
	seed, step uint64
}

// rowSource returns the random source of a row, for one kind of dropout. It does not
// depend on which core computes the row.
func (n noise) rowSource(kind, r int) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed^uint64(kind)<<56, n.step<<24|uint64(r)))
}

// Kinds of dropout. Each user table has one, from dropUser on.
const (
	dropQuery = 1 + iota
	dropGate
	dropUser
)

// batch is the input of a step: queries, their users, and candidates.
type batch struct {
	q, x  rerank.Matrix
	users []int64 // nil if there are no user tables
}

// forward writes φτ of every query and candidate to s.
func (n *net) forward(s rerank.Matrix, b batch) {
	o := n.options
	n.itemSide.resize(b.x.Rows, o.PairsItem, n.dim)
	n.item.forward(n.itemSide.Matrix, b.x)
	n.querySide.resize(b.q.Rows, o.PairsQuery, n.dim)
	n.projectQueries(b)
	if o.L2Norm {
		normaliseParts(n.itemSide.norms, n.itemSide.Matrix, n.dim, normEps)
		normaliseParts(n.querySide.norms, n.querySide.Matrix, n.dim, normEps)
	}
	n.gates, n.dGates = linalg.Resize(n.gates, b.q.Rows, n.pairs()), linalg.Resize(n.dGates, b.q.Rows, n.pairs())
	n.gate.forward(&n.gatePass, n.gates, b.q)
	if !n.hasFullGates() {
		n.queryMixing.forward(n, s)
		return
	}
	n.itemGates, n.dItemGates = linalg.Resize(n.itemGates, b.x.Rows, n.pairs()), linalg.Resize(n.dItemGates, b.x.Rows, n.pairs())
	n.byItem.forward(&n.itemPass, n.itemGates, b.x)
	n.fullMixing.forward(n, s)
}

// projectQueries projects the queries and appends their users' embeddings.
func (n *net) projectQueries(b batch) {
	if len(n.users) == 0 {
		n.query.forward(n.querySide.Matrix, b.q)
		return
	}
	width := n.options.projectedPairs() * n.dim
	n.projected = linalg.Resize(n.projected, b.q.Rows, width)
	n.query.forward(n.projected, b.q)
	for r := range b.q.Rows {
		row := n.querySide.Row(r)
		copy(row, n.projected.Row(r))
		for t, table := range n.users {
			out := row[width+t*n.dim:][:n.dim]
			copy(out, table.Row(table.rowOf(b.users[r])))
			n.dropUser(out, r, t)
		}
	}
}

// dropUser drops elements of a user's embedding or of its gradient.
func (n *net) dropUser(v []float32, row, table int) {
	if p := n.options.UserDropout; n.noise.on && p > 0 {
		drop(v, p, n.noise.rowSource(dropUser+table, row))
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

// backward computes all gradients from ds, the gradient by the s of the last forward
// pass, adds the gradients of the load-balancing loss, and returns that loss.
func (n *net) backward(ds rerank.Matrix, b batch) float64 {
	o := n.options
	var balance float64
	if n.hasFullGates() {
		balance = n.fullMixing.backward(n, ds)
		n.byItem.backward(&n.itemPass, gradientsOf(n.byItem.parameters()), nil, n.dItemGates)
	} else {
		balance = n.queryMixing.backward(n, ds)
	}
	n.gate.backward(&n.gatePass, gradientsOf(n.gate.parameters()), nil, n.dGates)
	if o.L2Norm {
		normaliseBackward(n.itemSide.d, n.itemSide.Matrix, n.itemSide.norms, n.dim, normEps)
		normaliseBackward(n.querySide.d, n.querySide.Matrix, n.querySide.norms, n.dim, normEps)
	}
	n.item.backwardOwn(nil, b.x, n.itemSide.d)
	if len(n.users) == 0 {
		n.query.backward(n.querySide.d)
		return balance
	}
	width := o.projectedPairs() * n.dim
	n.dProjected = linalg.Resize(n.dProjected, b.q.Rows, width)
	for r := range b.q.Rows {
		row := n.querySide.d.Row(r)
		copy(n.dProjected.Row(r), row)
		for t, table := range n.users {
			d := row[width+t*n.dim:][:n.dim]
			n.dropUser(d, r, t)
			table.adam.AddGradient(table.rowOf(b.users[r]), d)
		}
	}
	n.query.backward(n.dProjected)
	return balance
}

// guardGates is how much more strongly a guarded net's gates are pulled.
const guardGates = 10

// addPull adds the gradient of λ‖θ − θ₀‖², where θ are all parameters but the user
// tables and θ₀ their start, and returns its value. A guarded net pulls its gates more
// strongly and leaves the biases of its sides alone.
func (n *net) addPull(lambda float64) float64 {
	sides := n.query.parameters()
	sides = append(sides[:len(sides):len(sides)], n.item.parameters()...)
	var sum float64
	for k, p := range n.learned {
		factor := lambda
		if n.guarded && k >= len(sides) {
			factor *= guardGates
		}
		sum += linalg.AddPull(p.grad.Data, p.Data, p.start, factor)
	}
	if n.guarded {
		clear(n.query.out.bias.grad.Data)
		clear(n.item.bias.grad.Data)
	}
	return sum
}

// computeGates turns the inputs g of the gates into the gates, in place: a softmax over
// those that are not dropped, or over all if all would be. Each is dropped with
// probability p.
func computeGates(g []float32, p float64, rng *rand.Rand) {
	if rng != nil && p > 0 {
		kept := false
		mask := make([]bool, len(g))
		for i := range mask {
			mask[i] = rng.Float64() >= p
			kept = kept || mask[i]
		}
		for i, keep := range mask {
			if kept && !keep {
				g[i] = train.Excluded
			}
		}
	}
	linalg.Softmax(g)
}

// softmaxBackward replaces the gradient d of the gates g by the gradient of the inputs
// of their softmax.
func softmaxBackward(d, g []float32) {
	var mean float32
	for i, v := range g {
		mean += v * d[i]
	}
	for i, v := range g {
		d[i] = v * (d[i] - mean)
	}
}

// balancing computes the load-balancing loss L_MI = −H(mean gates) + mean H(gates)
// (RAILS, eq. 3), with natural logarithms of p + 1e-6 as in the reference
// implementation.
type balancing struct {
	weight     float64
	count      int       // examples seen
	sums       []float64 // of the gates of each pair of components
	negEntropy float64   // Σ p·log(p + ε) over all gates of all examples
	slope      []float32 // derivative of −H(mean gates) by each sum, times count
}

const balanceEps = 1e-6

// reset begins a batch.
func (b *balancing) reset(weight float64, pairs int) {
	b.weight, b.count, b.negEntropy = weight, 0, 0
	b.sums = append(b.sums[:0], make([]float64, pairs)...)
}

// addExample counts the gates of an example and writes the logarithms of p + ε to
// logs, which addGradient needs.
func (b *balancing) addExample(logs, g []float32) {
	b.count++
	for i, v := range g {
		logs[i] = v + balanceEps
	}
	linalg.Logs(logs)
	sums, negEntropy := b.sums[:len(g)], float32(0)
	for i, v := range g {
		sums[i] += float64(v)
		negEntropy += v * logs[i]
	}
	b.negEntropy += float64(negEntropy)
}

// merge adds the examples of another part of the batch.
func (b *balancing) merge(other *balancing) {
	b.count += other.count
	b.negEntropy += other.negEntropy
	for i, v := range other.sums {
		b.sums[i] += v
	}
}

// loss returns weight·L_MI of the examples and prepares addGradient.
func (b *balancing) loss() float64 {
	n := float64(b.count)
	loss := -b.negEntropy / n
	b.slope = b.slope[:0]
	for _, v := range b.sums {
		p := v / n
		loss += p * math.Log(p+balanceEps)
		b.slope = append(b.slope, float32(math.Log(p+balanceEps)+p/(p+balanceEps)))
	}
	return b.weight * loss
}

// addGradient adds the gradient of weight·L_MI by the gates g of an example to d.
func (b *balancing) addGradient(d, logs, g []float32) {
	scale := float32(b.weight / float64(b.count))
	for i, v := range g {
		d[i] += scale * (b.slope[i] - logs[i] - v/(v+balanceEps))
	}
}
