package linalg

import (
	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/rerank"
)

// Widen returns m in float64.
func Widen(m rerank.Matrix) *mat.Dense {
	wide := mat.NewDense(m.Rows, m.Cols, nil)
	for r := range m.Rows {
		row := wide.RawRowView(r)
		for c, v := range m.Row(r) {
			row[c] = float64(v)
		}
	}
	return wide
}

// Symmetric returns m in float64. m must be symmetric; its upper triangle is read.
func Symmetric(m rerank.Matrix) *mat.SymDense {
	wide := mat.NewSymDense(m.Rows, nil)
	for r := range m.Rows {
		for c := r; c < m.Cols; c++ {
			wide.SetSym(r, c, float64(m.Data[r*m.Cols+c]))
		}
	}
	return wide
}

// Narrow returns m in float32.
func Narrow(m *mat.Dense) rerank.Matrix {
	rows, cols := m.Dims()
	narrow := rerank.NewMatrix(rows, cols)
	for r := range rows {
		row := narrow.Row(r)
		for c, v := range m.RawRowView(r) {
			row[c] = float32(v)
		}
	}
	return narrow
}
