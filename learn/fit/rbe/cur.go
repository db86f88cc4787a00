package rbe

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// pseudoInverse returns pinv(A)ᵀ for A = R(S_I, S_Q), m by n, or with λ > 0 the transpose
// of the regularised pinv_λ(A) = (AᵀA + λE)⁻¹Aᵀ (RBE, section 3.2): every singular
// value σ becomes 1/σ, or σ/(σ² + λ). Equal, zero and dependent rows make singular
// values that are 0 but for the rounding of float32: those below 2⁻²² of the greatest
// count as 0. It returns fit.ErrData if the decomposition does not converge.
func pseudoInverse(a rerank.Matrix, lambda float64) (rerank.Matrix, error) {
	wide := mat.NewDense(a.Rows, a.Cols, toFloat64(a.Data))
	var svd mat.SVD
	if !svd.Factorize(wide, mat.SVDThin) { //nolint:misspell // gonum's name
		return rerank.Matrix{}, fmt.Errorf("%w: the scores of the support items have no singular value decomposition", fit.ErrData)
	}
	values := svd.Values(nil)
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	least := values[0] * 0x1p-22
	for i, s := range values {
		factor := 0.0
		if s > least {
			factor = 1 / (s + lambda/s)
		}
		for r := range a.Rows {
			u.Set(r, i, u.At(r, i)*factor)
		}
	}
	var product mat.Dense
	product.Mul(&u, v.T())
	out := linalg.Narrow(&product)
	for _, x := range out.Data {
		if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
			return out, fmt.Errorf("%w: the pseudo-inverse of the support items' scores has numbers beyond float32; scale the scores", fit.ErrData)
		}
	}
	return out, nil
}

// selectRows returns the named rows of a matrix.
func selectRows(m rerank.Matrix, rows []int) rerank.Matrix {
	out := rerank.NewMatrix(len(rows), m.Cols)
	for i, r := range rows {
		copy(out.Row(i), m.Row(r))
	}
	return out
}

// selectColumns returns the named columns of a matrix.
func selectColumns(m rerank.Matrix, columns []int) rerank.Matrix {
	out := rerank.NewMatrix(m.Rows, len(columns))
	linalg.Parallel(m.Rows, 256, func(from, to int) {
		for r := from; r < to; r++ {
			row, source := out.Row(r), m.Row(r)
			for i, c := range columns {
				row[i] = source[c]
			}
		}
	})
	return out
}
