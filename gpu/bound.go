package gpu

import (
	"math"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// The roundings of a machine; docs/benchmarks/gpu.md derives the bounds from them.
const (
	// unit16 is the relative error of rounding to float16, tiny16 the absolute one below
	// its normal numbers.
	unit16 = 0x1p-11
	tiny16 = 0x1p-25
	// most16 is what may become a float16; its greatest number is 65,504.
	most16 = 65000
	// sum16 is the relative error of one addition of a tensor core, which may truncate.
	sum16 = 0x1p-22
	// special is the relative error of a gate's SiLU and of its exponential, a margin above
	// kernels.GateError.
	special = 0x1p-16
	// siluSlope is above the greatest derivative of x·sigmoid(x).
	siluSlope = 1.1
	// exactGates is the error of Exact in units of the largest |logit|/τ where gates are
	// computed: twice what the processor's own kernels keep (mol: Bound), and like that
	// no proof, but what every machine must keep in `likeness-gpu check`.
	exactGates = 2e-5
)

// packing16 is how rows are rounded for Approximate.
func (n *Network) packing16() rerank.Packing {
	p := rerank.Packing{Format: rerank.FormatFloat16, Cols: n.Features}
	if n.MoL != nil {
		p.Block = n.MoL.Dim
	}
	return p
}

// weights is what the bound needs of a network, computed once.
type weights struct {
	first, lostFirst   float64   // ‖W₁‖_F and ‖W₁ − Ŵ₁‖_F
	bias               float64   // ‖b₁‖
	slope              []float64 // of each output of W₂·silu(W₁·), against ‖λ‖
	second, lostSecond []float64 // rows of W₂: their norms, and what rounding took of them
	secondBias         []float32
	finite             bool // no weight is too large for float16
}

func newWeights(n *Network) *weights {
	w := &weights{finite: true}
	if n.single() {
		return w
	}
	first, second := n.MoL.First, n.MoL.Second
	w.first, w.bias = rerank.Norm(first.Data), rerank.Norm(n.MoL.FirstBias)
	rounded, ok := round16(first.Data)
	w.lostFirst, w.finite = distance(first.Data, rounded), ok
	w.secondBias = n.MoL.SecondBias
	for r := range second.Rows {
		row := second.Row(r)
		rounded, ok := round16(row)
		w.finite = w.finite && ok
		w.second, w.lostSecond = append(w.second, rerank.Norm(row)), append(w.lostSecond, distance(row, rounded))
		slope := rerank.Norm(row)
		if first.Rows > 0 {
			var sum float64
			for k, v := range row {
				sum += math.Abs(float64(v)) * rerank.Norm(first.Row(k))
			}
			slope = siluSlope * min(slope*w.first, sum)
		}
		w.slope = append(w.slope, slope)
	}
	return w
}

// round16 is v rounded to float16; ok is false where a number became infinite.
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

func distance(a, b []float32) float64 {
	var sum float64
	for i, x := range a {
		d := float64(x) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum)
}

// approximateError is ε: how far a score by Approximate can be from φ, for rows of
// that loss. +Inf: nothing is known.
func approximateError(n *Network, w *weights, o *rerank.Operands, loss *rerank.Loss) float64 {
	if !w.finite || n.single() {
		return math.Inf(1)
	}
	return molError(n.MoL, w, o, loss)
}

func scaleOf(o *rerank.Operands) float64 { return math.Abs(float64(o.Scale)) }

func scaled(v []float32, by float32) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = x * by
	}
	return out
}

// logits is how far logits over τ can be off, and how large they are.
type logits struct {
	worst, norm   float64 // of their errors: the greatest, and of all together
	most, extents float64 // of themselves
}

func logitErrors(n *mol.Network, o *rerank.Operands, loss *rerank.Loss) (l logits, ok bool) {
	var squares, errors float64
	for i := range n.PairsQuery {
		f := scaled(o.Vectors.Row(i), o.Scale) // as a machine has them
		rounded, fits := round16(f)
		if !fits {
			return l, false
		}
		norm, lost := rerank.Norm(f), distance(f, rounded)
		for j := range n.PairsItem {
			if j >= len(loss.Blocks) {
				return l, false
			}
			e := loss.Blocks[j]
			x, gone := float64(e.Norm), float64(e.Lost)
			off := norm*gone + lost*x + float64(n.Dim+2)*sum16*(norm+lost)*x
			size := (norm + lost) * x
			l.worst, l.most = max(l.worst, off), max(l.most, size)
			errors, squares = errors+off*off, squares+size*size
		}
	}
	l.norm, l.extents = math.Sqrt(errors), math.Sqrt(squares)
	return l, true
}

// molError is the sum of what the logits and what the gates move φ by:
//
//	φ̂ − φ = Σ π̂·(λ̂ − λ) + Σ (π̂ − π)·λ,  Σ |π̂ − π| ≤ 2·tanh(γ/2)
//
// where γ is the most that an input of the softmax is off.
func molError(n *mol.Network, w *weights, o *rerank.Operands, loss *rerank.Loss) float64 {
	l, ok := logitErrors(n, o, loss)
	hidden := w.first*l.extents + w.bias
	if !ok || l.most > most16 || hidden > most16 || !(l.worst < math.Inf(1)) {
		return math.Inf(1)
	}
	moved, large := w.gatesMove(n, l, hidden)
	for p := range moved {
		item, query := 0.0, 1.0
		if n.ItemGates { // float32 on both sides
			item = blockNorm(n, loss, p) * 0x1p-23
		}
		if o.Gates != nil && n.Combination == mol.GLUSiLU {
			query = math.Abs(float64(o.Gates[p]))
			large[p] += query * blockNorm(n, loss, p)
		} else if o.Gates != nil {
			large[p] += math.Abs(float64(o.Gates[p])) + blockNorm(n, loss, p)
		}
		moved[p] += query*item + 4*0x1p-24*large[p]
		if n.Combination == mol.GLUSiLU {
			moved[p] = siluSlope*moved[p] + special*large[p]
		}
	}
	gamma := 2 * special
	for p := range moved {
		gamma = max(gamma, moved[p]+2*special)
	}
	sums := float64(len(moved)+4) * 0x1p-23 * l.most
	return min(l.worst+math.Tanh(gamma/2)*2*l.most+sums, 2*l.most+l.worst) * (1 + 1e-6)
}

// blockNorm is the most that an item's part of gate p can be.
func blockNorm(n *mol.Network, loss *rerank.Loss, p int) float64 {
	b := n.PairsItem + p/n.Dim
	if !n.ItemGates || b >= len(loss.Blocks) {
		return 0
	}
	return float64(loss.Blocks[b].Norm)
}

// gatesMove bounds, for each output of the logits' part of the gates, by how much it
// is off and how large it is. hidden bounds the norm of the hidden layer.
func (w *weights) gatesMove(n *mol.Network, l logits, hidden float64) (moved, large []float64) {
	pairs := n.PairsQuery * n.PairsItem
	moved, large = make([]float64, pairs), make([]float64, pairs)
	root := math.Sqrt(float64(pairs))
	in := l.norm + unit16*l.extents + root*tiny16 // the logits as operands
	for p := range w.second {
		row, lost := w.second[p], w.lostSecond[p]
		if n.First.Rows == 0 {
			moved[p] = row*in + (lost+float64(pairs+2)*sum16*row)*l.extents
			large[p] = row*l.extents + math.Abs(float64(w.secondBias[p]))
			continue
		}
		width := float64(n.First.Rows)
		off := w.lostFirst*l.extents + float64(pairs+2)*sum16*(w.first*l.extents+w.bias) // of W₁·λ + b₁, but for in
		after := siluSlope*off + (unit16+kernels.HiddenError)*(hidden+off) + math.Sqrt(width)*tiny16
		moved[p] = w.slope[p]*in + row*after + (lost+(width+2)*sum16*row)*(hidden+after)
		large[p] = row*hidden + math.Abs(float64(w.secondBias[p]))
	}
	return moved, large
}

// exactError is how far a score by Exact can be from φ in float32 arithmetic, for
// rows of that loss: proved for one inner product; for gates see exactGates.
func exactError(n *Network, o *rerank.Operands, loss *rerank.Loss) float64 {
	if n.single() {
		u := o.Vectors.Data
		return scaleOf(o) * kernel.Gamma(len(u)+2) * rerank.Norm(u) * float64(loss.Row.Norm)
	}
	var query, item float64
	for i := range o.Vectors.Rows {
		query = max(query, rerank.Norm(o.Vectors.Row(i)))
	}
	for j := range min(n.MoL.PairsItem, len(loss.Blocks)) {
		item = max(item, float64(loss.Blocks[j].Norm))
	}
	return exactGates * scaleOf(o) * query * item
}
