package mol

import (
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// queryMixing mixes the logits by gates of the query alone:
// φτ = Σ_j ⟨Σ_i π_ij(q) f_i, g_j⟩, which is one inner product.
type queryMixing struct {
	u, du   rerank.Matrix // for each query the sums Σ_i π_ij f_i, side by side; their gradient
	logs    rerank.Matrix // logarithms of the gates
	balance balancing
}

// forward writes φτ of every query and candidate to s.
func (m *queryMixing) forward(n *net, s rerank.Matrix) {
	o := n.options
	m.u, m.du = linalg.Resize(m.u, s.Rows, o.PairsItem*n.dim), linalg.Resize(m.du, s.Rows, o.PairsItem*n.dim)
	clear(m.u.Data)
	linalg.Parallel(s.Rows, 8, func(from, to int) {
		for b := from; b < to; b++ {
			gates, f, u := n.gates.Row(b), n.querySide.Row(b), m.u.Row(b)
			computeGates(gates, o.GateDropout, n.gateNoise(b))
			for l, g := range gates {
				i, j := l/o.PairsItem, l%o.PairsItem
				linalg.AddScaled(u[j*n.dim:(j+1)*n.dim], f[i*n.dim:(i+1)*n.dim], float64(g))
			}
		}
	})
	linalg.Multiply(s, m.u, false, n.itemSide.Matrix, true)
}

// backward computes all gradients from ds, the gradient by φτ, and returns the
// load-balancing loss.
func (m *queryMixing) backward(n *net, ds rerank.Matrix) float64 {
	o := n.options
	linalg.Multiply(m.du, ds, false, n.itemSide.Matrix, false)
	linalg.Multiply(n.itemSide.d, ds, true, m.u, false)
	m.balance.reset(o.Balance, n.pairs())
	m.logs = linalg.Resize(m.logs, ds.Rows, n.pairs())
	for b := range ds.Rows {
		m.balance.addExample(m.logs.Row(b), n.gates.Row(b))
	}
	loss := m.balance.loss()
	clear(n.querySide.d.Data)
	linalg.Parallel(ds.Rows, 8, func(from, to int) {
		for b := from; b < to; b++ {
			gates, d, f, df, du := n.gates.Row(b), n.dGates.Row(b), n.querySide.Row(b), n.querySide.d.Row(b), m.du.Row(b)
			for l, g := range gates {
				i, j := l/o.PairsItem*n.dim, l%o.PairsItem*n.dim
				d[l] = kernel.Dot(du[j:j+n.dim], f[i:i+n.dim])
				linalg.AddScaled(df[i:i+n.dim], du[j:j+n.dim], float64(g))
			}
			m.balance.addGradient(d, m.logs.Row(b), gates)
			softmaxBackward(d, gates)
		}
	})
	return loss
}

// gateNoise returns the source that decides which gates of a row are dropped, or nil
// if none are.
func (n *net) gateNoise(row int) *rand.Rand {
	if !n.noise.on || n.options.GateDropout == 0 {
		return nil
	}
	return n.noise.rowSource(dropGate, row)
}

// fullMixing mixes the logits l_ij = ⟨f_i, g_j⟩ by gates of the query, the item and
// the logits: φτ = Σ_ij π_ij(q, x)·l_ij. An example is a query with a candidate;
// examples are computed in chunks of whole queries.
type fullMixing struct {
	logits  rerank.Matrix // row b·P_Q + i, column x·P_X + j: l_ij, then its gradient
	chunks  []*mixingChunk
	balance balancing
}

// mixingChunk holds the examples of some queries. It has gradients of its own, so that
// their sum does not depend on which core computed which chunk.
type mixingChunk struct {
	from, to int           // queries
	logits   rerank.Matrix // divided by τ, an example a row
	before   rerank.Matrix // inputs of the gates: query part ⊙ item part + pair part
	after    rerank.Matrix // SiLU of before, then the gates
	silu     rerank.Matrix // SiLU of before, for the backward pass
	logs     rerank.Matrix // logarithms of the gates
	d        rerank.Matrix // gradient of the gates, then of before
	dLogits  rerank.Matrix // gradient of logits
	pass     perceptronPass
	balance  balancing
	pair     []rerank.Matrix // gradients of the parameters of byPair
	items    rerank.Matrix   // gradient of the item part of the gates
}

// chunkRows is about the number of examples of a chunk.
const chunkRows = 2048

// forward writes φτ of every query and candidate to s.
func (m *fullMixing) forward(n *net, s rerank.Matrix) {
	m.logits = linalg.Resize(m.logits, s.Rows*n.options.PairsQuery, s.Cols*n.options.PairsItem)
	linalg.Multiply(m.logits, splitRows(n.querySide.Matrix, n.dim), false, splitRows(n.itemSide.Matrix, n.dim), true)
	size := max(1, chunkRows/s.Cols)
	count := (s.Rows + size - 1) / size
	for len(m.chunks) < count {
		m.chunks = append(m.chunks, new(mixingChunk))
	}
	m.chunks = m.chunks[:count]
	m.balance.reset(n.options.Balance, n.pairs())
	linalg.Parallel(count, 1, func(from, to int) {
		for c := from; c < to; c++ {
			m.chunks[c].from, m.chunks[c].to = c*size, min((c+1)*size, s.Rows)
			m.chunks[c].forward(n, m, s)
		}
	})
	for _, c := range m.chunks {
		m.balance.merge(&c.balance)
	}
}

func (c *mixingChunk) forward(n *net, m *fullMixing, s rerank.Matrix) {
	rows, pairs := (c.to-c.from)*s.Cols, n.pairs()
	c.logits, c.before, c.after = linalg.Resize(c.logits, rows, pairs), linalg.Resize(c.before, rows, pairs), linalg.Resize(c.after, rows, pairs)
	c.eachLogits(n, m, s.Cols, func(example, global []float32) { copy(example, global) })
	inverse := float32(1 / n.options.Temperature)
	for i := range c.logits.Data {
		c.logits.Data[i] *= inverse
	}
	n.byPair.forward(&c.pass, c.before, c.logits)
	for r := range rows {
		query, item, z := n.gates.Row(c.from+r/s.Cols), n.itemGates.Row(r%s.Cols), c.before.Row(r)
		for l, v := range query {
			z[l] += v * item[l]
		}
	}
	copy(c.after.Data, c.before.Data)
	kernel.Best().SiLU(c.after.Data)
	c.balance.reset(0, pairs)
	c.logs = linalg.Resize(c.logs, rows, pairs)
	tau := float32(n.options.Temperature)
	var rng *rand.Rand
	for r := range rows {
		if r%s.Cols == 0 {
			rng = n.gateNoise(c.from + r/s.Cols)
		}
		gates := c.after.Row(r)
		computeGates(gates, n.options.GateDropout, rng)
		c.balance.addExample(c.logs.Row(r), gates)
		s.Row(c.from + r/s.Cols)[r%s.Cols] = tau * kernel.Dot(gates, c.logits.Row(r))
	}
}

// eachLogits calls f for each example and query component, with the logits of the
// example and the place of the same logits in the matrix of the whole batch.
func (c *mixingChunk) eachLogits(n *net, m *fullMixing, candidates int, f func(example, global []float32)) {
	pq, px, pairs := n.options.PairsQuery, n.options.PairsItem, n.pairs()
	for b := c.from; b < c.to; b++ {
		for i := range pq {
			examples, global := c.logits.Data[(b-c.from)*candidates*pairs+i*px:], m.logits.Row(b*pq+i)
			for x := range candidates {
				f(examples[x*pairs:][:px], global[x*px:][:px])
			}
		}
	}
}

// backward computes all gradients from ds, the gradient by φτ, and returns the
// load-balancing loss.
func (m *fullMixing) backward(n *net, ds rerank.Matrix) float64 {
	loss := m.balance.loss()
	linalg.Parallel(len(m.chunks), 1, func(from, to int) {
		for c := from; c < to; c++ {
			m.chunks[c].backward(n, m, ds)
		}
	})
	g := gradientsOf(n.byPair.parameters())
	for _, sum := range g {
		clear(sum.Data)
	}
	clear(n.dItemGates.Data)
	for _, c := range m.chunks { // in order: sums of floats depend on it
		for i, sum := range g {
			linalg.AddScaled(sum.Data, c.pair[i].Data, 1)
		}
		linalg.AddScaled(n.dItemGates.Data, c.items.Data, 1)
	}
	dq, dx := splitRows(n.querySide.d, n.dim), splitRows(n.itemSide.d, n.dim)
	linalg.Multiply(dq, m.logits, false, splitRows(n.itemSide.Matrix, n.dim), false)
	linalg.Multiply(dx, m.logits, true, splitRows(n.querySide.Matrix, n.dim), false)
	return loss
}

func (c *mixingChunk) backward(n *net, m *fullMixing, ds rerank.Matrix) {
	rows, pairs := c.logits.Rows, n.pairs()
	tau, candidates := float32(n.options.Temperature), ds.Cols
	c.d, c.dLogits = linalg.Resize(c.d, rows, pairs), linalg.Resize(c.dLogits, rows, pairs)
	for r := range rows {
		slope, d, gates := tau*ds.Row(c.from + r/candidates)[r%candidates], c.d.Row(r), c.after.Row(r)
		for l, v := range c.logits.Row(r) {
			d[l] = slope * v
		}
		m.balance.addGradient(d, c.logs.Row(r), gates)
		softmaxBackward(d, gates)
	}
	c.silu = linalg.Resize(c.silu, rows, pairs)
	copy(c.silu.Data, c.before.Data)
	kernel.Best().SiLU(c.silu.Data)
	siluBackward(c.d.Data, c.before.Data, c.silu.Data)
	c.addPartGradients(n, candidates)
	c.pair = resizeLike(c.pair, n.byPair.parameters())
	n.byPair.backward(&c.pass, c.pair, &c.dLogits, c.d)
	inverse := 1 / tau
	for r := range rows {
		slope, d, gates := ds.Row(c.from + r/candidates)[r%candidates], c.dLogits.Row(r), c.after.Row(r)
		for l, g := range gates {
			d[l] = inverse*d[l] + slope*g
		}
	}
	c.logits, c.dLogits = c.dLogits, c.logits
	c.eachLogits(n, m, candidates, func(example, global []float32) { copy(global, example) })
}

// addPartGradients computes the gradients of the query part and of the item part of
// the gates. No other chunk has the same queries; the gradients of the item part are
// summed over the chunks later.
func (c *mixingChunk) addPartGradients(n *net, candidates int) {
	c.items = linalg.Resize(c.items, candidates, n.pairs())
	clear(c.items.Data)
	clear(n.dGates.Data[c.from*n.pairs() : c.to*n.pairs()])
	for r := range c.d.Rows {
		b, x := c.from+r/candidates, r%candidates
		query, item, dq, dx := n.gates.Row(b), n.itemGates.Row(x), n.dGates.Row(b), c.items.Row(x)
		for l, v := range c.d.Row(r) {
			dq[l] += v * item[l]
			dx[l] += v * query[l]
		}
	}
}

// resizeLike returns matrices of the shapes of the parameters, in the memory of m.
func resizeLike(m []rerank.Matrix, parameters []*parameter) []rerank.Matrix {
	if m == nil {
		m = make([]rerank.Matrix, len(parameters))
	}
	for i, p := range parameters {
		m[i] = linalg.Resize(m[i], p.Rows, p.Cols)
	}
	return m
}
