package linalg

import (
	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
)

// PrincipalAxes returns, as columns, the leading eigenvectors of the mean second
// moment of the items and the queries. A form of this rank with the axes on both
// sides is as close to the inner product of these vectors as its rank allows.
func PrincipalAxes(items, queries rerank.Matrix, rank int) rerank.Matrix {
	dim := items.Cols
	moment := mat.NewSymDense(dim, nil)
	for _, m := range []rerank.Matrix{items, queries} {
		gram := rerank.NewMatrix(dim, dim)
		Multiply(gram, m, true, m, false)
		for i := range dim {
			for j := i; j < dim; j++ {
				moment.SetSym(i, j, moment.At(i, j)+float64(gram.Data[i*dim+j])/float64(m.Rows))
			}
		}
	}
	var eigen mat.EigenSym
	axes := rerank.NewMatrix(dim, rank)
	if !eigen.Factorize(moment, true) { //nolint:misspell // gonum's name
		for i := range min(dim, rank) {
			axes.Data[i*rank+i] = 1
		}
		return axes
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	for i := range dim {
		for k := range rank {
			axes.Data[i*rank+k] = float32(vectors.At(i, dim-1-k)) // eigenvalues ascend
		}
	}
	return axes
}
