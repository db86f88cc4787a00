package fit

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// parameter is one array that a MoL learns.
type parameter struct {
	rerank.Matrix
	grad rerank.Matrix
	// start is what it is pulled to; set once all parameters are at their start.
	start []float32
}

func newParameter(rows, cols int) *parameter {
	return &parameter{Matrix: rerank.NewMatrix(rows, cols), grad: rerank.NewMatrix(rows, cols)}
}

// random fills it with normal numbers of that standard deviation.
func (p *parameter) random(rng *rand.Rand, deviation float64) {
	for i := range p.Data {
		p.Data[i] = float32(deviation * rng.NormFloat64())
	}
}

// affine is y = x·Wᵀ + b, a row of W an output; bias is nil or one row.
type affine struct{ w, bias *parameter }

func newAffine(in, out int, bias bool) *affine {
	a := &affine{w: newParameter(out, in)}
	if bias {
		a.bias = newParameter(1, out)
	}
	return a
}

func (a *affine) parameters() []*parameter {
	if a.bias == nil {
		return []*parameter{a.w}
	}
	return []*parameter{a.w, a.bias}
}

// forward writes y, a row for each of x.
func (a *affine) forward(y, x rerank.Matrix) {
	multiply(y, x, false, a.w.Matrix, true)
	if a.bias == nil {
		return
	}
	spread(y.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			add(y.Row(r), a.bias.Data, 1)
		}
	})
}

// backward writes the gradients of W and b to gw and gb, and with dx that of x.
func (a *affine) backward(gw, gb rerank.Matrix, dx *rerank.Matrix, x, dy rerank.Matrix) {
	multiply(gw, dy, true, x, false)
	if a.bias != nil {
		sumRows(gb.Data, dy)
	}
	if dx != nil {
		multiply(*dx, dy, false, a.w.Matrix, false)
	}
}

// learn is backward into the layer's own gradients.
func (a *affine) learn(dx *rerank.Matrix, x, dy rerank.Matrix) {
	var gb rerank.Matrix
	if a.bias != nil {
		gb = a.bias.grad
	}
	a.backward(a.w.grad, gb, dx, x, dy)
}

func sumRows(dst []float32, m rerank.Matrix) {
	clear(dst)
	for r := range m.Rows {
		add(dst, m.Row(r), 1)
	}
}

// perceptron is linear → SiLU → linear, or one linear layer where first is nil.
type perceptron struct{ first, second *affine }

func (p *perceptron) parameters() []*parameter {
	if p.first == nil {
		return p.second.parameters()
	}
	return append(p.first.parameters(), p.second.parameters()...)
}

func (p *perceptron) hidden() int {
	if p.first == nil {
		return 0
	}
	return p.first.w.Rows
}

// perceptronPass is what a forward pass leaves for the backward one.
type perceptronPass struct {
	x, before, after, slope rerank.Matrix
}

// forward writes y and keeps x, which the backward pass reads.
func (p *perceptron) forward(pass *perceptronPass, y, x rerank.Matrix) {
	pass.x = x
	if p.first == nil {
		p.second.forward(y, x)
		return
	}
	pass.before = grown(pass.before, x.Rows, p.hidden())
	pass.after = grown(pass.after, x.Rows, p.hidden())
	p.first.forward(pass.before, x)
	copy(pass.after.Data, pass.before.Data)
	spread(len(pass.after.Data), 1<<14, func(from, to int) { kernel.Best().SiLU(pass.after.Data[from:to]) })
	p.second.forward(y, pass.after)
}

// backward writes the gradients of the layers to g, in the order of parameters,
// and with dx that of x.
func (p *perceptron) backward(pass *perceptronPass, g []rerank.Matrix, dx *rerank.Matrix, dy rerank.Matrix) {
	var bias rerank.Matrix
	if p.second.bias != nil {
		bias = g[len(g)-1]
	}
	if p.first == nil {
		p.second.backward(g[0], bias, dx, pass.x, dy)
		return
	}
	pass.slope = grown(pass.slope, dy.Rows, p.hidden())
	p.second.backward(g[2], bias, &pass.slope, pass.after, dy)
	spread(len(pass.slope.Data), 1<<14, func(from, to int) {
		siluBackward(pass.slope.Data[from:to], pass.before.Data[from:to], pass.after.Data[from:to])
	})
	p.first.backward(g[0], g[1], dx, pass.x, pass.slope)
}

// grads are those of the parameters.
func grads(parameters []*parameter) []rerank.Matrix {
	g := make([]rerank.Matrix, len(parameters))
	for i, p := range parameters {
		g[i] = p.grad
	}
	return g
}

// siluBackward multiplies d by the derivative of y = x·σ(x), which is
// σ + y(1 − σ).
func siluBackward(d, x, y []float32) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		s := float32(0.5)
		if x[i] != 0 {
			s = y[i] / x[i]
		}
		d[i] *= s + y[i]*(1-s)
	}
}

// molSide projects vectors to components: [gated linear unit →] linear.
type molSide struct {
	gated      *affine // nil: the side is linear; else the activated half, then the other
	activation mol.Activation
	out        *affine
	// Of the last pass.
	x, both, activated, product, dProduct, dBoth rerank.Matrix
}

func (s *molSide) parameters() []*parameter {
	if s.gated == nil {
		return s.out.parameters()
	}
	return append(s.gated.parameters(), s.out.parameters()...)
}

func (s *molSide) forward(y, x rerank.Matrix) {
	s.x = x
	if s.gated == nil {
		s.out.forward(y, x)
		return
	}
	half := s.out.w.Cols
	s.both = grown(s.both, x.Rows, 2*half)
	s.activated = grown(s.activated, x.Rows, half)
	s.product = grown(s.product, x.Rows, half)
	s.gated.forward(s.both, x)
	spread(x.Rows, 16, func(from, to int) {
		for r := from; r < to; r++ {
			row, a := s.both.Row(r), s.activated.Row(r)
			copy(a, row[:half])
			if s.activation == mol.GeGLU {
				kernel.GELU(a)
			} else {
				kernel.SiLU(a)
			}
			for i, v := range row[half:] {
				s.product.Row(r)[i] = a[i] * v
			}
		}
	})
	s.out.forward(y, s.product)
}

// backward learns from the gradient of the last pass's output.
func (s *molSide) backward(dy rerank.Matrix) {
	if s.gated == nil {
		s.out.learn(nil, s.x, dy)
		return
	}
	half := s.out.w.Cols
	s.dProduct = grown(s.dProduct, dy.Rows, half)
	s.dBoth = grown(s.dBoth, dy.Rows, 2*half)
	s.out.learn(&s.dProduct, s.product, dy)
	spread(dy.Rows, 16, func(from, to int) {
		for r := from; r < to; r++ {
			row, a, d, out := s.both.Row(r), s.activated.Row(r), s.dProduct.Row(r), s.dBoth.Row(r)
			for i, v := range d {
				out[i] = v * row[half+i]
				out[half+i] = v * a[i]
			}
			if s.activation == mol.GeGLU {
				geluBackward(out[:half], row[:half])
			} else {
				siluBackward(out[:half], row[:half], a)
			}
		}
	})
	s.gated.learn(nil, s.x, s.dBoth)
}

// geluBackward multiplies d by the derivative of x·Φ(x), Φ(x) + x·Φ'(x).
func geluBackward(d, x []float32) {
	for i, v := range x[:len(d)] {
		z := float64(v)
		d[i] *= float32(0.5*(1+math.Erf(z/math.Sqrt2)) + z*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi))
	}
}

// normaliseParts divides every part of dim numbers by max(‖·‖, eps) and writes
// what it was divided by to norms.
func normaliseParts(norms, v rerank.Matrix, dim int, eps float32) {
	spread(v.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			for i := range norms.Cols {
				part := v.Row(r)[i*dim : (i+1)*dim]
				norms.Row(r)[i] = max(kernel.Norm(part), eps)
				kernel.Normalise(part, eps)
			}
		}
	})
}

// normaliseBackward makes the gradient d of unit parts v that of what they were:
// (d − v⟨v, d⟩)/norm, or d/eps where the norm was clamped.
func normaliseBackward(d, v, norms rerank.Matrix, dim int, eps float32) {
	spread(v.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			for i, norm := range norms.Row(r) {
				dp, vp := d.Row(r)[i*dim:(i+1)*dim], v.Row(r)[i*dim:(i+1)*dim]
				if norm > eps {
					add(dp, vp, -inner(dp, vp))
				}
				for k := range dp {
					dp[k] /= norm
				}
			}
		}
	})
}
