package bound

import (
	"math"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// Rounding errors of the kernels.
const (
	// unit16 is the relative error of rounding to float16. tiny16 is the absolute error for
	// subnormal numbers.
	unit16 = 0x1p-11
	tiny16 = 0x1p-25
	// most16 is the greatest number that may be rounded to float16. The greatest float16 is
	// 65,504.
	most16 = 65000
	// sum16 is the relative error of one addition in a tensor core, which may truncate.
	sum16 = 0x1p-22
	// special is the relative error of a gate's exponential. It is greater than
	// kernels.ExponentialError, for safety.
	special = 0x1p-16
	// exponent is the error of an exponential's argument, relative to the largest gate.
	exponent = 0x1p-20
	// siluSlope exceeds the greatest derivative of x·sigmoid(x).
	siluSlope = 1.1
	// margin covers the float32 arithmetic with which the kernels evaluate the limits.
	margin = 1 + 1e-3
	// exactGates is the error of Exact for networks with gates, in units of the largest
	// |logit|/τ. It is twice the limit for the CPU's kernels (package mol, Bound). Like
	// that limit it is not proved; `likeness-gpu check` verifies it on every machine.
	exactGates = 2e-5
)

// Packing returns how the kernels round feature rows of network n, which may be nil for one
// inner product.
func Packing(n *mol.Network, features int) rerank.Packing {
	p := rerank.Packing{Format: rerank.FormatFloat16, Cols: features}
	if n != nil {
		p.Block = n.Dim
	}
	return p
}

// Network is a MoL together with the norms of its weights, from which the bounds are
// computed.
type Network struct {
	*mol.Network
	first, second layer
	finite        bool // all weights fit float16
}

// layer contains the norms of a layer's weights W, of their rounding errors W − Ŵ, and of
// the bias.
type layer struct {
	exists        bool
	cols          int
	norm, lost    float64 // spectral norms of W and of W − Ŵ
	frobenius     float64 // upper bound of the Frobenius norm ‖Ŵ‖_F
	row, lostRow  float64 // greatest norm of a row of W and of W − Ŵ
	bias, biasMax float64
}

// New computes the norms of a network's weights. n is nil for one inner product.
func New(n *mol.Network) *Network {
	out := &Network{Network: n, finite: true}
	if out.isInnerProduct() {
		return out
	}
	var ok [2]bool
	out.first, ok[0] = newLayer(n.First, n.FirstBias)
	out.second, ok[1] = newLayer(n.Second, n.SecondBias)
	out.finite = ok[0] && ok[1]
	return out
}

// isInnerProduct reports whether φ is one inner product with the whole feature row.
func (n *Network) isInnerProduct() bool { return n.Network == nil || n.Fixed }

// newLayer computes the norms of a layer. It reports false if a weight is too large for
// float16.
func newLayer(w rerank.Matrix, bias []float32) (layer, bool) {
	l := layer{exists: w.Rows > 0, cols: w.Cols, norm: kernel.SpectralNorm(w), bias: rerank.Norm(bias), biasMax: maxAbs(bias)}
	rounded, ok := round16(w.Data)
	lost := rerank.NewMatrix(w.Rows, w.Cols)
	for i, x := range w.Data {
		lost.Data[i] = x - rounded[i] // exact
	}
	// The kernels round half of the first layer, which makes subnormal errors twice as
	// large.
	tiny := 2 * tiny16 * math.Sqrt(float64(len(w.Data)))
	l.lost = kernel.SpectralNorm(lost) + tiny
	l.frobenius = rerank.Norm(w.Data) + rerank.Norm(lost.Data) + tiny
	for r := range w.Rows {
		l.row = max(l.row, rerank.Norm(w.Row(r)))
		l.lostRow = max(l.lostRow, rerank.Norm(lost.Row(r))+tiny)
	}
	return l, ok
}

// round16 rounds v to float16. ok is false if a number became infinite.
func round16(v []float32) (rounded []float32, ok bool) {
	if len(v) == 0 {
		return nil, true
	}
	p := rerank.Packing{Format: rerank.FormatFloat16, Cols: len(v)}
	words := make([]uint32, p.RowWords())
	ok = p.Pack(words, v)
	rounded = make([]float32, len(v))
	p.Unpack(rounded, words, 1)
	return rounded, ok
}

// maxAbs returns the greatest absolute value in v.
func maxAbs(v []float32) (top float64) {
	for _, x := range v {
		top = max(top, math.Abs(float64(x)))
	}
	return top
}

// Limits returns the limits of a query for rows with the given rounding loss. ok is false
// if there is no bound, because a number may be too large for float16.
func (n *Network) Limits(o *rerank.Operands, loss *rerank.Loss) (l kernels.Limits, ok bool) {
	if n.isInnerProduct() {
		q, ok := boundLogits(o, []rerank.Extent{loss.Row})
		return kernels.Limits{Base: roundUp(q.base(1))}, ok && q.greatest < math.MaxFloat32/2
	}
	if !n.finite || len(loss.Blocks) < n.PairsItem {
		return l, false
	}
	q, ok := boundLogits(o, loss.Blocks[:n.PairsItem])
	if !ok || q.greatest > most16 || n.PairsQuery*n.PairsItem > kernels.LimitsPairs || n.hiddenNorm(line{q.norm, 0}).at0 > most16 {
		return l, false
	}
	all, each := n.gateErrors(&q, o, loss)
	base := q.base(n.PairsQuery * n.PairsItem)
	l = kernels.Limits{Base: roundUp(base), All: roundUp(all.at0), AllNorm: roundUp(all.slope), Each: roundUp(each.at0), EachNorm: roundUp(each.slope)}
	return l, all.slope+all.at0+each.slope+each.at0+base < math.MaxFloat32/2
}

// roundUp returns a float32 that is not below x, increased by margin.
func roundUp(x float64) float32 { return math.Nextafter32(float32(x*margin), math.MaxFloat32) }

// line is the function at0 + slope·‖λ̂‖ of an item's computed logits λ̂. Bounds that depend
// on the item have this form.
type line struct{ at0, slope float64 }

func (a line) plus(b line) line        { return line{a.at0 + b.at0, a.slope + b.slope} }
func (a line) times(x float64) line    { return line{a.at0 * x, a.slope * x} }
func (a line) shift(by float64) line   { return line{a.at0 + by, a.slope} }
func constant(x float64) line          { return line{at0: x} }
func root(n int) float64               { return math.Sqrt(float64(n)) }
func sums(terms int) float64           { return float64(terms+2) * sum16 }
func scale(o *rerank.Operands) float64 { return math.Abs(float64(o.Scale)) }

// logitBounds contains bounds for a query's logits over τ, over all items of a table.
type logitBounds struct {
	maxError, errorNorm float64 // errors of the logits: the greatest single error, and the norm of all errors
	greatest, norm      float64 // the logits themselves: the greatest, and the norm of all
}

// base bounds the error of a score whose gates are exact: the error of its logits, and the
// float32 sums of the softmax and of the bound.
func (l *logitBounds) base(pairs int) float64 {
	return l.maxError + float64(pairs+8)*0x1p-23*l.greatest + 0x1p-22*l.norm + 1e-12
}

// boundLogits bounds a query's logits for rows whose components have the given rounding
// losses. The logit of an inner product is φ itself, and its component the whole row.
func boundLogits(o *rerank.Operands, components []rerank.Extent) (l logitBounds, ok bool) {
	rows := o.Vectors.Rows
	scaled := rerank.NewMatrix(rows, o.Vectors.Cols) // with the same rounding as in the kernels
	for i, x := range o.Vectors.Data[:len(scaled.Data)] {
		scaled.Data[i] = x * o.Scale
	}
	rounded, ok := round16(scaled.Data)
	if !ok {
		return l, false
	}
	lost := rerank.NewMatrix(rows, o.Vectors.Cols)
	for i, x := range scaled.Data {
		lost.Data[i] = x - rounded[i]
	}
	spectral, spectralLost := kernel.SpectralNorm(scaled), kernel.SpectralNorm(lost)
	adding := sums(o.Vectors.Cols + 2) // additionally two roundings of f_i/τ
	whole := adding * (rerank.Norm(scaled.Data) + rerank.Norm(lost.Data))
	var errors, squares float64
	for _, c := range components {
		gone, size := float64(c.Lost), float64(c.Norm)
		for i := range rows {
			f, r := rerank.Norm(scaled.Row(i)), rerank.Norm(lost.Row(i))
			l.maxError = max(l.maxError, f*gone+(r+adding*(f+r))*size)
			l.greatest = max(l.greatest, (f+r)*size)
			squares += (f + r) * (f + r) * size * size
		}
		e := spectral*gone + (spectralLost+whole)*size
		errors += e * e
	}
	l.errorNorm, l.norm = math.Sqrt(errors), math.Sqrt(squares)
	return l, l.maxError < math.Inf(1) && l.errorNorm < math.Inf(1)
}

// operandNorm bounds the norm of the logits rounded to float16, as the first layer reads
// them.
func (n *Network) operandNorm() line {
	return line{root(n.PairsQuery*n.PairsItem) * tiny16, 1 + unit16}
}

// firstLayerNorm bounds the norm of the first layer's sums for an operand of the given
// norm.
func (n *Network) firstLayerNorm(operand line) line {
	f := &n.first
	return operand.times(f.norm + f.lost + sums(f.cols)*f.frobenius).shift(f.bias * (1 + sums(f.cols)))
}

// hiddenNorm bounds the norm of the hidden layer rounded to float16, as the second layer
// reads it, for logits of the given norm. Without a first layer, it bounds the rounded
// logits.
func (n *Network) hiddenNorm(norm line) line {
	in := n.operandNorm()
	in = norm.times(in.slope).shift(in.at0)
	if !n.first.exists {
		return in
	}
	return n.firstLayerNorm(in).times((1 + kernels.SiLUError) * (1 + unit16)).shift(root(n.First.Rows) * tiny16)
}

// hiddenError bounds the norm of the error of the rounded hidden layer.
func (n *Network) hiddenError(l *logitBounds) line {
	in := line{l.errorNorm + root(n.PairsQuery*n.PairsItem)*tiny16, unit16}
	if !n.first.exists {
		return in
	}
	f, operand := &n.first, n.operandNorm()
	moved := in.times(f.norm).plus(operand.times(f.lost + sums(f.cols)*f.frobenius)).shift(sums(f.cols) * f.bias)
	rounded := n.firstLayerNorm(operand).times(kernels.SiLUError + unit16*(1+kernels.SiLUError))
	return moved.times(siluSlope).plus(rounded).shift(root(n.First.Rows) * tiny16)
}

// gateErrors bounds the errors of the softmax inputs: the norm of all errors, and the
// greatest single error.
func (n *Network) gateErrors(l *logitBounds, o *rerank.Operands, loss *rerank.Loss) (all, each line) {
	item, itemEach := n.itemGates(loss)
	query, queryEach := rerank.Norm(o.Gates), maxAbs(o.Gates)
	factor := 1.0
	if n.Combination == mol.GLUSiLU {
		factor, query, queryEach = queryEach, 0, 0
	}
	s, hidden, off := &n.second, n.hiddenNorm(line{slope: 1}), n.hiddenError(l)
	size := constant(s.bias + query + factor*item)
	sizeEach := constant(s.biasMax + queryEach + factor*itemEach)
	if s.exists {
		adding := sums(s.cols)
		size, sizeEach = size.plus(hidden.times(s.norm+s.lost)), sizeEach.plus(hidden.times(s.row+s.lostRow))
		all = off.times(s.norm).plus(hidden.times(s.lost + adding*s.frobenius)).shift(adding * s.bias)
		each = off.times(s.row).plus(hidden.times(s.lostRow + adding*(s.row+s.lostRow))).shift(adding * s.biasMax)
	}
	all, each = all.plus(size.times(0x1p-21)), each.plus(sizeEach.times(0x1p-21)) // float32 arithmetic, on the device and on the CPU
	if n.Combination == mol.GLUSiLU {
		all, each = all.times(siluSlope).plus(size.times(kernels.SiLUError)), each.times(siluSlope).plus(sizeEach.times(kernels.SiLUError))
	}
	exponentials := sizeEach.times(exponent).shift(2 * special)
	return all.plus(exponentials.times(root(n.PairsQuery * n.PairsItem))), each.plus(exponentials)
}

// itemGates bounds the item's part of the gates: its norm, and its greatest element.
func (n *Network) itemGates(loss *rerank.Loss) (norm, each float64) {
	if !n.ItemGates || len(loss.Blocks) <= n.PairsItem {
		return 0, 0
	}
	var squares float64
	for _, b := range loss.Blocks[n.PairsItem:] {
		x := float64(b.Norm)
		squares, each = squares+x*x, max(each, x)
	}
	return math.Sqrt(squares), each
}

// Exact bounds how far a score by the float32 kernels can differ from φ computed in float32
// arithmetic, for rows with the given loss. The bound is proved for one inner product. For
// a network with gates, see exactGates.
func (n *Network) Exact(o *rerank.Operands, loss *rerank.Loss) float64 {
	if n.isInnerProduct() {
		u := o.Vectors.Data
		return scale(o) * kernel.Gamma(len(u)+2) * rerank.Norm(u) * float64(loss.Row.Norm)
	}
	var query, item float64
	for i := range o.Vectors.Rows {
		query = max(query, rerank.Norm(o.Vectors.Row(i)))
	}
	for j := range min(n.PairsItem, len(loss.Blocks)) {
		item = max(item, float64(loss.Blocks[j].Norm))
	}
	return exactGates * scale(o) * query * item
}
