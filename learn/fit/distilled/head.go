package distilled

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// The heads that Fit can fit.
const (
	// HeadLinear is u(q) = qW.
	HeadLinear = "linear"
	// HeadResidual is u(q) = qW + MLP(q), the MLP linear → SiLU → linear.
	HeadResidual = distilled.Residual
)

// head is a learned probe under training. It is not safe for concurrent use.
type head struct {
	w                     layer // u(q) is q·w, plus the MLP if there is one
	first, second         layer // the layers of the MLP, which are empty without columns
	firstBias, secondBias layer

	optimisers []*train.Adam // one for each layer, because their rates differ
	// State of the last batch: the hidden layer before SiLU, after it, and the
	// derivative of SiLU.
	input, hidden, slope rerank.Matrix
}

// layer is an array of parameters and its gradient.
type layer struct{ value, grad rerank.Matrix }

func newLayer(rows, cols int) layer {
	return layer{value: rerank.NewMatrix(rows, cols), grad: rerank.NewMatrix(rows, cols)}
}

// newHead makes a head that starts as q·w. hidden is the width of its MLP, 0 for none.
// Queries have a norm of about 1, which makes the inputs of SiLU of order 1.
func newHead(w rerank.Matrix, hidden int, seed uint64) *head {
	h := &head{w: layer{value: rerank.Matrix{Rows: w.Rows, Cols: w.Cols, Data: slices.Clone(w.Data)}, grad: rerank.NewMatrix(w.Rows, w.Cols)}}
	if hidden == 0 {
		return h
	}
	h.first, h.firstBias = newLayer(hidden, w.Rows), newLayer(1, hidden)
	h.second, h.secondBias = newLayer(w.Cols, hidden), newLayer(1, w.Cols)
	rng := rand.New(rand.NewPCG(seed, 0xd157))
	for i := range h.first.value.Data {
		h.first.value.Data[i] = float32(0.7 * rng.NormFloat64())
	}
	return h
}

func (h *head) hasMLP() bool { return h.first.value.Rows > 0 }

// layers returns all layers.
func (h *head) layers() []layer {
	if !h.hasMLP() {
		return []layer{h.w}
	}
	return []layer{h.w, h.first, h.firstBias, h.second, h.secondBias}
}

// parameters returns the arrays of all layers.
func (h *head) parameters() [][]float32 {
	var arrays [][]float32
	for _, l := range h.layers() {
		arrays = append(arrays, l.value.Data)
	}
	return arrays
}

// size returns the number of parameters.
func (h *head) size() int {
	n := 0
	for _, p := range h.parameters() {
		n += len(p)
	}
	return n
}

// moments returns the running means of all optimisers.
func (h *head) moments() [][]float32 {
	var arrays [][]float32
	for _, a := range h.optimisers {
		arrays = append(arrays, a.First...)
		arrays = append(arrays, a.Second...)
	}
	return arrays
}

// startTraining prepares the optimisers. A layer's rate is relative to the size of its parameters,
// for which the start has found the right scale.
func (h *head) startTraining(rate float64) {
	size := rootMeanSquare(h.w.value.Data)
	per := []float64{rate * size}
	if h.hasMLP() {
		per = append(per, rate/5, rate/5, size*rate/5, size*rate/5)
	}
	h.optimisers = nil
	for i, l := range h.layers() {
		h.optimisers = append(h.optimisers, train.NewAdam(per[i], [][]float32{l.value.Data}))
	}
}

// takeStep takes a step of Adam with the given share of the rates.
func (h *head) takeStep(share float64) {
	for i, l := range h.layers() {
		a := h.optimisers[i]
		full := a.Rate
		a.Rate *= share
		a.Update([][]float32{l.value.Data}, [][]float32{l.grad.Data})
		a.Rate = full
	}
}

// rootMeanSquare returns the root mean square of the numbers.
func rootMeanSquare(v []float32) float64 {
	return math.Sqrt(linalg.Dot(v, v) / float64(max(len(v), 1)))
}

// forward writes u(q) of every row of q.
func (h *head) forward(u, q rerank.Matrix) {
	linalg.Multiply(u, q, false, h.w.value, false)
	if !h.hasMLP() {
		return
	}
	width := h.first.value.Rows
	h.input, h.hidden, h.slope = linalg.Resize(h.input, q.Rows, width), linalg.Resize(h.hidden, q.Rows, width), linalg.Resize(h.slope, q.Rows, width)
	linalg.Multiply(h.input, q, false, h.first.value, true)
	linalg.Parallel(q.Rows, 16, func(from, to int) {
		for r := from; r < to; r++ {
			applySiLU(h.hidden.Row(r), h.slope.Row(r), h.input.Row(r), h.firstBias.value.Data)
		}
	})
	rest := rerank.NewMatrix(u.Rows, u.Cols)
	linalg.Multiply(rest, h.hidden, false, h.second.value, true)
	linalg.Parallel(u.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			out, bias := u.Row(r), h.secondBias.value.Data
			for i, v := range rest.Row(r) {
				out[i] += v + bias[i]
			}
		}
	})
}

// applySiLU writes x·σ(x) and its derivative σ(x)·(1 + x·(1 − σ(x))) for x = input + bias.
func applySiLU(out, slope, input, bias []float32) {
	for i, x := range input {
		x += bias[i]
		s := 1 / (1 + kernel.Exp(-x))
		out[i], slope[i] = x*s, s*(1+x*(1-s))
	}
}

// backward, called after forward with the same q, writes the gradients of the loss from
// du, the gradient by u.
func (h *head) backward(du, q rerank.Matrix) {
	linalg.Multiply(h.w.grad, q, true, du, false)
	if !h.hasMLP() {
		return
	}
	linalg.Multiply(h.second.grad, du, true, h.hidden, false)
	linalg.SumRows(h.secondBias.grad.Data, du)
	linalg.Multiply(h.input, du, false, h.second.value, false)
	for i, s := range h.slope.Data {
		h.input.Data[i] *= s
	}
	linalg.Multiply(h.first.grad, h.input, true, q, false)
	linalg.SumRows(h.firstBias.grad.Data, h.input)
}

// scale multiplies u by c.
func (h *head) scale(c float64) {
	for _, l := range []layer{h.w, h.second, h.secondBias} {
		for i := range l.value.Data {
			l.value.Data[i] *= float32(c)
		}
	}
}

// tensors returns the tensors of the head for unscaled queries. unit is the number by which queries
// were divided for training.
func (h *head) tensors(name string, unit float64) tensor.Set {
	prefix := distilled.Prefix + name
	set := tensor.Set{prefix + ".W": asTensor(h.w.value, 1/unit)}
	if h.hasMLP() {
		set[prefix+".0.weight"], set[prefix+".0.bias"] = asTensor(h.first.value, 1/unit), asVector(h.firstBias.value)
		set[prefix+".2.weight"], set[prefix+".2.bias"] = asTensor(h.second.value, 1), asVector(h.secondBias.value)
	}
	return set
}

// asTensor returns m multiplied by by.
func asTensor(m rerank.Matrix, by float64) tensor.Tensor {
	data := slices.Clone(m.Data)
	for i := range data {
		data[i] *= float32(by)
	}
	return tensor.Tensor{Shape: []int{m.Rows, m.Cols}, Data: data}
}

// asVector returns the only row of m.
func asVector(m rerank.Matrix) tensor.Tensor {
	return tensor.Tensor{Shape: []int{m.Cols}, Data: slices.Clone(m.Data)}
}
