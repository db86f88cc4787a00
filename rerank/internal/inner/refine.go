package inner

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
)

const (
	// refineRidge is λ of Refine, relative to the mean variance of a feature over the scored items.
	refineRidge = 1
	// leastSlope is the least slope of Refine, relative to the slope of a perfect correlation.
	leastSlope = 0.5
)

// Refine fits the query's side u₀ of an inner product to a ranker's scores of a few items. Let x_i be
// the feature rows of the items and r_i their scores, both minus their means, since the ranker has a
// zero and a scale of its own. Refine returns, with the length of u₀,
//
//	u = a·u₀ + argmin_δ Σ (⟨x_i, a·u₀ + δ⟩ − r_i)² + λ·‖δ‖²
//
// where a is the slope of the regression of r_i on ⟨x_i, u₀⟩. It is at least leastSlope times the
// slope for perfect correlation, because the scores of items that all lie near u₀ say little about
// how much u₀ itself is worth. q must be a Product of the given spec. Refine also
// returns q's query vector. It returns rerank.ErrItems if the shapes do not fit, and
// rerank.ErrQuery for a query of another similarity or a result that is not finite.
func Refine(s rerank.Spec, q rerank.Encoded, rows rerank.Matrix, scores []float32) (query, u []float32, err error) {
	p, ok := Same(s)(q)
	if !ok {
		return nil, nil, fmt.Errorf("%w: it was encoded by another similarity", rerank.ErrQuery)
	}
	if u, err = refine(p.U, rows, scores); err != nil {
		return nil, nil, err
	}
	return p.Query, u, nil
}

func refine(u0 []float32, rows rerank.Matrix, scores []float32) ([]float32, error) {
	if err := CheckRefine(len(u0), rows, scores); err != nil {
		return nil, err
	}
	n, d := rows.Rows, rows.Cols
	x, y := mat.NewDense(n, d, toFloat64(rows.Data[:n*d])), mat.NewVecDense(n, toFloat64(scores))
	centre(x, y)
	start := mat.NewVecDense(d, toFloat64(u0))
	var before mat.VecDense // ⟨x_i, u₀⟩
	before.MulVec(x, start)
	slope := 0.0
	if square := mat.Dot(&before, &before); square > 0 {
		slope = max(mat.Dot(&before, y)/square, leastSlope*math.Sqrt(mat.Dot(y, y)/square))
	}
	y.AddScaledVec(y, -slope, &before)
	delta, err := Ridge(x, y, refineRidge)
	if err != nil {
		return nil, err
	}
	delta.AddScaledVec(delta, slope, start)
	length := mat.Norm(delta, 2)
	if length == 0 { // the scores do not differ
		return slices.Clone(u0), nil
	}
	if was := rerank.Norm(u0); was > 0 {
		delta.ScaleVec(was/length, delta)
	}
	out := make([]float32, d)
	for i := range out {
		out[i] = float32(delta.AtVec(i))
	}
	return out, rerank.CheckFinite("refined query", out)
}

// CheckRefine returns rerank.ErrItems unless there is one score for each feature row of the given
// width, and at least one.
func CheckRefine(features int, rows rerank.Matrix, scores []float32) error {
	if rows.Cols != features || rows.Rows != len(scores) || rows.Rows == 0 {
		return fmt.Errorf("%w: %d scores of %d feature rows of %d, want one score a row of %d, and at least one",
			rerank.ErrItems, len(scores), rows.Rows, rows.Cols, features)
	}
	return nil
}

// centre subtracts from each column of x, and from y, its mean.
func centre(x *mat.Dense, y *mat.VecDense) {
	n, d := x.Dims()
	for j := range d {
		column := x.ColView(j).(*mat.VecDense)
		subtractMean(column, n)
	}
	subtractMean(y, n)
}

func subtractMean(v *mat.VecDense, n int) {
	mean := mat.Sum(v) / float64(n)
	for i := range n {
		v.SetVec(i, v.AtVec(i)-mean)
	}
}

// Ridge returns δ = argmin ‖X·δ − y‖² + λ·‖δ‖² with λ = share·trace(XᵀX)/d for X (n, d). It solves a
// system of min(n, d) equations. It returns rerank.ErrQuery if that cannot be solved.
func Ridge(x *mat.Dense, y *mat.VecDense, share float64) (*mat.VecDense, error) {
	n, d := x.Dims()
	delta := mat.NewVecDense(d, nil)
	var gram mat.SymDense
	if n < d { // δ = Xᵀ·(XXᵀ + λE)⁻¹·y is the same δ
		gram.SymOuterK(1, x)
	} else {
		gram.SymOuterK(1, x.T())
	}
	lambda := share * mat.Trace(&gram) / float64(d)
	if lambda == 0 { // the rows are all zero, so the scores carry no information
		return delta, nil
	}
	for i := range gram.SymmetricDim() {
		gram.SetSym(i, i, gram.At(i, i)+lambda)
	}
	var factors mat.Cholesky
	if !factors.Factorize(&gram) { //nolint:misspell // gonum's word
		return nil, fmt.Errorf("%w: nothing can be fitted to the scores of %d items", rerank.ErrQuery, n)
	}
	var err error
	if n < d {
		var dual mat.VecDense
		err = factors.SolveVecTo(&dual, y)
		delta.MulVec(x.T(), &dual)
	} else {
		var right mat.VecDense
		right.MulVec(x.T(), y)
		err = factors.SolveVecTo(delta, &right)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: fitting it to the scores of %d items: %w", rerank.ErrQuery, n, err)
	}
	return delta, nil
}

func toFloat64(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
