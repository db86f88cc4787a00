package companion

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// reducedRank returns V (dim, m) for the features P (n, m) and the targets Y (n, items). With
// P̂ = PVᵀ, the predictions P̂P̂ᵀY are those of the ridge regression of Y on P in the dim
// directions where they vary most.
//
// With LLᵀ = PᵀP + λI and G = L⁻¹Pᵀ, the regression predicts GᵀGY. The directions are the leading
// eigenvectors U of GY(GY)ᵀ, and V = UᵀL⁻¹.
func reducedRank(ctx context.Context, p, y rerank.Matrix, o Options) (rerank.Matrix, error) {
	done := o.Progress.Begin("solving for the items", 3)
	m := p.Cols
	l, err := factor(p, o.Ridge)
	if err != nil {
		return rerank.Matrix{}, err
	}
	g := mat.NewDense(m, p.Rows, nil)
	for r := range p.Rows {
		for c, v := range p.Row(r) {
			g.Set(c, r, float64(v))
		}
	}
	solveLower(l, g, blas.NoTrans)
	done(1)
	if err := ctx.Err(); err != nil {
		return rerank.Matrix{}, err
	}
	u := leading(linalg.Narrow(g), y, min(o.Dim, m, p.Rows))
	done(1)
	if err := ctx.Err(); err != nil {
		return rerank.Matrix{}, err
	}
	solveLower(l, u, blas.Trans) // L⁻ᵀU = Vᵀ
	done(1)
	return linalg.Narrow(mat.DenseCopyOf(u.T())), nil
}

// factor returns the Cholesky factor L of PᵀP + λI, where λ is a share of the mean of the diagonal.
func factor(p rerank.Matrix, ridge float64) (*mat.TriDense, error) {
	gram := rerank.NewMatrix(p.Cols, p.Cols)
	linalg.Multiply(gram, p, true, p, false)
	a := linalg.Symmetric(gram)
	lambda := ridge * mat.Trace(a) / float64(p.Cols)
	for i := range p.Cols {
		a.SetSym(i, i, a.At(i, i)+lambda)
	}
	var c mat.Cholesky
	if !c.Factorize(a) { //nolint:misspell // gonum's name
		return nil, fmt.Errorf("%w: the features of the queries are not independent enough to solve for the items; raise the ridge", fit.ErrData)
	}
	var l mat.TriDense
	c.LTo(&l)
	return &l, nil
}

// solveLower replaces b by L⁻¹b, or by L⁻ᵀb if t says so.
func solveLower(l *mat.TriDense, b *mat.Dense, t blas.Transpose) {
	blas64.Trsm(blas.Left, t, 1, l.RawTriangular(), b.RawMatrix())
}

// leading returns, as columns, the leading eigenvectors of GY(GY)ᵀ.
func leading(g, y rerank.Matrix, count int) *mat.Dense {
	z := rerank.NewMatrix(g.Rows, y.Cols)
	linalg.Multiply(z, g, false, y, false)
	moment := rerank.NewMatrix(g.Rows, g.Rows)
	linalg.Multiply(moment, z, false, z, true)
	var eigen mat.EigenSym
	u := mat.NewDense(g.Rows, count, nil)
	if !eigen.Factorize(linalg.Symmetric(moment), true) { //nolint:misspell // gonum's name
		for i := range count { // cannot happen with finite numbers; any orthogonal directions are valid
			u.Set(i, i, 1)
		}
		return u
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	u.Copy(vectors.Slice(0, g.Rows, g.Rows-count, g.Rows)) // eigenvalues ascend
	return u
}
