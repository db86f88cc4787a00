package fit

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
)

// How a probe starts.
const (
	startExact   = "exact"         // u(q) = qW is the similarity's own probe
	startAverage = "average"       // least squares onto the averaged probe
	startMean    = "target mean"   // least squares onto the mean of the targets
	startPlain   = "inner product" // u(q) = q
)

// ridge is the share of the mean eigenvalue of QᵀQ that is added to its diagonal.
const ridge = 1e-2

// exactStart returns the W of a similarity that is one inner product of qW with
// the stored vectors: the averaged probes of the unit vectors are its rows, if
// those of real queries are their sums. It returns false for any other.
func (t *teacher) exactStart(queries []int32, unit bool) (rerank.Matrix, bool, error) {
	spec := t.similarity.Spec()
	if !spec.SingleInnerProduct || spec.UserIDs {
		return rerank.Matrix{}, false, nil
	}
	w, ok, err := t.axes()
	if !ok {
		return w, false, err
	}
	for _, q := range queries[:min(64, len(queries))] {
		if same, err := t.agrees(w, q, unit); !same {
			return w, false, err
		}
	}
	return w, true, nil
}

// axes are the averaged probes of the unit vectors, false where there are none.
func (t *teacher) axes() (rerank.Matrix, bool, error) {
	spec := t.similarity.Spec()
	w, axis := rerank.NewMatrix(spec.QueryDim, spec.ItemDim), make([]float32, spec.QueryDim)
	for i := range axis {
		axis[i] = 1
		e, err := t.similarity.Encode(rerank.Query{Vector: axis})
		if err != nil {
			return w, false, err
		}
		v, err := averaged(e)
		if v == nil || err != nil {
			return w, false, err
		}
		copy(w.Row(i), v)
		axis[i] = 0
	}
	return w, true, nil
}

// agrees: the averaged probe of the query is qW.
func (t *teacher) agrees(w rerank.Matrix, query int32, unit bool) (bool, error) {
	e, err := t.encode(query)
	if err != nil {
		return false, err
	}
	v, err := averaged(e)
	if v == nil || err != nil {
		return false, err
	}
	q := rerank.Matrix{Rows: 1, Cols: w.Rows, Data: slices.Clone(t.queries.Row(int(query)))}
	if unit {
		rerank.Normalise(q.Data)
	}
	sum := rerank.NewMatrix(1, w.Cols)
	multiply(sum, q, false, w, false)
	add(sum.Data, v, -1)
	return rerank.Norm(sum.Data) <= 1e-4*rerank.Norm(v), nil
}

// averaged is the averaged probe on the stored vectors, nil where there is none.
func averaged(e rerank.Encoded) ([]float32, error) {
	probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
	if errors.Is(err, rerank.ErrStrategy) {
		return nil, nil
	}
	if err != nil || len(probes) != 1 || probes[0].Field != "" {
		return nil, err
	}
	return probes[0].Vector, nil
}

// starts are what a probe may begin with, all at another scale than it needs.
func (l *lessons) starts(t *teacher) (map[string]rerank.Matrix, error) {
	starts := map[string]rerank.Matrix{}
	if l.queries.Cols == l.items.Cols {
		eye := rerank.NewMatrix(l.items.Cols, l.items.Cols)
		for i := range eye.Cols {
			eye.Data[i*(eye.Cols+1)] = 1
		}
		starts[startPlain] = eye
	}
	q := rerank.NewMatrix(len(l.train), l.queries.Cols)
	gather(q, l.queries, l.train)
	v := rerank.NewMatrix(len(l.train), l.items.Cols)
	l.targetMeans(v)
	starts[startMean] = leastSquares(q, v)
	for i, row := range l.train {
		e, err := t.encode(row)
		if err != nil {
			return nil, err
		}
		u, err := averaged(e)
		if err != nil {
			return nil, err
		}
		if u == nil {
			return starts, nil
		}
		copy(v.Row(i), u)
	}
	starts[startAverage] = leastSquares(q, v)
	return starts, nil
}

// targetMeans writes the mean of the items of each list by their weights, less
// the mean of all items.
func (l *lessons) targetMeans(v rerank.Matrix) {
	center := centre(l.items)
	spread(v.Rows, 32, func(from, to int) {
		weights := make([]float32, 0, 1024)
		for i := from; i < to; i++ {
			list, out := l.lists[i], v.Row(i)
			if len(list.rows) > cap(weights) {
				weights = make([]float32, 0, len(list.rows))
			}
			weights = weights[:len(list.rows)]
			list.weights(weights, l.temperature)
			for k, x := range list.rows {
				add(out, l.items.Row(int(x)), float64(weights[k]))
			}
			add(out, center, -1)
		}
	})
}

// centre is the mean row.
func centre(m rerank.Matrix) []float32 {
	sums, out := make([]float64, m.Cols), make([]float32, m.Cols)
	for r := range m.Rows {
		for i, v := range m.Row(r) {
			sums[i] += float64(v)
		}
	}
	for i, s := range sums {
		out[i] = float32(s / float64(max(m.Rows, 1)))
	}
	return out
}

// leastSquares returns the W with the least ‖QW − V‖² + λ‖W‖².
func leastSquares(q, v rerank.Matrix) rerank.Matrix {
	n, m := q.Cols, v.Cols
	gram, right := rerank.NewMatrix(n, n), rerank.NewMatrix(n, m)
	multiply(gram, q, true, q, false)
	multiply(right, q, true, v, false)
	var trace float64
	for i := range n {
		trace += float64(gram.Data[i*(n+1)])
	}
	a, b := mat.NewSymDense(n, nil), mat.NewDense(n, m, nil)
	for i := range n {
		for j := i; j < n; j++ {
			a.SetSym(i, j, float64(gram.Data[i*n+j]))
		}
		a.SetSym(i, i, a.At(i, i)+ridge*trace/float64(n)+1e-30)
		for j := range m {
			b.Set(i, j, float64(right.Data[i*m+j]))
		}
	}
	w := rerank.NewMatrix(n, m)
	var factor mat.Cholesky
	var x mat.Dense
	if !factor.Factorize(a) || factor.SolveTo(&x, b) != nil { //nolint:misspell // gonum's name
		return w
	}
	for i := range n {
		for j := range m {
			w.Data[i*m+j] = float32(x.At(i, j))
		}
	}
	return w
}

// chooseStart scales every start as the loss wants it and takes the best, by name
// where they are equal. The head that it returns is linear.
func (l *lessons) chooseStart(t *teacher, o DistilOptions) (rerank.Matrix, string, error) {
	starts, err := l.starts(t)
	if err != nil {
		return rerank.Matrix{}, "", err
	}
	var chosen rerank.Matrix
	least, name := math.Inf(1), ""
	for _, s := range []string{startPlain, startMean, startAverage} {
		w, ok := starts[s]
		if !ok || sizeOf(w.Data) == 0 {
			continue
		}
		h := newProbeHead(w, 0, o.Seed)
		if loss := l.fitScale(h, o); loss < least {
			least, name, chosen = loss, s, h.w.value
		}
	}
	if name == "" {
		return chosen, "", errNoStart
	}
	return chosen, name, nil
}

var errNoStart = errors.New("no start of the probe gives a finite loss")

// fitScale multiplies a head by what makes its loss on a sample the least, found
// by golden sections over the logarithm, and returns that loss.
func (l *lessons) fitScale(h *probeHead, o DistilOptions) float64 {
	d := newDistiller(l, h, o)
	h.scale(1 / sizeOf(h.w.value.Data) / math.Sqrt(float64(h.w.value.Rows)))
	at := 0.0
	loss := func(log float64) float64 {
		h.scale(math.Exp(log - at))
		at = log
		return d.sample(o.Seed)
	}
	const golden = 0.6180339887
	low, high := math.Log(0.1), math.Log(1e4)
	a, b := high-golden*(high-low), low+golden*(high-low)
	fa, fb := loss(a), loss(b)
	for range 14 {
		if fa < fb {
			high, b, fb = b, a, fa
			a = high - golden*(high-low)
			fa = loss(a)
		} else {
			low, a, fa = a, b, fb
			b = low + golden*(high-low)
			fb = loss(b)
		}
	}
	return loss((low + high) / 2)
}
