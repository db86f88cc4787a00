package kernel

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// SpectralNorm returns an upper bound of the greatest singular value of w: the 128th root
// of the trace of (WᵀW)⁶⁴, or the Frobenius norm if W is large.
func SpectralNorm(w rerank.Matrix) float64 {
	const widest = 256
	if w.Cols > w.Rows {
		w = Transpose(w)
	}
	n, length := w.Cols, rerank.Norm(w.Data)
	if n == 0 || n > widest || length == 0 || length < 1e-100 || length-length != 0 {
		return length
	}
	gram := make([]float64, n*n)
	for r := range w.Rows {
		row := w.Row(r)
		for i, x := range row {
			scaled := float64(x) / (length * length)
			for j, y := range row {
				gram[i*n+j] += scaled * float64(y)
			}
		}
	}
	for range 5 {
		gram = square(gram, n)
	}
	var sum float64 // trace of the squared matrix
	for _, x := range gram {
		sum += x * x
	}
	return length * math.Pow(sum, 1./128) * (1 + 1e-9)
}

// square multiplies a symmetric n×n matrix with itself.
func square(m []float64, n int) []float64 {
	out := make([]float64, n*n)
	for i := range n {
		row := out[i*n:][:n]
		for k, x := range m[i*n:][:n] {
			for j, y := range m[k*n:][:n] {
				row[j] += x * y
			}
		}
	}
	return out
}
