package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// reduced is the gates' network in bfloat16, with bounds of its rounding errors
// (the package comment has the formulae). A norm of a matrix is an upper bound of its
// spectral norm.
type reduced struct {
	first, second kernel.WeightsBFloat16
	// For each layer: the norm of its weights and of their rounding errors. row and lostRow
	// are the greatest row norms of the second layer's weights and errors.
	w, lost      [2]float64
	row, lostRow float64
	// through and throughRow bound how much both layers amplify an error of the logits: the
	// norm of all outputs' errors, and the greatest error of an output.
	through, throughRow float64
	bias                float64 // norm of the first layer's bias
	inner, hidden       float64 // rounding of the first and second product, in units of ‖logits‖ and ‖hidden layer‖
	rough               float64 // norm of the error of the approximate SiLU over the hidden layer
}

// reduce converts the network to bfloat16 for screens. It returns nil if there is no hidden
// layer.
func (m *mlp) reduce() *reduced {
	if m.hidden() == 0 {
		return nil
	}
	r := &reduced{first: kernel.PackBFloat16(m.first.w), second: kernel.PackBFloat16(m.second.w), bias: rerank.Norm(m.first.bias)}
	for i, w := range []rerank.Matrix{m.first.w, m.second.w} {
		lost := rerank.NewMatrix(w.Rows, w.Cols)
		for k, v := range w.Data {
			lost.Data[k] = v - kernel.WidenBFloat16(kernel.RoundBFloat16(v))
		}
		r.w[i], r.lost[i] = kernel.SpectralNorm(w), kernel.SpectralNorm(lost)
		if i == 1 {
			r.row, r.lostRow = longestRow(w), longestRow(lost)
		}
	}
	r.through, r.throughRow = m.amplify()
	r.through, r.throughRow = min(r.through, siluSlope*r.w[1]*r.w[0]), min(r.throughRow, siluSlope*r.row*r.w[0])
	r.inner = kernel.Gamma(m.first.w.Cols+2) * rerank.Norm(m.first.w.Data)
	r.rough = roughSiLU * math.Sqrt(float64(m.second.w.Cols))
	r.hidden = kernel.Gamma(m.second.w.Cols+18) * rerank.Norm(m.second.w.Data) // with the exponential and an outer SiLU
	return r
}

// amplify bounds how much the layers amplify an error of the logits: the spectral norm, and the
// greatest row norm, of W₂·D·W₁ for every diagonal D of slopes of SiLU. Those lie within σ − ½ of
// ½, so D = ½ + D′ with ‖D′‖ ≤ σ − ½, and W₂·D′·W₁ = (W₂·S⁻¹)·D′·(S·W₁) for every diagonal S.
func (m *mlp) amplify() (all, row float64) {
	first, second := balance(m.first.w, m.second.w)
	product := rerank.NewMatrix(second.Rows, first.Cols)
	kernel.MulT(product.Data, product.Cols, second, kernel.Transpose(first), nil)
	rounding := kernel.Gamma(first.Rows+1) * rerank.Norm(first.Data) * rerank.Norm(second.Data)
	into := (siluSlope - 0.5) * kernel.SpectralNorm(first)
	for r := range product.Rows {
		row = max(row, (rerank.Norm(product.Row(r))+rounding)/2+into*rerank.Norm(second.Row(r)))
	}
	return (kernel.SpectralNorm(product)+rounding)/2 + into*kernel.SpectralNorm(second), row
}

// balance returns S·W₁ and W₂·S⁻¹, whose weights into and out of a hidden unit have about the same
// norm. S has powers of two, so that nothing is rounded.
func balance(first, second rerank.Matrix) (in, out rerank.Matrix) {
	in, out = kernel.Transpose(kernel.Transpose(first)), kernel.Transpose(second)
	for h := range in.Rows {
		power := math.Round(math.Log2(rerank.Norm(out.Row(h))/rerank.Norm(in.Row(h))) / 2)
		if !(math.Abs(power) < 32) { // also a unit without weights
			continue
		}
		by := float32(math.Exp2(power))
		for k := range in.Row(h) {
			in.Row(h)[k] *= by
		}
		for k := range out.Row(h) {
			out.Row(h)[k] /= by
		}
	}
	return in, kernel.Transpose(out)
}

// roughSiLU bounds the error of the approximate SiLU, with a margin for its roundings.
const roughSiLU = kernel.RoughSiLU * (1 + 1e-3)

// longestRow returns the greatest norm of a row.
func longestRow(m rerank.Matrix) (top float64) {
	for r := range m.Rows {
		top = max(top, rerank.Norm(m.Row(r)))
	}
	return top
}

// gateErrors bounds the errors of the softmax inputs: all bounds their norm, each the
// greatest single error. Index 0 is a constant. The other indices are factors of four
// norms: of the computed logits, of the computed hidden layer, and of the rounding errors
// of the two.
type gateErrors struct{ all, each [5]float64 }

// errors returns the gate errors for logits and item parts whose errors have the given
// norms.
func (r *reduced) errors(logits, item float64) (e gateErrors) {
	for i := range e.all {
		var at [5]float64
		at[i] = 1
		e.all[i], e.each[i] = r.gateError(at[0], logits*at[0], at[1], at[2], at[3], at[4])
	}
	e.all[0] += item
	e.each[0] += item
	return e
}

func (e *gateErrors) scale(by float64) {
	for i := range e.all {
		e.all[i], e.each[i] = e.all[i]*by, e.each[i]*by
	}
}

// forKernel converts the bounds for the kernel, which multiplies them with square roots of
// computed sums of squares; it adds the error of those roots.
func (e *gateErrors) forKernel() (out kernel.GateErrors) {
	for i := range e.all {
		above := 1 + normError*float64(min(i, 1)) + 1e-6
		out.All[i], out.Each[i] = float32(e.all[i]*above), float32(e.each[i]*above)
	}
	return out
}

// normError is the relative error of computed norms.
const normError = 1e-4

// gateError bounds the error of the logits' part of the gates: the norm of the errors of
// all outputs, and the greatest error of one. The computed logits have the norm `norm`, and
// their errors a norm of at most off. hidden is the norm of the computed hidden layer,
// before or after rounding. Rounding changed the logits by taken and the hidden layer by
// takenHidden. The result is linear in its six arguments; `one` is the factor of the
// constant terms.
func (r *reduced) gateError(one, off, norm, hidden, taken, takenHidden float64) (all, each float64) {
	const silu = 1e-6 // twice the error of an exact SiLU, relative to its argument; the approximate one's is r.rough
	in := off + taken
	rounding := (r.lost[0]+r.inner)*(norm+in) + 1e-6*r.bias*one // of the first product
	before := r.w[0]*in + rounding
	// own is the error of the hidden layer apart from what it passes on from the logits.
	own := siluSlope*rounding + silu*(r.w[0]*(norm+off)+r.bias*one+before) + takenHidden + r.rough*one
	hidden += takenHidden + siluSlope*r.w[0]*in + own // the greater of the two possible norms, and all errors
	rest := 2 * r.hidden * hidden
	return r.through*in + r.w[1]*own + r.lost[1]*hidden + rest, r.throughRow*in + r.row*own + r.lostRow*hidden + rest
}

// gateErrors bounds the errors of the softmax inputs, given the norms of the errors of the
// logits and of the item's part of the gates, and the largest summand of an input apart
// from the logits' part.
func (e *encoded) gateErrors(logits, item, summand float64) gateErrors {
	errors, root := e.s.reduced.errors(logits, item), sqrt(e.c.pairs())
	rounding := 2 * (kernel.Gamma(e.s.byPair.hidden()+6)*summand + 8*inFloat32.unit*(summand+1)) // of Screen and of Score
	if e.c.Combination == GLUSiLU {
		errors.scale(siluSlope)
		rounding = siluSlope*rounding + inFloat32.siluError(summand, 1)
		errors.all[0] += roughSiLU * root
		errors.each[0] += roughSiLU
	}
	errors.all[0] += rounding * root
	errors.each[0] += rounding
	return errors
}

// inputSize bounds the summands of a softmax input apart from the logits' part.
func (e *encoded) inputSize(loss rerank.Loss) float64 {
	n, item := e.norms(), 0.0
	if e.s.byItem.exists() {
		for p := e.c.PairsItem; p < e.c.PairsItem+(e.c.pairs()+e.c.Dim-1)/e.c.Dim; p++ {
			item = max(item, e.c.blockNorm(loss, p))
		}
	}
	return n.bias + n.factor*item
}

// itemError bounds the norm of the error of the item's part of the gates.
func (e *encoded) itemError(items rerank.Items, loss rerank.Loss) float64 {
	if items.Packed == nil || !e.s.byItem.exists() {
		return 0
	}
	var squares, factor float64
	for j := range (e.c.pairs() + e.c.Dim - 1) / e.c.Dim {
		lost := e.c.lost(loss, e.c.PairsItem+j)
		squares += lost * lost
	}
	for _, v := range e.factor {
		factor = max(factor, math.Abs(float64(v)))
	}
	return factor * math.Sqrt(squares)
}
