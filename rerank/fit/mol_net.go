package fit

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// molEps clamps norms of components.
const molEps = 1e-6

// molNet is a Mixture-of-Logits that learns. It is not safe for concurrent use.
type molNet struct {
	options MoLOptions
	in      int // length of a vector, of queries and of items
	dim     int // D
	guarded bool

	query   molSide
	item    *affine
	users   []*userTable
	gate    perceptron // of the query
	byItem  perceptron // of full gates
	byPair  perceptron
	learned []*parameter // all but the user tables
	// Of the last pass: components as rows of P·D, what they were divided by, the
	// parts of the gates, and the gradients of all these.
	itemSide, querySide   components
	projected, dProjected rerank.Matrix // the query's without its user's
	gates, dGates         rerank.Matrix
	itemGates, dItemGates rerank.Matrix
	gatePass, itemPass    perceptronPass
	noise                 noise
	fixed                 fixedMixing
	mixed                 fullMixing
}

func (n *molNet) pairs() int { return n.options.PairsQuery * n.options.PairsItem }
func (n *molNet) full() bool { return n.options.Gates == GatesFull }

// newMoLNet makes a net at its start, at which φτ is the plain inner product, or
// its projection on the first principal axes if the components are shorter than
// the vectors; with normalised components it is a mean of cosines of parts.
//
// A guarded net keeps to what it can say of items that it has not seen: its sides
// have no bias, which would be a preference for some items whatever the query,
// and its gates are pulled more strongly.
func newMoLNet(o MoLOptions, p *problem, guarded bool) *molNet {
	n := &molNet{options: o, in: p.items.Cols, dim: o.dim(p.items.Cols), guarded: guarded}
	rng := rand.New(rand.NewPCG(o.Seed, 0x301))
	width := o.projected() * n.dim
	n.item = newAffine(n.in, o.PairsItem*n.dim, true)
	n.query = molSide{activation: o.QueryActivation, out: newAffine(n.in, width, true)}
	if o.QueryHidden > 0 {
		n.query.gated, n.query.out = newAffine(n.in, 2*o.QueryHidden, true), newAffine(o.QueryHidden, width, true)
	}
	n.gate = perceptron{newAffine(n.in, o.GateQueryHidden, true), newAffine(o.GateQueryHidden, n.pairs(), false)}
	n.learned = slices.Concat(n.query.parameters(), n.item.parameters(), n.gate.parameters())
	if n.full() {
		n.byItem = perceptron{newAffine(n.in, o.GateItemHidden, true), newAffine(o.GateItemHidden, n.pairs(), false)}
		n.byPair = perceptron{second: newAffine(n.pairs(), n.pairs(), true)}
		if o.GatePairHidden > 0 {
			n.byPair = perceptron{newAffine(n.pairs(), o.GatePairHidden, true), newAffine(o.GatePairHidden, n.pairs(), true)}
		}
		n.learned = slices.Concat(n.learned, n.byItem.parameters(), n.byPair.parameters())
	}
	for _, size := range o.UserTables {
		n.users = append(n.users, newUserTable(size, n.dim, o, rng))
	}
	n.startGates(rng)
	n.startSides(p, rng)
	for _, v := range n.learned {
		v.start = slices.Clone(v.Data)
	}
	return n
}

const (
	// onGate is what the gate of a pair with a block in common starts at; that of
	// the others starts at 0.
	onGate = 2.0
	// constant is the bias of what starts as a constant unit, before its activation.
	constant = 1.0
	// small is the standard deviation of weights that start near zero.
	small = 0.02
)

// blocks is the number of parts of the vectors that components start at;
// component i of either side has part i mod blocks.
func (n *molNet) blocks() int { return min(n.options.projected(), n.options.PairsItem) }

// on reports whether the components of a pair have a block in common.
func (n *molNet) on(i, j int) bool {
	return i < n.options.projected() && i%n.blocks() == j%n.blocks()
}

// startGates makes gates that depend on nothing but the pair: by a constant
// hidden unit of the query's part, or the bias of the logits' part.
func (n *molNet) startGates(rng *rand.Rand) {
	first, second := n.gate.first, n.gate.second
	first.w.random(rng, 1) // unit vectors: the hidden layer starts at normal numbers
	second.w.random(rng, small)
	if n.full() {
		n.byItem.first.w.random(rng, 1)
		n.byItem.second.w.random(rng, small)
		if n.byPair.first != nil {
			n.byPair.first.w.random(rng, 1/math.Sqrt(float64(n.pairs())))
		}
		n.byPair.second.w.random(rng, small/math.Sqrt(float64(n.byPair.second.w.Cols)))
	} else {
		clear(first.w.Row(0))
		first.bias.Data[0] = constant
	}
	unit := []float32{constant}
	kernel.SiLU(unit)
	for i := range n.options.PairsQuery {
		for j := range n.options.PairsItem {
			l := i*n.options.PairsItem + j
			bias := float32(0)
			if n.on(i, j) {
				bias = onGate
			}
			if n.full() {
				n.byPair.second.bias.Data[l] = inverseSiLU(bias)
			} else {
				second.w.Row(l)[0] = bias / unit[0]
			}
		}
	}
}

// inverseSiLU is the x ≥ 0 with x·σ(x) = y, y ≥ 0.
func inverseSiLU(y float32) float32 {
	low, high := 0.0, float64(y)+1
	for range 60 {
		middle := (low + high) / 2
		if middle/(1+math.Exp(-middle)) < float64(y) {
			low = middle
		} else {
			high = middle
		}
	}
	return float32(low)
}

// startSides gives the components the parts of the vectors, so that under the
// gates of the start Σ π_ij ⟨f_i, g_j⟩ is the inner product on the span of the parts.
func (n *molNet) startSides(p *problem, rng *rand.Rand) {
	parts, mixed := n.parts(p), n.unmix()
	scale := 0.0
	for k := range n.blocks() {
		scale += mixed.At(k, k) / float64(n.blocks())
	}
	scale = math.Sqrt(scale)
	for j := range n.options.PairsItem {
		for r := range n.dim {
			row := n.item.w.Row(j*n.dim + r)
			add(row, parts[j%n.blocks()].Row(r), scale)
			if r*n.blocks()+j%n.blocks() >= n.in { // no axis is left; the query's zero makes it no matter
				for k := range row {
					row[k] = float32(small * rng.NormFloat64())
				}
			}
		}
	}
	query := rerank.NewMatrix(n.options.projected()*n.dim, n.in)
	for i := range n.options.projected() {
		for r := range n.dim {
			for k := range n.blocks() {
				add(query.Row(i*n.dim+r), parts[k].Row(r), mixed.At(i%n.blocks(), k)/scale)
			}
		}
	}
	if n.query.gated == nil {
		copy(n.query.out.w.Data, query.Data)
		return
	}
	n.startGated(p, query, rng)
}

// parts are orthonormal axes, as rows, dealt to the blocks: those of the vector
// itself, or the first principal ones where they do not all fit. Rows beyond the
// dimension are zero.
func (n *molNet) parts(p *problem) []rerank.Matrix {
	count := n.blocks()
	axes := func(a int) func(k int) float32 { return func(k int) float32 { return unit(k == a) } }
	if count*n.dim < n.in {
		first := principal(p, count*n.dim)
		axes = func(a int) func(k int) float32 { return func(k int) float32 { return first.Row(k)[a] } }
	}
	parts := make([]rerank.Matrix, count)
	for b := range parts {
		parts[b] = rerank.NewMatrix(n.dim, n.in)
		for r := range n.dim {
			a := r*count + b
			for k := range n.in {
				if a < n.in {
					parts[b].Row(r)[k] = axes(a)(k)
				}
			}
		}
	}
	return parts
}

func unit(is bool) float32 {
	if is {
		return 1
	}
	return 0
}

// unmix inverts A, A_km the mass of the gates at the start between the item
// components of block k and the query components of block m.
func (n *molNet) unmix() *mat.Dense {
	count := n.blocks()
	a, total := mat.NewDense(count, count, nil), 0.0
	for i := range n.options.PairsQuery {
		for j := range n.options.PairsItem {
			mass := 1.0
			if n.on(i, j) {
				mass = math.Exp(onGate)
			}
			total += mass
			if i < n.options.projected() {
				a.Set(j%count, i%count, a.At(j%count, i%count)+mass)
			}
		}
	}
	a.Scale(1/total, a)
	var inverse mat.Dense
	_ = inverse.Inverse(a) // the diagonal dominates by e², so that there is one
	return &inverse
}

// startGated makes a gated linear unit that starts at query·x: one half of the
// hidden layer is nearly constant, the other holds axes of x.
func (n *molNet) startGated(p *problem, query rerank.Matrix, rng *rand.Rand) {
	half := n.options.QueryHidden
	gated := n.query.gated
	gated.w.random(rng, small)
	held := []float32{constant}
	if n.query.activation == mol.GeGLU {
		kernel.GELU(held)
	} else {
		kernel.SiLU(held)
	}
	kept := min(half, n.in)
	axes := principal(p, kept)
	for h := range half {
		gated.bias.Data[h] = constant
		for k := range n.in {
			if h < kept {
				gated.w.Row(half + h)[k] = axes.Row(k)[h] / held[0]
			}
		}
	}
	through := rerank.NewMatrix(query.Rows, kept)
	multiply(through, query, false, axes, false)
	for r := range through.Rows {
		copy(n.query.out.w.Row(r), through.Row(r))
	}
}

// userTable is an embedding of hashed user ids; row 0 is never read.
type userTable struct {
	parameter
	adam *rowAdam
}

func newUserTable(size, dim int, o MoLOptions, rng *rand.Rand) *userTable {
	t := &userTable{parameter: parameter{Matrix: rerank.NewMatrix(size+1, dim)}, adam: newRowAdam(size+1, dim)}
	if o.L2Norm { // a zero has no direction to learn
		t.random(rng, 0.1)
	}
	return t
}

// row is (user mod size) + 1 with a modulo that is never negative.
func (t *userTable) row(user int64) int {
	n := int64(t.Rows - 1)
	return int((user%n+n)%n) + 1
}

func (n *molNet) config() mol.Config {
	o := n.options
	c := mol.Config{
		QueryDim: n.in, ItemDim: n.in, Dim: n.dim, PairsQuery: o.PairsQuery, PairsItem: o.PairsItem,
		Temperature: o.Temperature, L2Norm: o.L2Norm, Eps: molEps,
		QueryHidden: o.QueryHidden, GatingQueryHidden: o.GateQueryHidden, Combination: mol.None,
		SoftmaxDropout: o.GateDropout, UserTables: append([]int{}, o.UserTables...), Normalise: o.Normalise,
	}
	if o.QueryHidden > 0 {
		c.QueryNonlinearity = o.QueryActivation
	}
	if n.full() {
		c.GatingItemHidden, c.GatingPairHidden, c.Combination = o.GateItemHidden, o.GatePairHidden, mol.GLUSiLU
	}
	return c
}
