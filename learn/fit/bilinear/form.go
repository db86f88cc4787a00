package bilinear

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// form is a bilinear form under training. Its scores are S = Q W Xᵀ, where Q has a
// query and X an item a row. It is not safe for concurrent use.
type form interface {
	// params returns the arrays of the parameters, grads the arrays of their gradients.
	params() [][]float32
	grads() [][]float32
	// forward writes S to s. backward, called after forward with the same q and x,
	// computes the gradients from ds, the gradient of the loss by S.
	forward(s, q, x rerank.Matrix)
	backward(ds, q, x rerank.Matrix)
	// addPull adds the gradient of λ‖W − W₀‖² (Frobenius), where W₀ is the start, and
	// returns its value.
	addPull(lambda float64) float64
	// probe writes Q W to u: vectors whose inner products with items are the scores.
	probe(u, q rerank.Matrix)
	// tensors returns the parameters under the names of the model file.
	tensors() tensor.Set
}

var (
	_ form = (*fullForm)(nil)
	_ form = (*diagonalForm)(nil)
	_ form = (*lowRankForm)(nil)
)

// newForm makes a form of a kind at the start, or at the nearest W that the kind allows.
// Diagonal and identity-low-rank forms start at the identity.
func newForm(kind bilinear.Form, rank int, l *samples.Log, seed uint64, s start) form {
	dim := l.Items.Cols
	switch kind {
	case bilinear.Diagonal:
		f := &diagonalForm{w: make([]float32, dim), grad: make([]float32, dim)}
		for i := range f.w {
			f.w[i] = 1
		}
		return f
	case bilinear.LowRank:
		rng := rand.New(rand.NewPCG(seed, 0x10b))
		p, q := lowRankStart(l, rank, s)
		for _, m := range []rerank.Matrix{p, q} { // leaves the saddle point at which the gradients stay on the axes
			for i := range m.Data {
				m.Data[i] += float32(0.3 * rng.NormFloat64() / math.Sqrt(float64(m.Rows)))
			}
		}
		f := newLowRank(p, q, false)
		f.start = s
		return f
	case bilinear.IdentityLowRank:
		start, rng := rerank.NewMatrix(dim, rank), rand.New(rand.NewPCG(seed, 0x10a))
		for i := range start.Data {
			start.Data[i] = float32(rng.NormFloat64() / math.Sqrt(float64(dim)))
		}
		return newLowRank(start, rerank.NewMatrix(dim, rank), true)
	default:
		w := s.value(dim)
		start := w.Data
		w.Data = slices.Clone(start)
		return &fullForm{w: w, grad: rerank.NewMatrix(w.Rows, w.Cols), start: start}
	}
}

// lowRankStart returns the P and Q of the PQᵀ nearest to the start.
func lowRankStart(l *samples.Log, rank int, s start) (p, q rerank.Matrix) {
	if s.w == nil {
		p = linalg.PrincipalAxes(l.Items, l.Queries, rank)
		return p, rerank.Matrix{Rows: p.Rows, Cols: rank, Data: slices.Clone(p.Data)}
	}
	d, err := decompose(*s.w, false)
	if err != nil { // any start will do
		return rerank.NewMatrix(s.w.Rows, rank), rerank.NewMatrix(s.w.Cols, rank)
	}
	f := d.cut(rank)
	return f.p, f.q
}

// fullForm learns every element of W.
type fullForm struct {
	w, grad rerank.Matrix
	between rerank.Matrix // W Xᵀ or Q W, then the gradient of that
	start   []float32     // W₀
}

func (f *fullForm) params() [][]float32 { return [][]float32{f.w.Data} }
func (f *fullForm) grads() [][]float32  { return [][]float32{f.grad.Data} }

// itemsFirst reports whether W Xᵀ costs less than Q W, as it does with fewer items
// than queries.
func itemsFirst(q, x rerank.Matrix) bool { return x.Rows < q.Rows }

func (f *fullForm) forward(s, q, x rerank.Matrix) {
	if itemsFirst(q, x) {
		f.between = linalg.Resize(f.between, f.w.Rows, x.Rows)
		linalg.Multiply(f.between, f.w, false, x, true)
		linalg.Multiply(s, q, false, f.between, false)
		return
	}
	f.between = linalg.Resize(f.between, q.Rows, f.w.Cols)
	linalg.Multiply(f.between, q, false, f.w, false)
	linalg.Multiply(s, f.between, false, x, true)
}

func (f *fullForm) backward(ds, q, x rerank.Matrix) {
	if itemsFirst(q, x) {
		linalg.Multiply(f.between, q, true, ds, false)
		linalg.Multiply(f.grad, f.between, false, x, false)
		return
	}
	linalg.Multiply(f.between, ds, false, x, false)
	linalg.Multiply(f.grad, q, true, f.between, false)
}

func (f *fullForm) addPull(lambda float64) float64 {
	return linalg.AddPull(f.grad.Data, f.w.Data, f.start, lambda)
}

func (f *fullForm) probe(u, q rerank.Matrix) { linalg.Multiply(u, q, false, f.w, false) }

func (f *fullForm) tensors() tensor.Set {
	return tensor.Set{"W": {Shape: []int{f.w.Rows, f.w.Cols}, Data: f.w.Data}}
}

// diagonalForm learns W = diag(w).
type diagonalForm struct {
	w, grad []float32
	between rerank.Matrix
}

func (f *diagonalForm) params() [][]float32 { return [][]float32{f.w} }
func (f *diagonalForm) grads() [][]float32  { return [][]float32{f.grad} }

func (f *diagonalForm) forward(s, q, x rerank.Matrix) {
	f.between = linalg.Resize(f.between, q.Rows, q.Cols)
	f.probe(f.between, q)
	linalg.Multiply(s, f.between, false, x, true)
}

func (f *diagonalForm) backward(ds, q, x rerank.Matrix) {
	linalg.Multiply(f.between, ds, false, x, false)
	clear(f.grad)
	for r := range q.Rows {
		du := f.between.Row(r)
		for i, v := range q.Row(r) {
			f.grad[i] += v * du[i]
		}
	}
}

func (f *diagonalForm) addPull(lambda float64) float64 {
	var sum float64
	for i, w := range f.w {
		sum += float64(w-1) * float64(w-1)
		f.grad[i] += float32(2*lambda) * (w - 1)
	}
	return lambda * sum
}

func (f *diagonalForm) probe(u, q rerank.Matrix) {
	for r := range q.Rows {
		out := u.Row(r)
		for i, v := range q.Row(r) {
			out[i] = v * f.w[i]
		}
	}
}

func (f *diagonalForm) tensors() tensor.Set {
	return tensor.Set{"w": {Shape: []int{len(f.w)}, Data: f.w}}
}

// lowRankForm learns W = PQᵀ, or I + PQᵀ if identity is set.
type lowRankForm struct {
	identity     bool
	p, q         rerank.Matrix
	gradP, gradQ rerank.Matrix
	a, b         rerank.Matrix // QP and XQ, then their gradients
	direct       rerank.Matrix // Q Xᵀ
	start        start         // the matrix at which PQᵀ starts; I + PQᵀ starts at I and has none
}

func newLowRank(p, q rerank.Matrix, identity bool) *lowRankForm {
	return &lowRankForm{
		identity: identity, p: p, q: q,
		gradP: rerank.NewMatrix(p.Rows, p.Cols), gradQ: rerank.NewMatrix(q.Rows, q.Cols),
	}
}

func (f *lowRankForm) params() [][]float32 { return [][]float32{f.p.Data, f.q.Data} }
func (f *lowRankForm) grads() [][]float32  { return [][]float32{f.gradP.Data, f.gradQ.Data} }

func (f *lowRankForm) forward(s, q, x rerank.Matrix) {
	f.a, f.b = linalg.Resize(f.a, q.Rows, f.p.Cols), linalg.Resize(f.b, x.Rows, f.q.Cols)
	linalg.Multiply(f.a, q, false, f.p, false)
	linalg.Multiply(f.b, x, false, f.q, false)
	linalg.Multiply(s, f.a, false, f.b, true)
	if !f.identity {
		return
	}
	f.direct = linalg.Resize(f.direct, q.Rows, x.Rows)
	linalg.Multiply(f.direct, q, false, x, true)
	linalg.AddScaled(s.Data, f.direct.Data, 1)
}

func (f *lowRankForm) backward(ds, q, x rerank.Matrix) {
	da := rerank.NewMatrix(q.Rows, f.p.Cols)
	linalg.Multiply(da, ds, false, f.b, false)
	linalg.Multiply(f.b, ds, true, f.a, false)
	linalg.Multiply(f.gradP, q, true, da, false)
	linalg.Multiply(f.gradQ, x, true, f.b, false)
}

// addPull implements form. With G = QᵀQ and H = PᵀP, ‖PQᵀ‖² = tr(HG) and
// tr(W₀ᵀPQᵀ) = Σ P∘(W₀Q).
func (f *lowRankForm) addPull(lambda float64) float64 {
	rank := f.p.Cols
	g, h := rerank.NewMatrix(rank, rank), rerank.NewMatrix(rank, rank)
	linalg.Multiply(g, f.q, true, f.q, false)
	linalg.Multiply(h, f.p, true, f.p, false)
	bothP, bothQ := rerank.NewMatrix(f.p.Rows, rank), rerank.NewMatrix(f.q.Rows, rank)
	linalg.Multiply(bothP, f.p, false, g, false)
	linalg.AddScaled(f.gradP.Data, bothP.Data, 2*lambda)
	linalg.Multiply(bothQ, f.q, false, h, false)
	linalg.AddScaled(f.gradQ.Data, bothQ.Data, 2*lambda)
	sum := linalg.Dot(g.Data, h.Data)
	if f.identity {
		return lambda * sum
	}
	q, p, square := f.q, f.p, float64(f.p.Rows) // W₀Q, W₀ᵀP and ‖W₀‖² of the identity
	if w := f.start.w; w != nil {
		q, p, square = bothP, bothQ, linalg.Dot(w.Data, w.Data)
		linalg.Multiply(q, *w, false, f.q, false)
		linalg.Multiply(p, *w, true, f.p, false)
	}
	linalg.AddScaled(f.gradP.Data, q.Data, -2*lambda)
	linalg.AddScaled(f.gradQ.Data, p.Data, -2*lambda)
	sum += square - 2*linalg.Dot(f.p.Data, q.Data)
	return lambda * sum
}

func (f *lowRankForm) probe(u, q rerank.Matrix) {
	a := rerank.NewMatrix(q.Rows, f.p.Cols)
	linalg.Multiply(a, q, false, f.p, false)
	linalg.Multiply(u, a, false, f.q, true)
	if f.identity {
		linalg.AddScaled(u.Data, q.Data, 1)
	}
}

func (f *lowRankForm) tensors() tensor.Set {
	return tensor.Set{
		"P": {Shape: []int{f.p.Rows, f.p.Cols}, Data: f.p.Data},
		"Q": {Shape: []int{f.q.Rows, f.q.Cols}, Data: f.q.Data},
	}
}
