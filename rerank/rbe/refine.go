package rbe

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
)

// Ridge is λ of Refine, relative to the mean square of a feature over the scored items.
const Ridge = 0.1

// Shares divides calls evenly among rounds. The first round also gets the remainder.
func Shares(calls, rounds int) []int {
	shares := make([]int, max(rounds, 1))
	for i := range shares {
		shares[i] = calls / len(shares)
	}
	shares[0] += calls % len(shares)
	return shares
}

// Refine adapts the query's side of φ to true scores. Let x_i be the feature rows of the n
// scored items (rows of Features numbers) and r_i the ranker's scores. Refine replaces q's
// vector u₀ by u* = argmin Σ (⟨x_i, u⟩ − r_i)² + λ·‖u − u₀‖², which is a round of adaptive
// cross-encoder retrieval in the space of feature rows. q must have been encoded by this
// similarity. Refine returns rerank.ErrItems if the shapes do not fit, and rerank.ErrQuery
// if the result is not finite.
func (s *Similarity) Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error) {
	from, ok := q.(*inner.Product)
	if !ok || len(from.U) != s.spec.Features || rows.Cols != s.spec.Features || rows.Rows != len(scores) || rows.Rows == 0 {
		return nil, fmt.Errorf("%w: %d scores of %d feature rows of %d, want one score a row of %d, and at least one",
			rerank.ErrItems, len(scores), rows.Rows, rows.Cols, s.spec.Features)
	}
	u, err := ridge(from.U, rows, scores)
	if err != nil {
		return nil, err
	}
	return s.newProduct(from.Query, u), nil
}

// ridge solves (XᵀX + λE)·δ = Xᵀ(r − X·u₀) and returns u₀ + δ.
func ridge(start []float32, rows rerank.Matrix, scores []float32) ([]float32, error) {
	n, d := rows.Rows, rows.Cols
	x, u := mat.NewDense(n, d, toFloat64(rows.Data[:n*d])), mat.NewVecDense(d, toFloat64(start))
	var residual, right, delta mat.VecDense
	residual.MulVec(x, u)
	residual.SubVec(mat.NewVecDense(n, toFloat64(scores)), &residual)
	right.MulVec(x.T(), &residual)
	var gram mat.SymDense
	gram.SymOuterK(1, x.T())
	lambda := Ridge * mat.Trace(&gram) / float64(d)
	if lambda == 0 { // the feature rows are all zero, so the scores carry no information
		return slices.Clone(start), nil
	}
	for i := range d {
		gram.SetSym(i, i, gram.At(i, i)+lambda)
	}
	var factors mat.Cholesky
	if !factors.Factorize(&gram) { //nolint:misspell // gonum's word
		return nil, fmt.Errorf("%w: nothing can be fitted to the scores of %d items", rerank.ErrQuery, n)
	}
	if err := factors.SolveVecTo(&delta, &right); err != nil {
		return nil, fmt.Errorf("%w: fitting it to the scores of %d items: %w", rerank.ErrQuery, n, err)
	}
	out := slices.Clone(start)
	for i := range out {
		out[i] += float32(delta.AtVec(i))
	}
	return out, rerank.CheckFinite("refined query", out)
}

func toFloat64(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
