package fit

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
)

// pseudoInverse is pinv(A)ᵀ of A = R(S_I, S_Q), m by n, or with λ > 0 the transpose
// of the regularised pinv_λ(A) = (AᵀA + λE)⁻¹Aᵀ (RBE, section 3.2): every singular
// value σ becomes 1/σ, or σ/(σ² + λ). Scores are of float32: a σ below 2⁻²² of the
// greatest is their rounding and counts as 0; equal, zero and dependent rows make
// some. It returns ErrData where the decomposition does not converge.
func pseudoInverse(a rerank.Matrix, lambda float64) (rerank.Matrix, error) {
	wide := mat.NewDense(a.Rows, a.Cols, widened(a.Data))
	var svd mat.SVD
	if !svd.Factorize(wide, mat.SVDThin) { //nolint:misspell // gonum's name
		return rerank.Matrix{}, fmt.Errorf("%w: the scores of the support items have no singular value decomposition", ErrData)
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
	out := rerank.NewMatrix(a.Rows, a.Cols)
	for r := range a.Rows {
		for c := range a.Cols {
			out.Row(r)[c] = float32(product.At(r, c))
		}
	}
	for _, x := range out.Data {
		if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
			return out, fmt.Errorf("%w: the pseudo-inverse of the support items' scores has numbers beyond float32; scale the scores", ErrData)
		}
	}
	return out, nil
}

// rowsOf gathers rows of a matrix.
func rowsOf(m rerank.Matrix, rows []int) rerank.Matrix {
	out := rerank.NewMatrix(len(rows), m.Cols)
	for i, r := range rows {
		copy(out.Row(i), m.Row(r))
	}
	return out
}

// columnsOf gathers columns of a matrix.
func columnsOf(m rerank.Matrix, columns []int) rerank.Matrix {
	out := rerank.NewMatrix(m.Rows, len(columns))
	spread(m.Rows, 256, func(from, to int) {
		for r := from; r < to; r++ {
			row, source := out.Row(r), m.Row(r)
			for i, c := range columns {
				row[i] = source[c]
			}
		}
	})
	return out
}

// notOneOf is ErrOption for a word.
func notOneOf[T ~string](what string, have T, words []T) error {
	text := make([]string, len(words))
	for i, w := range words {
		text[i] = string(w)
	}
	return fmt.Errorf("%w: %s %q is none of %s", ErrOption, what, have, strings.Join(text, ", "))
}
