package mol

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// normEps is the least norm that a component is divided by.
const normEps = 1e-6

// net is a Mixture-of-Logits under training. It is not safe for concurrent use.
type net struct {
	options Options
	in      int // length of a vector, of queries and of items
	dim     int // D
	guarded bool

	query   side
	item    *affine
	users   []*userTable
	gate    perceptron   // query part of the gates
	byItem  perceptron   // item part of full gates
	byPair  perceptron   // pair part of full gates, from the logits
	learned []*parameter // all parameters but the user tables
	noise   noise

	// State of the last pass: components, parts of the gates, and their gradients.
	itemSide, querySide   components
	projected, dProjected rerank.Matrix // query components without user embeddings
	gates, dGates         rerank.Matrix
	itemGates, dItemGates rerank.Matrix
	gatePass, itemPass    perceptronPass
	queryMixing           queryMixing
	fullMixing            fullMixing
}

func (n *net) pairs() int         { return n.options.PairsQuery * n.options.PairsItem }
func (n *net) hasFullGates() bool { return n.options.Gates == GatesFull }

// newNet makes a net at its start. There φτ is the bilinear form qᵀWx, or its
// projection on the leading principal axes if the components are shorter than the
// vectors; with normalised components it is a mean of cosines of parts of Wᵀq and x.
//
// A guarded net learns only what holds for items that it has not seen: its sides have
// no bias, which would prefer some items whatever the query, and its gates are pulled
// more strongly.
func newNet(o Options, p *samples.Log, w rerank.Matrix, guarded bool) *net {
	n := &net{options: o, in: p.Items.Cols, dim: o.componentDim(p.Items.Cols), guarded: guarded}
	rng := rand.New(rand.NewPCG(o.Seed, 0x301))
	width := o.projectedPairs() * n.dim
	n.item = newAffine(n.in, o.PairsItem*n.dim, true)
	n.query = side{activation: o.QueryActivation, out: newAffine(n.in, width, true)}
	if o.QueryHidden > 0 {
		n.query.gated, n.query.out = newAffine(n.in, 2*o.QueryHidden, true), newAffine(o.QueryHidden, width, true)
	}
	n.gate = perceptron{newAffine(n.in, o.GateQueryHidden, true), newAffine(o.GateQueryHidden, n.pairs(), false)}
	n.learned = slices.Concat(n.query.parameters(), n.item.parameters(), n.gate.parameters())
	if n.hasFullGates() {
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
	n.startSides(p, w, rng)
	for _, v := range n.learned {
		v.start = slices.Clone(v.Data)
	}
	return n
}

const (
	// onGate is where the input of a gate starts whose components share a block. The
	// others start at 0.
	onGate = 2.0
	// constantBias is the bias of a hidden unit that starts constant.
	constantBias = 1.0
	// small is the standard deviation of weights that start near zero.
	small = 0.02
)

// blocks returns the number of blocks into which the axes of the vectors are dealt.
// Component i of either side starts with block i mod blocks.
func (n *net) blocks() int { return min(n.options.projectedPairs(), n.options.PairsItem) }

// sharesBlock reports whether query component i and item component j start with the
// same block.
func (n *net) sharesBlock(i, j int) bool {
	return i < n.options.projectedPairs() && i%n.blocks() == j%n.blocks()
}

// startGates initialises the gates so that, whatever query and item are, a pair of components has a fixed weight. The
// weight comes from a constant hidden unit of the query's part, or from the bias of the pairs' part.
func (n *net) startGates(rng *rand.Rand) {
	first, second := n.gate.first, n.gate.second
	first.w.fillNormal(rng, 1) // unit vectors: the hidden layer starts at normal numbers
	if n.hasFullGates() {
		second.w.fillNormal(rng, small) // the item part starts at 0, and so does their product
		n.byItem.first.w.fillNormal(rng, 1)
		if n.byPair.first != nil {
			n.byPair.first.w.fillNormal(rng, 1/math.Sqrt(float64(n.pairs())))
		}
	} else {
		clear(first.w.Row(0))
		first.bias.Data[0] = constantBias
	}
	unit := []float32{constantBias}
	kernel.SiLU(unit)
	for i := range n.options.PairsQuery {
		for j := range n.options.PairsItem {
			l := i*n.options.PairsItem + j
			bias := float32(0)
			if n.sharesBlock(i, j) {
				bias = onGate
			}
			if n.hasFullGates() {
				n.byPair.second.bias.Data[l] = inverseSiLU(bias)
			} else {
				second.w.Row(l)[0] = bias / unit[0]
			}
		}
	}
}

// inverseSiLU returns the x ≥ 0 with x·σ(x) = y, for y ≥ 0.
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

// startSides gives each component its block of the vectors, so that under the gates of
// the start Σ π_ij ⟨f_i, g_j⟩ is the inner product of Wᵀq and x on the span of the blocks.
func (n *net) startSides(p *samples.Log, w rerank.Matrix, rng *rand.Rand) {
	parts, mixed := n.dealAxes(p), n.invertGateMass()
	scale := 0.0
	for k := range n.blocks() {
		scale += mixed.At(k, k) / float64(n.blocks())
	}
	scale = math.Sqrt(scale)
	for j := range n.options.PairsItem {
		for r := range n.dim {
			row := n.item.w.Row(j*n.dim + r)
			linalg.AddScaled(row, parts[j%n.blocks()].Row(r), scale)
			if r*n.blocks()+j%n.blocks() >= n.in { // no axis is left; the query's zero makes it no matter
				for k := range row {
					row[k] = float32(small * rng.NormFloat64())
				}
			}
		}
	}
	query := rerank.NewMatrix(n.options.projectedPairs()*n.dim, n.in)
	for i := range n.options.projectedPairs() {
		for r := range n.dim {
			for k := range n.blocks() {
				linalg.AddScaled(query.Row(i*n.dim+r), parts[k].Row(r), mixed.At(i%n.blocks(), k)/scale)
			}
		}
	}
	if n.query.gated == nil {
		linalg.Multiply(n.query.out.w.Matrix, query, false, w, true)
		return
	}
	n.startGated(p, query, w, rng)
}

// dealAxes deals orthonormal axes to the blocks and returns them as rows: the
// coordinate axes, or the leading principal axes where not all coordinates fit. Rows
// beyond the dimension are zero.
func (n *net) dealAxes(p *samples.Log) []rerank.Matrix {
	count := n.blocks()
	axes := func(a int) func(k int) float32 { return func(k int) float32 { return unit(k == a) } }
	if count*n.dim < n.in {
		first := linalg.PrincipalAxes(p.Items, p.Queries, count*n.dim)
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

// invertGateMass returns the inverse of A, where A_km is the mass of the gates at the
// start between the item components of block k and the query components of block m.
func (n *net) invertGateMass() *mat.Dense {
	count := n.blocks()
	a, total := mat.NewDense(count, count, nil), 0.0
	for i := range n.options.PairsQuery {
		for j := range n.options.PairsItem {
			mass := 1.0
			if n.sharesBlock(i, j) {
				mass = math.Exp(onGate)
			}
			total += mass
			if i < n.options.projectedPairs() {
				a.Set(j%count, i%count, a.At(j%count, i%count)+mass)
			}
		}
	}
	a.Scale(1/total, a)
	var inverse mat.Dense
	_ = inverse.Inverse(a) // the diagonal dominates by e², so that there is one
	return &inverse
}

// startGated makes a query side with a gated linear unit that starts at query·Wᵀq: one
// half of the hidden layer is nearly constant, the other holds axes of Wᵀq.
func (n *net) startGated(p *samples.Log, query, w rerank.Matrix, rng *rand.Rand) {
	half := n.options.QueryHidden
	gated := n.query.gated
	gated.w.fillNormal(rng, small)
	held := []float32{constantBias}
	if n.query.activation == mol.GeGLU {
		kernel.GELU(held)
	} else {
		kernel.SiLU(held)
	}
	kept := min(half, n.in)
	axes := linalg.PrincipalAxes(p.Items, p.Queries, kept)
	ofQuery := rerank.NewMatrix(n.in, kept)
	linalg.Multiply(ofQuery, w, false, axes, false)
	for h := range half {
		gated.bias.Data[h] = constantBias
		for k := range n.in {
			if h < kept {
				gated.w.Row(half + h)[k] = ofQuery.Row(k)[h] / held[0]
			}
		}
	}
	through := rerank.NewMatrix(query.Rows, kept)
	linalg.Multiply(through, query, false, axes, false)
	for r := range through.Rows {
		copy(n.query.out.w.Row(r), through.Row(r))
	}
}

// userTable holds the embeddings of hashed user ids, one a row. Row 0 is never read.
type userTable struct {
	parameter
	adam *train.RowAdam
}

func newUserTable(size, dim int, o Options, rng *rand.Rand) *userTable {
	t := &userTable{parameter: parameter{Matrix: rerank.NewMatrix(size+1, dim)}, adam: train.NewRowAdam(size+1, dim)}
	if o.L2Norm { // a zero has no direction to learn
		t.fillNormal(rng, 0.1)
	}
	return t
}

// rowOf returns the row of a user: (user mod size) + 1, with a modulo that is never
// negative.
func (t *userTable) rowOf(user int64) int {
	n := int64(t.Rows - 1)
	return int((user%n+n)%n) + 1
}

// config returns the configuration of the model file.
func (n *net) config() mol.Config {
	o := n.options
	c := mol.Config{
		QueryDim: n.in, ItemDim: n.in, Dim: n.dim, PairsQuery: o.PairsQuery, PairsItem: o.PairsItem,
		Temperature: o.Temperature, L2Norm: o.L2Norm, Eps: normEps,
		QueryHidden: o.QueryHidden, GatingQueryHidden: o.GateQueryHidden, Combination: mol.None,
		SoftmaxDropout: o.GateDropout, UserTables: append([]int{}, o.UserTables...), Normalise: o.Normalise,
	}
	if o.QueryHidden > 0 {
		c.QueryNonlinearity = o.QueryActivation
	}
	if n.hasFullGates() {
		c.GatingItemHidden, c.GatingPairHidden, c.Combination = o.GateItemHidden, o.GatePairHidden, mol.GLUSiLU
	}
	return c
}
