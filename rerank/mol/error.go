package mol

import (
	"math"
	"sync/atomic"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// precision describes a floating-point format: its unit roundoff and its smallest number.
type precision struct{ unit, smallest float64 }

var (
	inFloat32 = precision{0x1p-24, math.SmallestNonzeroFloat32}
	inFloat64 = precision{0x1p-53, math.SmallestNonzeroFloat64}
)

// gamma returns γ_n (kernel.Gamma) of the format.
func (p precision) gamma(n int) float64 {
	u := float64(n) * p.unit
	return u / (1 - u)
}

// extents holds the sizes of the numbers from which φ of an item is computed, or upper
// bounds of them for several items.
type extents struct {
	component, components float64 // greatest norm of a component; norm of all together
	item                  float64 // largest number of the item's part of the gates
	// Logits over τ: their norm, the largest absolute value, greatest minus smallest, and
	// the mean distance from φ, weighted by the gates.
	logits, top, span, deviation float64
	hiddenInput, hidden          float64 // norms of the hidden layer of the gates, before and after SiLU
}

// weightNorms holds upper bounds of norms of the logits' part of the gates.
type weightNorms struct {
	first, firstAbsolute float64 // spectral norm of the first layer's weights, and of their absolute values
	firstBias            float64 // norm
	row                  float64 // greatest norm of a row of the second layer's weights
}

func (m *mlp) norms() weightNorms {
	absolute := rerank.NewMatrix(m.first.w.Rows, m.first.w.Cols)
	for i, v := range m.first.w.Data {
		absolute.Data[i] = float32(math.Abs(float64(v)))
	}
	return weightNorms{
		first: kernel.SpectralNorm(m.first.w), firstAbsolute: kernel.SpectralNorm(absolute),
		firstBias: rerank.Norm(m.first.bias), row: longestRow(m.second.w),
	}
}

// queryNorms holds norms of the query's side.
type queryNorms struct {
	component, components, spectral float64 // of the components f_i/τ: the greatest norm, the norm of all as one vector, the spectral norm of their matrix
	// The largest summand of a gate's input that does not depend on the item, and the
	// largest factor of the item's part.
	bias, factor float64
}

func (e *encoded) norms() *queryNorms {
	e.sizesOnce.Do(func() { e.sizes = e.measureNorms() })
	return &e.sizes
}

func (e *encoded) measureNorms() queryNorms {
	c, inverse := e.c, 1/e.c.Temperature
	n := queryNorms{
		component: longestRow(e.components) * inverse, components: rerank.Norm(e.components.Data) * inverse,
		spectral: kernel.SpectralNorm(e.components) * inverse,
	}
	if e.s.byItem.exists() {
		n.factor = 1
	}
	for l := range c.pairs() {
		var bias float64
		if l < len(e.s.byPair.second.bias) {
			bias = math.Abs(float64(e.s.byPair.second.bias[l]))
		}
		if l < len(e.gate) {
			if gate := math.Abs(float64(e.gate[l])); c.Combination == GLUSiLU {
				n.factor = max(n.factor, gate)
			} else {
				bias += gate
			}
		}
		n.bias = max(n.bias, bias)
	}
	return n
}

// scoreError bounds |Score − φ| over all items that Score has computed for this query.
func (e *encoded) scoreError() float64 {
	c, q, w := e.c, e.norms(), &e.s.weightNorms
	x := e.seen.extents(c)
	x.logits, x.top = q.spectral*x.components, q.component*x.component
	x.span, x.deviation = 2*x.top, 2*x.top
	x.hiddenInput = w.first*x.logits + w.firstBias
	x.hidden = x.hiddenInput // |SiLU(x)| ≤ |x|
	return e.roundingOf(inFloat32, x)
}

// largestLogit bounds |logit|/τ over all items that Score has computed for this query.
func (e *encoded) largestLogit() float64 {
	return e.norms().component * e.seen.extents(e.c).component
}

// roundingOf bounds how far φ is off when it is computed in p from numbers of the given
// extents. u is the unit of p; N and G are the greatest norms of a component of an item and
// of all its components together, F_1 and F those of the query's components over τ.
//
//  1. A logit is off by γ_{D+4}·F_1·N, all logits together by ‖Δl‖ ≤ γ_{D+4}·F·G.
//  2. Before SiLU, the hidden layer is off by ‖W₁‖·‖Δl‖ + γ_{L+2}·(‖|W₁|‖·‖l‖ + ‖b₁‖). SiLU
//     takes σ = 1.1 of that, and adds u·(8·‖·‖ + √n).
//  3. An input of the softmax is off by ‖row of W₂‖·‖Δh‖ + γ_{H+6}·(its summands), with
//     glu_silu by σ of that, and by 8u of its size for the difference from the greatest
//     input and the exponential.
//  4. Inputs that are off by δ change gates by Σ |π̂ − π| ≤ 2·tanh(δ/2), and each by no more
//     than e^{2δ} − 1. So φ moves by min(tanh(δ/2)·(max l − min l), (e^{2δ} − 1)·Σ π̂·|l − φ̂|).
//  5. The weighted mean adds 2·γ_{L+6}·max |l|.
func (e *encoded) roundingOf(p precision, x extents) float64 {
	c, q, w := e.c, e.norms(), &e.s.weightNorms
	pairs := c.pairs()
	least := p.smallest * float64(c.Dim) * (1 + x.component)
	logit := p.gamma(c.Dim+4)*q.component*x.component + least
	logits := p.gamma(c.Dim+4)*q.components*x.components + least*sqrt(pairs)

	var gate, input float64 // error of one input of the softmax, and its size
	width := pairs
	if net := &e.s.byPair; net.exists() {
		in, off := x.logits, logits
		if width = net.hidden(); width > 0 {
			before := w.first*logits + p.gamma(pairs+2)*(w.firstAbsolute*(x.logits+logits)+w.firstBias)
			off = siluSlope*before + p.siluError(x.hiddenInput+before, sqrt(width))
			in = x.hidden
		} else {
			width = pairs
		}
		gate, input = w.row*off, w.row*(in+off)
	}
	input += q.bias + q.factor*x.item
	gate += p.gamma(width+6) * input
	if c.Combination == GLUSiLU {
		gate = siluSlope*gate + p.siluError(input, 1)
	}
	gate += 8 * p.unit * (input + 1) // the difference from the greatest input, and its exponential
	gate = min(gate, maxGateError)

	moved := min(math.Tanh(gate/2)*x.span, math.Expm1(2*gate)*x.deviation)
	mixed := mixError(p, pairs)*(x.top+logit) + float64(pairs)*(vanished*x.span+4*p.smallest)
	return (logit + moved + mixed) * (1 + 1e-6)
}

// mixError bounds the rounding of a weighted mean of n numbers, relative to the largest.
func mixError(p precision, n int) float64 { return 2 * p.gamma(n+6) }

// maxGateError is an error of a gate's input beyond which nothing is known of the gates.
const maxGateError = 100

// vanished bounds a gate that is computed as 0.
const vanished = 1e-36

// siluError bounds the norm of the errors of SiLU of several numbers of the given norm;
// root is the root of their count.
func (p precision) siluError(norm, root float64) float64 { return p.unit * (8*norm + root) }

// seen records the largest numbers of the feature rows that Score has read for a query. It
// is safe for concurrent use.
type seen struct {
	components, item greatest
	rounded          atomic.Bool // rows were rounded by their format
}

// greatest is the greatest of some numbers that are not negative.
type greatest struct{ bits atomic.Uint64 }

func (g *greatest) load() float64 { return math.Float64frombits(g.bits.Load()) }

func (g *greatest) raise(x float64) {
	for {
		old := g.bits.Load()
		if !(x > math.Float64frombits(old)) || g.bits.CompareAndSwap(old, math.Float64bits(x)) {
			return
		}
	}
}

// extents returns bounds for the feature rows. Components that the model normalises have
// norm 1, but a format can round them to more.
func (s *seen) extents(c *Config) extents {
	x := extents{item: s.item.load()}
	if !c.hasUnitComponents() {
		x.components = s.components.load()
		x.component = x.components
		return x
	}
	x.component = inner.UnitNorm
	if s.rounded.Load() {
		x.component += sqrt(c.Dim) / 254 // int8, the coarsest format, rounds by 1/254 of a number that is at most 1
	}
	x.components = x.component * sqrt(c.PairsItem)
	return x
}

// tileExtent bounds the largest absolute value and the norm of each lane of a tile. Lanes
// that are not finite are ignored.
func tileExtent(k *kernel.Set, tile []float32) (largest, norm float64) {
	var out [3][kernel.Lanes]float32
	k.Extent(&out, tile)
	rows := len(tile) / kernel.Lanes
	for l, squares := range out[2] {
		if squares-squares != 0 { // values that are not finite, or too large to be squared
			top := laneLargest(tile, l)
			largest, norm = max(largest, top), max(norm, top*sqrt(rows))
			continue
		}
		top := float64(max(out[0][l], -out[1][l]))
		largest = max(largest, top)
		if squares < 1e-30 { // squares of small values vanish
			norm = max(norm, top*sqrt(rows))
		} else {
			norm = max(norm, math.Sqrt(float64(squares)*(1+inFloat32.gamma(rows+2))))
		}
	}
	return largest, norm
}

// laneLargest returns the largest absolute value of a lane, or 0 if a value is not finite.
func laneLargest(tile []float32, lane int) (largest float64) {
	for i := lane; i < len(tile); i += kernel.Lanes {
		x := math.Abs(float64(tile[i]))
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return 0
		}
		largest = max(largest, x)
	}
	return largest
}
