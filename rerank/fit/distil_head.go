package fit

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// The heads that Distil makes.
const (
	// HeadLinear is u(q) = qW.
	HeadLinear = "linear"
	// HeadResidual is u(q) = qW + MLP(q), the MLP linear → SiLU → linear.
	HeadResidual = distilled.Residual
)

// probeHead is a learned probe that learns. It is not safe for concurrent use.
type probeHead struct {
	w                     probeLayer // u += q·w
	first, second         probeLayer // the MLP; no columns: there is none
	firstBias, secondBias probeLayer
	input, hidden, slope  rerank.Matrix // of the last batch: (b, h) before and after SiLU, its derivative
	rates                 []*adam
}

// probeLayer is one array of parameters and its gradient.
type probeLayer struct{ value, grad rerank.Matrix }

func newProbeLayer(rows, cols int) probeLayer {
	return probeLayer{value: rerank.NewMatrix(rows, cols), grad: rerank.NewMatrix(rows, cols)}
}

// newProbeHead makes a head that starts as q·w. hidden is the width of its MLP, 0 for
// none. Queries have a norm of about 1, so that what enters SiLU is of order 1.
func newProbeHead(w rerank.Matrix, hidden int, seed uint64) *probeHead {
	h := &probeHead{w: probeLayer{value: rerank.Matrix{Rows: w.Rows, Cols: w.Cols, Data: slices.Clone(w.Data)}, grad: rerank.NewMatrix(w.Rows, w.Cols)}}
	if hidden == 0 {
		return h
	}
	h.first, h.firstBias = newProbeLayer(hidden, w.Rows), newProbeLayer(1, hidden)
	h.second, h.secondBias = newProbeLayer(w.Cols, hidden), newProbeLayer(1, w.Cols)
	rng := rand.New(rand.NewPCG(seed, 0xd157))
	for i := range h.first.value.Data {
		h.first.value.Data[i] = float32(0.7 * rng.NormFloat64())
	}
	return h
}

func (h *probeHead) residual() bool { return h.first.value.Rows > 0 }

// layers are all that learns.
func (h *probeHead) layers() []probeLayer {
	if !h.residual() {
		return []probeLayer{h.w}
	}
	return []probeLayer{h.w, h.first, h.firstBias, h.second, h.secondBias}
}

// optimiser prepares step: the rates are relative to the sizes of what they
// change, which the start has made right.
func (h *probeHead) optimiser(rate float64) {
	size := sizeOf(h.w.value.Data)
	per := []float64{rate * size}
	if h.residual() {
		per = append(per, rate/5, rate/5, size*rate/5, size*rate/5)
	}
	h.rates = nil
	for i, l := range h.layers() {
		h.rates = append(h.rates, newAdam(per[i], [][]float32{l.value.Data}))
	}
}

// step takes a step of Adam with that share of the rates.
func (h *probeHead) step(share float64) {
	for i, l := range h.layers() {
		a := h.rates[i]
		full := a.rate
		a.rate *= share
		a.update([][]float32{l.value.Data}, [][]float32{l.grad.Data})
		a.rate = full
	}
}

func sizeOf(v []float32) float64 {
	return math.Sqrt(inner(v, v) / float64(max(len(v), 1)))
}

// forward writes u(q) of every row.
func (h *probeHead) forward(u, q rerank.Matrix) {
	multiply(u, q, false, h.w.value, false)
	if !h.residual() {
		return
	}
	width := h.first.value.Rows
	h.input, h.hidden, h.slope = grown(h.input, q.Rows, width), grown(h.hidden, q.Rows, width), grown(h.slope, q.Rows, width)
	multiply(h.input, q, false, h.first.value, true)
	spread(q.Rows, 16, func(from, to int) {
		for r := from; r < to; r++ {
			gated(h.hidden.Row(r), h.slope.Row(r), h.input.Row(r), h.firstBias.value.Data)
		}
	})
	rest := rerank.NewMatrix(u.Rows, u.Cols)
	multiply(rest, h.hidden, false, h.second.value, true)
	spread(u.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			out, bias := u.Row(r), h.secondBias.value.Data
			for i, v := range rest.Row(r) {
				out[i] += v + bias[i]
			}
		}
	})
}

// gated writes x·σ(x) and its derivative σ(x)·(1 + x·(1 − σ(x))) for x = input + bias.
func gated(out, slope, input, bias []float32) {
	for i, x := range input {
		x += bias[i]
		s := 1 / (1 + kernel.Exp(-x))
		out[i], slope[i] = x*s, s*(1+x*(1-s))
	}
}

// backward, called after forward, writes the gradients of the loss from that of u.
func (h *probeHead) backward(du, q rerank.Matrix) {
	multiply(h.w.grad, q, true, du, false)
	if !h.residual() {
		return
	}
	multiply(h.second.grad, du, true, h.hidden, false)
	columnSums(h.secondBias.grad.Data, du)
	multiply(h.input, du, false, h.second.value, false)
	for i, s := range h.slope.Data {
		h.input.Data[i] *= s
	}
	multiply(h.first.grad, h.input, true, q, false)
	columnSums(h.firstBias.grad.Data, h.input)
}

func columnSums(dst []float32, m rerank.Matrix) {
	clear(dst)
	for r := range m.Rows {
		for i, v := range m.Row(r) {
			dst[i] += v
		}
	}
}

// scale multiplies u by c.
func (h *probeHead) scale(c float64) {
	for _, l := range []probeLayer{h.w, h.second, h.secondBias} {
		for i := range l.value.Data {
			l.value.Data[i] *= float32(c)
		}
	}
}

// tensors are the head's, for queries that are divided by unit.
func (h *probeHead) tensors(name string, unit float64) tensor.Set {
	prefix := distilled.Prefix + name
	set := tensor.Set{prefix + ".W": asTensor(h.w.value, 1/unit)}
	if h.residual() {
		set[prefix+".0.weight"], set[prefix+".0.bias"] = asTensor(h.first.value, 1/unit), asVector(h.firstBias.value)
		set[prefix+".2.weight"], set[prefix+".2.bias"] = asTensor(h.second.value, 1), asVector(h.secondBias.value)
	}
	return set
}

func asTensor(m rerank.Matrix, by float64) tensor.Tensor {
	data := slices.Clone(m.Data)
	for i := range data {
		data[i] *= float32(by)
	}
	return tensor.Tensor{Shape: []int{m.Rows, m.Cols}, Data: data}
}

func asVector(m rerank.Matrix) tensor.Tensor {
	return tensor.Tensor{Shape: []int{m.Cols}, Data: slices.Clone(m.Data)}
}
