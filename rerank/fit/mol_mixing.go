package fit

import (
	"math/rand/v2"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// fixedMixing is φτ = Σ_j ⟨Σ_i π_ij(q) f_i, g_j⟩: with gates of the query alone
// it is one inner product.
type fixedMixing struct {
	u, du   rerank.Matrix // Σ_i π_ij f_i, side by side
	logs    rerank.Matrix // of the gates
	balance balancing
}

func (m *fixedMixing) forward(n *molNet, s rerank.Matrix) {
	o := n.options
	m.u, m.du = grown(m.u, s.Rows, o.PairsItem*n.dim), grown(m.du, s.Rows, o.PairsItem*n.dim)
	clear(m.u.Data)
	spread(s.Rows, 8, func(from, to int) {
		for b := from; b < to; b++ {
			gates, f, u := n.gates.Row(b), n.querySide.Row(b), m.u.Row(b)
			gateProbabilities(gates, o.GateDropout, n.gateNoise(b))
			for l, g := range gates {
				i, j := l/o.PairsItem, l%o.PairsItem
				axpy(u[j*n.dim:(j+1)*n.dim], f[i*n.dim:(i+1)*n.dim], g)
			}
		}
	})
	multiply(s, m.u, false, n.itemSide.Matrix, true)
}

func (m *fixedMixing) backward(n *molNet, ds rerank.Matrix) float64 {
	o := n.options
	multiply(m.du, ds, false, n.itemSide.Matrix, false)
	multiply(n.itemSide.d, ds, true, m.u, false)
	m.balance.reset(o.Balance, n.pairs())
	m.logs = grown(m.logs, ds.Rows, n.pairs())
	for b := range ds.Rows {
		m.balance.see(m.logs.Row(b), n.gates.Row(b))
	}
	loss := m.balance.loss()
	clear(n.querySide.d.Data)
	spread(ds.Rows, 8, func(from, to int) {
		for b := from; b < to; b++ {
			gates, d, f, df, du := n.gates.Row(b), n.dGates.Row(b), n.querySide.Row(b), n.querySide.d.Row(b), m.du.Row(b)
			for l, g := range gates {
				i, j := l/o.PairsItem*n.dim, l%o.PairsItem*n.dim
				d[l] = kernel.Dot(du[j:j+n.dim], f[i:i+n.dim])
				axpy(df[i:i+n.dim], du[j:j+n.dim], g)
			}
			m.balance.add(d, m.logs.Row(b), gates)
			softmaxBackward(d, gates)
		}
	})
	return loss
}

// gateNoise is the source of an example's dropped gates; nil: none is dropped.
func (n *molNet) gateNoise(row int) *rand.Rand {
	if !n.noise.on || n.options.GateDropout == 0 {
		return nil
	}
	return n.noise.row(dropGate, row)
}

// axpy adds k·v to dst.
func axpy(dst, v []float32, k float32) {
	dst = dst[:len(v)]
	for i, x := range v {
		dst[i] += k * x
	}
}

// fullMixing is φτ = Σ_ij π_ij(q, x)·l_ij with l_ij = ⟨f_i, g_j⟩. Examples, one a
// query and a candidate, are computed in chunks of whole queries.
type fullMixing struct {
	logits  rerank.Matrix // row b·P_Q + i, column x·P_X + j: l_ij, then its gradient
	chunks  []*mixingChunk
	balance balancing
}

// mixingChunk holds the examples of some queries; its gradients are its own, so
// that their sum does not depend on who computed which chunk.
type mixingChunk struct {
	from, to int           // queries
	logits   rerank.Matrix // over τ, an example a row
	before   rerank.Matrix // query ⊙ item + logits' part
	after    rerank.Matrix // its SiLU, then the gates
	silu     rerank.Matrix // the SiLU again
	logs     rerank.Matrix // of the gates
	d        rerank.Matrix // gradients of gates, then of their inputs
	dLogits  rerank.Matrix
	pass     perceptronPass
	balance  balancing
	pair     []rerank.Matrix // of byPair's parameters
	items    rerank.Matrix   // of the items' part of the gates
}

// chunkRows is the number of examples of a chunk, about.
const chunkRows = 2048

func (m *fullMixing) forward(n *molNet, s rerank.Matrix) {
	m.logits = grown(m.logits, s.Rows*n.options.PairsQuery, s.Cols*n.options.PairsItem)
	multiply(m.logits, apart(n.querySide.Matrix, n.dim), false, apart(n.itemSide.Matrix, n.dim), true)
	size := max(1, chunkRows/s.Cols)
	count := (s.Rows + size - 1) / size
	for len(m.chunks) < count {
		m.chunks = append(m.chunks, new(mixingChunk))
	}
	m.chunks = m.chunks[:count]
	m.balance.reset(n.options.Balance, n.pairs())
	spread(count, 1, func(from, to int) {
		for c := from; c < to; c++ {
			m.chunks[c].from, m.chunks[c].to = c*size, min((c+1)*size, s.Rows)
			m.chunks[c].forward(n, m, s)
		}
	})
	for _, c := range m.chunks {
		m.balance.merge(&c.balance)
	}
}

func (c *mixingChunk) forward(n *molNet, m *fullMixing, s rerank.Matrix) {
	rows, pairs := (c.to-c.from)*s.Cols, n.pairs()
	c.logits, c.before, c.after = grown(c.logits, rows, pairs), grown(c.before, rows, pairs), grown(c.after, rows, pairs)
	c.eachLogit(n, m, s.Cols, func(example, global []float32) { copy(example, global) })
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
	c.logs = grown(c.logs, rows, pairs)
	tau := float32(n.options.Temperature)
	var rng *rand.Rand
	for r := range rows {
		if r%s.Cols == 0 {
			rng = n.gateNoise(c.from + r/s.Cols)
		}
		gates := c.after.Row(r)
		gateProbabilities(gates, n.options.GateDropout, rng)
		c.balance.see(c.logs.Row(r), gates)
		s.Row(c.from + r/s.Cols)[r%s.Cols] = tau * kernel.Dot(gates, c.logits.Row(r))
	}
}

// eachLogit calls f with the logits of one example and query component, and
// where they are in the matrix of all.
func (c *mixingChunk) eachLogit(n *molNet, m *fullMixing, candidates int, f func(example, global []float32)) {
	pq, px := n.options.PairsQuery, n.options.PairsItem
	for r := range c.logits.Rows {
		row := c.logits.Row(r)
		b, x := c.from+r/candidates, r%candidates
		for i := range pq {
			f(row[i*px:(i+1)*px], m.logits.Row(b*pq + i)[x*px:(x+1)*px])
		}
	}
}

func (m *fullMixing) backward(n *molNet, ds rerank.Matrix) float64 {
	loss := m.balance.loss()
	spread(len(m.chunks), 1, func(from, to int) {
		for c := from; c < to; c++ {
			m.chunks[c].backward(n, m, ds)
		}
	})
	g := grads(n.byPair.parameters())
	for _, sum := range g {
		clear(sum.Data)
	}
	clear(n.dItemGates.Data)
	for _, c := range m.chunks { // in order: sums of floats depend on it
		for i, sum := range g {
			add(sum.Data, c.pair[i].Data, 1)
		}
		add(n.dItemGates.Data, c.items.Data, 1)
	}
	dq, dx := apart(n.querySide.d, n.dim), apart(n.itemSide.d, n.dim)
	multiply(dq, m.logits, false, apart(n.itemSide.Matrix, n.dim), false)
	multiply(dx, m.logits, true, apart(n.querySide.Matrix, n.dim), false)
	return loss
}

func (c *mixingChunk) backward(n *molNet, m *fullMixing, ds rerank.Matrix) {
	rows, pairs := c.logits.Rows, n.pairs()
	tau, candidates := float32(n.options.Temperature), ds.Cols
	c.d, c.dLogits = grown(c.d, rows, pairs), grown(c.dLogits, rows, pairs)
	for r := range rows {
		slope, d, gates := tau*ds.Row(c.from + r/candidates)[r%candidates], c.d.Row(r), c.after.Row(r)
		for l, v := range c.logits.Row(r) {
			d[l] = slope * v
		}
		m.balance.add(d, c.logs.Row(r), gates)
		softmaxBackward(d, gates)
	}
	c.silu = grown(c.silu, rows, pairs)
	copy(c.silu.Data, c.before.Data)
	kernel.Best().SiLU(c.silu.Data)
	siluBackward(c.d.Data, c.before.Data, c.silu.Data)
	c.parts(n, candidates)
	c.pair = shaped(c.pair, n.byPair.parameters())
	n.byPair.backward(&c.pass, c.pair, &c.dLogits, c.d)
	inverse := 1 / tau
	for r := range rows {
		slope, d, gates := ds.Row(c.from + r/candidates)[r%candidates], c.dLogits.Row(r), c.after.Row(r)
		for l, g := range gates {
			d[l] = inverse*d[l] + slope*g
		}
	}
	c.logits, c.dLogits = c.dLogits, c.logits
	c.eachLogit(n, m, candidates, func(example, global []float32) { copy(global, example) })
}

// parts are the gradients of query ⊙ item: the queries' are the chunk's alone,
// the items' are summed later.
func (c *mixingChunk) parts(n *molNet, candidates int) {
	c.items = grown(c.items, candidates, n.pairs())
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

// shaped returns matrices of the shapes of the parameters, in the memory of m.
func shaped(m []rerank.Matrix, parameters []*parameter) []rerank.Matrix {
	if m == nil {
		m = make([]rerank.Matrix, len(parameters))
	}
	for i, p := range parameters {
		m[i] = grown(m[i], p.Rows, p.Cols)
	}
	return m
}
