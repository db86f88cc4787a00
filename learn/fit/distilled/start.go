package distilled

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// The starts of a head.
const (
	startExact   = "exact"         // qW is the similarity itself
	startAverage = "average"       // least squares onto the averaged probe
	startMean    = "target mean"   // least squares onto the mean of the targets
	startPlain   = "inner product" // u(q) = q
)

// ridge is the share of the mean eigenvalue of QᵀQ that is added to its diagonal.
const ridge = 1e-2

// exactStart returns W if the similarity is one inner product of qW with the stored vectors, and
// false otherwise. It takes the averaged probes of the unit vectors as the rows of W, and checks W
// against the probes of some real queries.
func exactStart(t *teacher.Teacher, queries []int32, unit bool) (rerank.Matrix, bool, error) {
	spec := t.Similarity.Spec()
	if !spec.SingleInnerProduct || spec.UserIDs {
		return rerank.Matrix{}, false, nil
	}
	w, ok, err := probeUnitVectors(t)
	if !ok {
		return w, false, err
	}
	for _, q := range queries[:min(64, len(queries))] {
		if same, err := probesWith(t, w, q, unit); !same {
			return w, false, err
		}
	}
	return w, true, nil
}

// probeUnitVectors returns the averaged probes of the unit vectors, one in each row.
// It returns false if the similarity has no averaged probe.
func probeUnitVectors(t *teacher.Teacher) (rerank.Matrix, bool, error) {
	spec := t.Similarity.Spec()
	w, axis := rerank.NewMatrix(spec.QueryDim, spec.ItemDim), make([]float32, spec.QueryDim)
	for i := range axis {
		axis[i] = 1
		e, err := t.Similarity.Encode(rerank.Query{Vector: axis})
		if err != nil {
			return w, false, err
		}
		v, err := averagedProbe(e)
		if v == nil || err != nil {
			return w, false, err
		}
		copy(w.Row(i), v)
		axis[i] = 0
	}
	return w, true, nil
}

// probesWith reports whether the averaged probe of a query q equals qW up to rounding, so that W is a start for the linear head.
func probesWith(t *teacher.Teacher, w rerank.Matrix, query int32, unit bool) (bool, error) {
	e, err := t.Encode(query)
	if err != nil {
		return false, err
	}
	v, err := averagedProbe(e)
	if v == nil || err != nil {
		return false, err
	}
	q := rerank.Matrix{Rows: 1, Cols: w.Rows, Data: slices.Clone(t.Queries.Row(int(query)))}
	if unit {
		rerank.Normalise(q.Data)
	}
	sum := rerank.NewMatrix(1, w.Cols)
	linalg.Multiply(sum, q, false, w, false)
	linalg.AddScaled(sum.Data, v, -1)
	return rerank.Norm(sum.Data) <= 1e-4*rerank.Norm(v), nil
}

// averagedProbe returns the averaged probe of the stored vectors, or nil if the
// similarity has none.
func averagedProbe(e rerank.Encoded) ([]float32, error) {
	probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
	if errors.Is(err, rerank.ErrStrategy) {
		return nil, nil
	}
	if err != nil || len(probes) != 1 || probes[0].Field != "" {
		return nil, err
	}
	return probes[0].Vector, nil
}

// findStarts returns every W with which a head may start, by name. Their scales are arbitrary.
func (l *lessons) findStarts(t *teacher.Teacher) (map[string]rerank.Matrix, error) {
	starts := map[string]rerank.Matrix{}
	if l.queries.Cols == l.items.Cols {
		eye := rerank.NewMatrix(l.items.Cols, l.items.Cols)
		for i := range eye.Cols {
			eye.Data[i*(eye.Cols+1)] = 1
		}
		starts[startPlain] = eye
	}
	q := linalg.Gather(l.queries, l.train)
	v := rerank.NewMatrix(len(l.train), l.items.Cols)
	l.targetMeans(v)
	starts[startMean] = leastSquares(q, v)
	for i, row := range l.train {
		e, err := t.Encode(row)
		if err != nil {
			return nil, err
		}
		u, err := averagedProbe(e)
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

// targetMeans writes, for each list, the weighted mean of its items less the mean of all
// items.
func (l *lessons) targetMeans(v rerank.Matrix) {
	center := meanOfRows(l.items)
	linalg.Parallel(v.Rows, 32, func(from, to int) {
		weights := make([]float32, 0, 1024)
		for i := from; i < to; i++ {
			list, out := l.lists[i], v.Row(i)
			if len(list.Rows) > cap(weights) {
				weights = make([]float32, 0, len(list.Rows))
			}
			weights = weights[:len(list.Rows)]
			writeWeights(weights, list, l.temperature)
			for k, x := range list.Rows {
				linalg.AddScaled(out, l.items.Row(int(x)), float64(weights[k]))
			}
			linalg.AddScaled(out, center, -1)
		}
	})
}

// meanOfRows returns the mean of the rows.
func meanOfRows(m rerank.Matrix) []float32 {
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

// leastSquares returns the W that minimises ‖QW − V‖² + λ‖W‖².
func leastSquares(q, v rerank.Matrix) rerank.Matrix {
	n, m := q.Cols, v.Cols
	gram, right := rerank.NewMatrix(n, n), rerank.NewMatrix(n, m)
	linalg.Multiply(gram, q, true, q, false)
	linalg.Multiply(right, q, true, v, false)
	var trace float64
	for i := range n {
		trace += float64(gram.Data[i*(n+1)])
	}
	a := linalg.Symmetric(gram)
	for i := range n {
		a.SetSym(i, i, a.At(i, i)+ridge*trace/float64(n)+1e-30)
	}
	var factor mat.Cholesky
	var x mat.Dense
	if !factor.Factorize(a) || factor.SolveTo(&x, linalg.Widen(right)) != nil { //nolint:misspell // gonum's name
		return rerank.NewMatrix(n, m)
	}
	return linalg.Narrow(&x)
}

// chooseStart scales every start for the least loss, and returns the best start and its name.
func (l *lessons) chooseStart(t *teacher.Teacher, o Options) (rerank.Matrix, string, error) {
	starts, err := l.findStarts(t)
	if err != nil {
		return rerank.Matrix{}, "", err
	}
	var chosen rerank.Matrix
	least, name := math.Inf(1), ""
	for _, s := range []string{startPlain, startMean, startAverage} {
		w, ok := starts[s]
		if !ok || rootMeanSquare(w.Data) == 0 {
			continue
		}
		h := newHead(w, 0, o.Seed)
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

// fitScale gives a head the scale of the least loss on a sample, found by golden sections
// over its logarithm, and returns that loss.
func (l *lessons) fitScale(h *head, o Options) float64 {
	d := newLearner(l, h, o)
	h.scale(1 / rootMeanSquare(h.w.value.Data) / math.Sqrt(float64(h.w.value.Rows)))
	at := 0.0
	loss := func(log float64) float64 {
		h.scale(math.Exp(log - at))
		at = log
		return d.sampleLoss(o.Seed)
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
