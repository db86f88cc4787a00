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

// Refine implements rerank.Refiner. Let x_i be the feature rows of the n scored items (rows of
// Features numbers) and r_i the ranker's scores. Refine replaces q's vector u₀ by
// u* = argmin Σ (⟨x_i, u⟩ − r_i)² + λ·‖u − u₀‖², which is a round of adaptive cross-encoder
// retrieval in the space of feature rows. Unlike other kinds' φ, ⟨x, u₀⟩ approximates the ranker's
// score itself, so scores need no scale and no zero of their own.
func (s *Similarity) Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error) {
	from, ok := q.(*inner.Product)
	if !ok {
		return nil, fmt.Errorf("%w: the query was encoded by another similarity", rerank.ErrQuery)
	}
	if err := inner.CheckRefine(len(from.U), rows, scores); err != nil {
		return nil, err
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
	var residual mat.VecDense
	residual.MulVec(x, u)
	residual.SubVec(mat.NewVecDense(n, toFloat64(scores)), &residual)
	delta, err := inner.Ridge(x, &residual, Ridge)
	if err != nil {
		return nil, err
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
