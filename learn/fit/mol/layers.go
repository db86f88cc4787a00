package mol

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// parameter is an array that the net learns, and its gradient.
type parameter struct {
	rerank.Matrix
	grad rerank.Matrix
	// start is the value that the parameter is pulled to, once the net is made.
	start []float32
}

func newParameter(rows, cols int) *parameter {
	return &parameter{Matrix: rerank.NewMatrix(rows, cols), grad: rerank.NewMatrix(rows, cols)}
}

// fillNormal fills the parameter with normal numbers of this standard deviation.
func (p *parameter) fillNormal(rng *rand.Rand, deviation float64) {
	for i := range p.Data {
		p.Data[i] = float32(deviation * rng.NormFloat64())
	}
}

// affine is the layer y = x·Wᵀ + b. A row of W makes an output. bias has one row, or is
// nil for a layer without b.
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

// forward writes a row of y for each row of x.
func (a *affine) forward(y, x rerank.Matrix) {
	linalg.Multiply(y, x, false, a.w.Matrix, true)
	if a.bias == nil {
		return
	}
	kernels := kernel.Best()
	linalg.Parallel(y.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			kernels.Add(y.Row(r), a.bias.Data)
		}
	})
}

// backward writes the gradients of W and b to gw and gb, and the gradient of x to dx
// unless dx is nil.
func (a *affine) backward(gw, gb rerank.Matrix, dx *rerank.Matrix, x, dy rerank.Matrix) {
	linalg.Multiply(gw, dy, true, x, false)
	if a.bias != nil {
		linalg.SumRows(gb.Data, dy)
	}
	if dx != nil {
		linalg.Multiply(*dx, dy, false, a.w.Matrix, false)
	}
}

// backwardOwn is backward with the gradients of the layer's own parameters.
func (a *affine) backwardOwn(dx *rerank.Matrix, x, dy rerank.Matrix) {
	var gb rerank.Matrix
	if a.bias != nil {
		gb = a.bias.grad
	}
	a.backward(a.w.grad, gb, dx, x, dy)
}

// perceptron is linear → SiLU → linear, or the second layer alone if first is nil.
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

// perceptronPass holds what a forward pass leaves for the backward pass.
type perceptronPass struct {
	x, before, after, slope rerank.Matrix
}

// forward writes y and keeps x for the backward pass.
func (p *perceptron) forward(pass *perceptronPass, y, x rerank.Matrix) {
	pass.x = x
	if p.first == nil {
		p.second.forward(y, x)
		return
	}
	pass.before = linalg.Resize(pass.before, x.Rows, p.hidden())
	pass.after = linalg.Resize(pass.after, x.Rows, p.hidden())
	p.first.forward(pass.before, x)
	copy(pass.after.Data, pass.before.Data)
	linalg.Parallel(len(pass.after.Data), 1<<14, func(from, to int) { kernel.Best().SiLU(pass.after.Data[from:to]) })
	p.second.forward(y, pass.after)
}

// backward writes the gradients of the parameters to g, in their order, and the
// gradient of x to dx unless dx is nil.
func (p *perceptron) backward(pass *perceptronPass, g []rerank.Matrix, dx *rerank.Matrix, dy rerank.Matrix) {
	var bias rerank.Matrix
	if p.second.bias != nil {
		bias = g[len(g)-1]
	}
	if p.first == nil {
		p.second.backward(g[0], bias, dx, pass.x, dy)
		return
	}
	pass.slope = linalg.Resize(pass.slope, dy.Rows, p.hidden())
	p.second.backward(g[2], bias, &pass.slope, pass.after, dy)
	linalg.Parallel(len(pass.slope.Data), 1<<14, func(from, to int) {
		siluBackward(pass.slope.Data[from:to], pass.before.Data[from:to], pass.after.Data[from:to])
	})
	p.first.backward(g[0], g[1], dx, pass.x, pass.slope)
}

// gradientsOf returns the gradients of the parameters.
func gradientsOf(parameters []*parameter) []rerank.Matrix {
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

// side projects vectors to components: a linear layer, after a gated linear unit if
// there is one.
type side struct {
	// gated makes the activated half of the unit and then the other half. If it is nil
	// the side is linear.
	gated      *affine
	activation mol.Activation
	out        *affine
	// Of the last pass.
	x, both, activated, product, dProduct, dBoth rerank.Matrix
}

func (s *side) parameters() []*parameter {
	if s.gated == nil {
		return s.out.parameters()
	}
	return append(s.gated.parameters(), s.out.parameters()...)
}

func (s *side) forward(y, x rerank.Matrix) {
	s.x = x
	if s.gated == nil {
		s.out.forward(y, x)
		return
	}
	half := s.out.w.Cols
	s.both = linalg.Resize(s.both, x.Rows, 2*half)
	s.activated = linalg.Resize(s.activated, x.Rows, half)
	s.product = linalg.Resize(s.product, x.Rows, half)
	s.gated.forward(s.both, x)
	linalg.Parallel(x.Rows, 16, func(from, to int) {
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

// backward computes the gradients from dy, the gradient by the output of the last
// forward pass.
func (s *side) backward(dy rerank.Matrix) {
	if s.gated == nil {
		s.out.backwardOwn(nil, s.x, dy)
		return
	}
	half := s.out.w.Cols
	s.dProduct = linalg.Resize(s.dProduct, dy.Rows, half)
	s.dBoth = linalg.Resize(s.dBoth, dy.Rows, 2*half)
	s.out.backwardOwn(&s.dProduct, s.product, dy)
	linalg.Parallel(dy.Rows, 16, func(from, to int) {
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
	s.gated.backwardOwn(nil, s.x, s.dBoth)
}

// geluBackward multiplies d by the derivative of x·Φ(x), Φ(x) + x·Φ'(x).
func geluBackward(d, x []float32) {
	for i, v := range x[:len(d)] {
		z := float64(v)
		d[i] *= float32(0.5*(1+math.Erf(z/math.Sqrt2)) + z*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi))
	}
}

// normaliseParts divides every part of dim numbers by max(‖·‖, eps) and writes the
// divisors to norms.
func normaliseParts(norms, v rerank.Matrix, dim int, eps float32) {
	linalg.Parallel(v.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			for i := range norms.Cols {
				part := v.Row(r)[i*dim : (i+1)*dim]
				norms.Row(r)[i] = max(kernel.Norm(part), eps)
				kernel.Normalise(part, eps)
			}
		}
	})
}

// normaliseBackward replaces the gradient d of the normalised parts v by the gradient
// of the parts before: (d − v⟨v, d⟩)/norm, or d/eps where the norm was clamped.
func normaliseBackward(d, v, norms rerank.Matrix, dim int, eps float32) {
	linalg.Parallel(v.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			for i, norm := range norms.Row(r) {
				dp, vp := d.Row(r)[i*dim:(i+1)*dim], v.Row(r)[i*dim:(i+1)*dim]
				if norm > eps {
					linalg.AddScaled(dp, vp, -linalg.Dot(dp, vp))
				}
				for k := range dp {
					dp[k] /= norm
				}
			}
		}
	})
}
