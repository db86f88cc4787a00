package fit

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// form is a bilinear form that learns: its parameters, and the gradients of a
// loss of S = Q W Xᵀ. It is not safe for concurrent use.
type form interface {
	// params and grads are the arrays of the parameters and of their gradients.
	params() [][]float32
	grads() [][]float32
	// forward writes S = Q W Xᵀ; backward, called after it, the gradients of the
	// loss from that of S.
	forward(s, q, x rerank.Matrix)
	backward(ds, q, x rerank.Matrix)
	// pull adds the gradient of λ‖W − I‖² (Frobenius) and returns its value.
	pull(lambda float64) float64
	// probe writes Q W, one vector a query, for inner products with items.
	probe(u, q rerank.Matrix)
	tensors() tensor.Set
}

var (
	_ form = (*full)(nil)
	_ form = (*diagonal)(nil)
	_ form = (*lowRank)(nil)
)

// newForm makes a form at its start: the identity, or what is nearest to it.
func newForm(kind bilinear.Form, rank int, p *problem, seed uint64) form {
	dim := p.items.Cols
	switch kind {
	case bilinear.Diagonal:
		f := &diagonal{w: make([]float32, dim), grad: make([]float32, dim)}
		for i := range f.w {
			f.w[i] = 1
		}
		return f
	case bilinear.LowRank:
		axes, rng := principal(p, rank), rand.New(rand.NewPCG(seed, 0x10b))
		other := rerank.Matrix{Rows: dim, Cols: rank, Data: slices.Clone(axes.Data)}
		for _, m := range []rerank.Matrix{axes, other} { // off the saddle where no gradient leaves the axes
			for i := range m.Data {
				m.Data[i] += float32(0.3 * rng.NormFloat64() / math.Sqrt(float64(dim)))
			}
		}
		return newLowRank(axes, other, false)
	case bilinear.IdentityLowRank:
		start, rng := rerank.NewMatrix(dim, rank), rand.New(rand.NewPCG(seed, 0x10a))
		for i := range start.Data {
			start.Data[i] = float32(rng.NormFloat64() / math.Sqrt(float64(dim)))
		}
		return newLowRank(start, rerank.NewMatrix(dim, rank), true)
	default:
		f := &full{w: rerank.NewMatrix(dim, dim), grad: rerank.NewMatrix(dim, dim)}
		for i := range dim {
			f.w.Data[i*dim+i] = 1
		}
		return f
	}
}

// full is W itself.
type full struct {
	w, grad rerank.Matrix
	between rerank.Matrix // W Xᵀ or Q W, and its gradient
}

func (f *full) params() [][]float32 { return [][]float32{f.w.Data} }
func (f *full) grads() [][]float32  { return [][]float32{f.grad.Data} }

// itemsFirst: W Xᵀ costs less than Q W where there are fewer items than queries.
func itemsFirst(q, x rerank.Matrix) bool { return x.Rows < q.Rows }

func (f *full) forward(s, q, x rerank.Matrix) {
	if itemsFirst(q, x) {
		f.between = grown(f.between, f.w.Rows, x.Rows)
		multiply(f.between, f.w, false, x, true)
		multiply(s, q, false, f.between, false)
		return
	}
	f.between = grown(f.between, q.Rows, f.w.Cols)
	multiply(f.between, q, false, f.w, false)
	multiply(s, f.between, false, x, true)
}

func (f *full) backward(ds, q, x rerank.Matrix) {
	if itemsFirst(q, x) {
		multiply(f.between, q, true, ds, false)
		multiply(f.grad, f.between, false, x, false)
		return
	}
	multiply(f.between, ds, false, x, false)
	multiply(f.grad, q, true, f.between, false)
}

func (f *full) pull(lambda float64) float64 {
	var sum float64
	for i, w := range f.w.Data {
		if i%(f.w.Cols+1) == 0 {
			w--
		}
		sum += float64(w) * float64(w)
		f.grad.Data[i] += float32(2*lambda) * w
	}
	return lambda * sum
}

func (f *full) probe(u, q rerank.Matrix) { multiply(u, q, false, f.w, false) }

func (f *full) tensors() tensor.Set {
	return tensor.Set{"W": {Shape: []int{f.w.Rows, f.w.Cols}, Data: f.w.Data}}
}

// diagonal is W = diag(w).
type diagonal struct {
	w, grad []float32
	between rerank.Matrix
}

func (f *diagonal) params() [][]float32 { return [][]float32{f.w} }
func (f *diagonal) grads() [][]float32  { return [][]float32{f.grad} }

func (f *diagonal) forward(s, q, x rerank.Matrix) {
	f.between = grown(f.between, q.Rows, q.Cols)
	f.probe(f.between, q)
	multiply(s, f.between, false, x, true)
}

func (f *diagonal) backward(ds, q, x rerank.Matrix) {
	multiply(f.between, ds, false, x, false)
	clear(f.grad)
	for r := range q.Rows {
		du := f.between.Row(r)
		for i, v := range q.Row(r) {
			f.grad[i] += v * du[i]
		}
	}
}

func (f *diagonal) pull(lambda float64) float64 {
	var sum float64
	for i, w := range f.w {
		sum += float64(w-1) * float64(w-1)
		f.grad[i] += float32(2*lambda) * (w - 1)
	}
	return lambda * sum
}

func (f *diagonal) probe(u, q rerank.Matrix) {
	for r := range q.Rows {
		out := u.Row(r)
		for i, v := range q.Row(r) {
			out[i] = v * f.w[i]
		}
	}
}

func (f *diagonal) tensors() tensor.Set {
	return tensor.Set{"w": {Shape: []int{len(f.w)}, Data: f.w}}
}

// lowRank is W = PQᵀ, or I + PQᵀ.
type lowRank struct {
	identity     bool
	p, q         rerank.Matrix
	gradP, gradQ rerank.Matrix
	a, b         rerank.Matrix // QP and XQ, then their gradients
	direct       rerank.Matrix // Q Xᵀ
}

func newLowRank(p, q rerank.Matrix, identity bool) *lowRank {
	return &lowRank{
		identity: identity, p: p, q: q,
		gradP: rerank.NewMatrix(p.Rows, p.Cols), gradQ: rerank.NewMatrix(q.Rows, q.Cols),
	}
}

func (f *lowRank) params() [][]float32 { return [][]float32{f.p.Data, f.q.Data} }
func (f *lowRank) grads() [][]float32  { return [][]float32{f.gradP.Data, f.gradQ.Data} }

func (f *lowRank) forward(s, q, x rerank.Matrix) {
	f.a, f.b = grown(f.a, q.Rows, f.p.Cols), grown(f.b, x.Rows, f.q.Cols)
	multiply(f.a, q, false, f.p, false)
	multiply(f.b, x, false, f.q, false)
	multiply(s, f.a, false, f.b, true)
	if !f.identity {
		return
	}
	f.direct = grown(f.direct, q.Rows, x.Rows)
	multiply(f.direct, q, false, x, true)
	add(s.Data, f.direct.Data, 1)
}

func (f *lowRank) backward(ds, q, x rerank.Matrix) {
	da := rerank.NewMatrix(q.Rows, f.p.Cols)
	multiply(da, ds, false, f.b, false)
	multiply(f.b, ds, true, f.a, false)
	multiply(f.gradP, q, true, da, false)
	multiply(f.gradQ, x, true, f.b, false)
}

// pull: with G = QᵀQ and H = PᵀP, ‖PQᵀ‖² = tr(HG) and tr(PQᵀ) = Σ P∘Q.
func (f *lowRank) pull(lambda float64) float64 {
	rank := f.p.Cols
	g, h := rerank.NewMatrix(rank, rank), rerank.NewMatrix(rank, rank)
	multiply(g, f.q, true, f.q, false)
	multiply(h, f.p, true, f.p, false)
	both := rerank.NewMatrix(f.p.Rows, rank)
	multiply(both, f.p, false, g, false)
	add(f.gradP.Data, both.Data, 2*lambda)
	multiply(both, f.q, false, h, false)
	add(f.gradQ.Data, both.Data, 2*lambda)
	sum := inner(g.Data, h.Data)
	if !f.identity {
		add(f.gradP.Data, f.q.Data, -2*lambda)
		add(f.gradQ.Data, f.p.Data, -2*lambda)
		sum += float64(f.p.Rows) - 2*inner(f.p.Data, f.q.Data)
	}
	return lambda * sum
}

func (f *lowRank) probe(u, q rerank.Matrix) {
	a := rerank.NewMatrix(q.Rows, f.p.Cols)
	multiply(a, q, false, f.p, false)
	multiply(u, a, false, f.q, true)
	if f.identity {
		add(u.Data, q.Data, 1)
	}
}

func (f *lowRank) tensors() tensor.Set {
	shape := []int{f.p.Rows, f.p.Cols}
	return tensor.Set{"P": {Shape: shape, Data: f.p.Data}, "Q": {Shape: shape, Data: f.q.Data}}
}

// add is dst += c·v.
func add(dst, v []float32, c float64) {
	k := float32(c)
	for i, x := range v {
		dst[i] += k * x
	}
}

func inner(a, b []float32) float64 {
	var sum float64
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

// principal returns the first axes of the queries and items, as columns: with
// them on both sides a form of that rank is as near to the inner product of
// those vectors as it can be.
func principal(p *problem, rank int) rerank.Matrix {
	dim := p.items.Cols
	moment := mat.NewSymDense(dim, nil)
	for _, m := range []rerank.Matrix{p.items, p.queries} {
		gram := rerank.NewMatrix(dim, dim)
		multiply(gram, m, true, m, false)
		for i := range dim {
			for j := i; j < dim; j++ {
				moment.SetSym(i, j, moment.At(i, j)+float64(gram.Data[i*dim+j])/float64(m.Rows))
			}
		}
	}
	var eigen mat.EigenSym
	axes := rerank.NewMatrix(dim, rank)
	if !eigen.Factorize(moment, true) { //nolint:misspell // gonum's name
		for i := range min(dim, rank) {
			axes.Data[i*rank+i] = 1
		}
		return axes
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	for i := range dim {
		for k := range rank {
			axes.Data[i*rank+k] = float32(vectors.At(i, dim-1-k)) // eigenvalues ascend
		}
	}
	return axes
}
