package rerank

import (
	"fmt"
	"math"
)

// Matrix is a dense row-major float32 matrix: row r is Data[r*Cols : (r+1)*Cols].
// It may be a view of memory that is mapped read-only.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// NewMatrix allocates a matrix of zeros.
func NewMatrix(rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// Row returns row r; it aliases the matrix.
func (m Matrix) Row(r int) []float32 { return m.Data[r*m.Cols : (r+1)*m.Cols : (r+1)*m.Cols] }

// Slice returns rows [from, to); it aliases the matrix.
func (m Matrix) Slice(from, to int) Matrix {
	return Matrix{Rows: to - from, Cols: m.Cols, Data: m.Data[from*m.Cols : to*m.Cols]}
}

// Norm is the Euclidean norm of v, accumulated in float64.
func Norm(v []float32) float64 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// NormaliseClamped divides v by max(‖v‖, eps): a clamp, not a sum, so that a
// zero vector stays zero and a shorter one than eps stays short
// (golden/README.md, formula 3).
func NormaliseClamped(v []float32, eps float64) {
	wide := math.Max(Norm(v), eps)
	n := float32(wide)
	if wide > math.MaxFloat32 { // a finite vector of an infinite float32 norm would become zero
		for i := range v {
			v[i] = float32(float64(v[i]) / wide)
		}
		return
	}
	for i := range v {
		v[i] /= n
	}
}

// Normalise divides v by its norm; a zero vector stays zero.
func Normalise(v []float32) { NormaliseClamped(v, math.SmallestNonzeroFloat32) }

// CheckFinite returns an error naming the first element of v that is NaN or infinite.
func CheckFinite(what string, v []float32) error {
	var even, odd float32 // sums of zeros, which do not wait for each other
	for i := 1; i < len(v); i += 2 {
		even, odd = even+v[i-1]*0, odd+v[i]*0
	}
	if len(v) > 0 {
		even += v[len(v)-1] * 0
	}
	if even+odd == 0 {
		return nil
	}
	for i, x := range v {
		if x-x != 0 {
			return fmt.Errorf("%w: %s[%d] is %v; every element must be finite", ErrQuery, what, i, x)
		}
	}
	return nil
}
