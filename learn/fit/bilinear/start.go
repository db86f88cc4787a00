package bilinear

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Start says at which W a fit starts, to which it is also pulled.
type Start string

// The starts of a fit.
const (
	// FromIdentity starts at W = I, the plain inner product.
	FromIdentity Start = "identity"
	// FromLeastSquares starts at the linear map of queries to the items that they chose.
	FromLeastSquares Start = "least_squares"
)

// ridge is the penalty of the least-squares start, as a share of the mean variance of a
// query's coordinates.
const ridge = 0.05

// start is the W at which a form starts. A nil start is the identity.
type start struct{ w *rerank.Matrix }

// value returns W, without a copy where there is one.
func (s start) value(dim int) rerank.Matrix {
	if s.w != nil {
		return *s.w
	}
	w := rerank.NewMatrix(dim, dim)
	for i := range dim {
		w.Data[i*dim+i] = 1
	}
	return w
}

// probe writes Q W to u.
func (s start) probe(u, q rerank.Matrix) {
	if s.w == nil {
		judge.InnerProduct(u, q)
		return
	}
	linalg.Multiply(u, q, false, *s.w, false)
}

// chooseStart decides where the fit starts: at the least-squares map if queries and items
// have different dimensions, or if the map finds held-out items, which it has not seen,
// clearly better than the plain inner product. Then the two sides lie in different
// coordinates, and the identity is as far from a good W as any other matrix.
func (f *fitter) chooseStart() error {
	f.report.Start = FromIdentity
	if f.options.Form == bilinear.Diagonal || f.options.Form == bilinear.IdentityLowRank {
		return nil
	}
	if f.log.Items.Cols != f.log.Queries.Cols {
		f.report.Start = FromLeastSquares
		return nil
	}
	sets := f.log.HoldOutItems(farShare, 1, f.options.Seed)
	if len(sets) == 0 {
		return nil
	}
	pairs := f.log.TrainingPairs(f.split, sets[0])
	if len(pairs) == 0 {
		return nil
	}
	cold := f.thin(f.newJudge(f.log.UnseenQueries(f.split, sets[0]), func(x int32) bool { return sets[0][x] }))
	w, err := leastSquares(f.log, pairs)
	if err != nil {
		return err
	}
	if isFar(cold.Compare(cold.Marks(start{&w}.probe), cold.Marks(judge.InnerProduct))) {
		f.report.Start = FromLeastSquares
	}
	return nil
}

// isFar reports whether the least-squares map, compared with the plain inner product, is clearly better.
func isFar(c fit.Comparison) bool { return c.Gain > farErrors*c.StandardError }

const (
	// farShare is the share of logged items that decide whether the identity is far.
	farShare = 0.2
	// farErrors is the gain on these items, in standard errors, from which it is.
	farErrors = 4
)

// startOf returns the start of a fit to the pairs.
func (f *fitter) startOf(pairs []samples.Pair) (start, error) {
	if f.report.Start != FromLeastSquares {
		return start{}, nil
	}
	w, err := leastSquares(f.log, pairs)
	return start{&w}, err
}

// leastSquares returns the W that minimises Σ ‖Wᵀq − x̄‖² + λ‖W‖², where x̄ is the weighted
// mean of the items of query q, scaled so that the vectors Wᵀq have the root mean square
// norm of the items. pairs lists the pairs query by query.
func leastSquares(l *samples.Log, pairs []samples.Pair) (rerank.Matrix, error) {
	const block = 4096
	dq, dx := l.Queries.Cols, l.Items.Cols
	moment, cross := rerank.NewMatrix(dq, dq), rerank.NewMatrix(dq, dx)
	part, crossPart := rerank.NewMatrix(dq, dq), rerank.NewMatrix(dq, dx)
	starts := samples.PairStarts(pairs)
	for from := 0; from < len(starts)-1; from += block {
		to := min(from+block, len(starts)-1)
		queries, means := rerank.NewMatrix(to-from, dq), rerank.NewMatrix(to-from, dx)
		for i := range to - from {
			own := pairs[starts[from+i]:starts[from+i+1]]
			copy(queries.Row(i), l.Queries.Row(int(own[0].Query)))
			addMeanItem(means.Row(i), l, own)
		}
		linalg.Multiply(part, queries, true, queries, false)
		linalg.AddScaled(moment.Data, part.Data, 1)
		linalg.Multiply(crossPart, queries, true, means, false)
		linalg.AddScaled(cross.Data, crossPart.Data, 1)
	}
	w, err := solveRidge(moment, cross)
	if err != nil {
		return w, err
	}
	// The mean of ‖Wᵀq‖² is tr(Wᵀ M W) over the number of queries.
	product := rerank.NewMatrix(dq, dx)
	linalg.Multiply(product, moment, false, w, false)
	mean := linalg.Dot(product.Data, w.Data) / float64(len(starts)-1)
	if mean > 0 {
		scale := float32(float64(samples.RootMeanSquareNorm(l.Items)) / math.Sqrt(mean))
		for i := range w.Data {
			w.Data[i] *= scale
		}
	}
	return w, nil
}

// addMeanItem adds the weighted mean of the items of one query's pairs to dst.
func addMeanItem(dst []float32, l *samples.Log, own []samples.Pair) {
	var total float64
	for _, p := range own {
		total += float64(p.Weight)
	}
	for _, p := range own {
		linalg.AddScaled(dst, l.Items.Row(int(p.Item)), float64(p.Weight)/total)
	}
}

// solveRidge returns the W with (moment + λI)W = cross.
func solveRidge(moment, cross rerank.Matrix) (rerank.Matrix, error) {
	n := moment.Rows
	var trace float64
	for i := range n {
		trace += float64(moment.Data[i*n+i])
	}
	left := linalg.Symmetric(moment)
	for i := range n {
		left.SetSym(i, i, left.At(i, i)+ridge*trace/float64(n))
	}
	var cholesky mat.Cholesky
	var solution mat.Dense
	if !cholesky.Factorize(left) || cholesky.SolveTo(&solution, linalg.Widen(cross)) != nil { //nolint:misspell // gonum's name
		return rerank.Matrix{}, errors.New("the least-squares start has no solution: the queries' second moment is not positive definite")
	}
	return linalg.Narrow(&solution), nil
}
