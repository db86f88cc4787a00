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
	var s0, s1, s2, s3 float64 // four sums, so that additions do not wait for each other
	k := 0
	for ; k+4 <= len(v); k += 4 {
		a, b, c, d := float64(v[k]), float64(v[k+1]), float64(v[k+2]), float64(v[k+3])
		s0 += a * a
		s1 += b * b
		s2 += c * c
		s3 += d * d
	}
	for ; k < len(v); k++ {
		s0 += float64(v[k]) * float64(v[k])
	}
	return math.Sqrt((s0 + s1) + (s2 + s3))
}

// NormaliseClamped divides v by max(‖v‖, eps). Because eps is a lower limit and is not
// added, a zero vector stays zero and a vector shorter than eps stays short
// (golden/README.md, formula 3).
func NormaliseClamped(v []float32, eps float64) {
	wide := math.Max(Norm(v), eps)
	n := float32(wide)
	if wide > math.MaxFloat32 { // dividing by a norm of +Inf would turn a finite vector into zero
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
	var s, t, u, w float32 // x·0 is 0 for finite x and NaN otherwise; four sums, so that additions do not wait for each other
	k := 0
	for ; k+4 <= len(v); k += 4 {
		s, t, u, w = s+v[k]*0, t+v[k+1]*0, u+v[k+2]*0, w+v[k+3]*0
	}
	for _, x := range v[k:] {
		s += x * 0
	}
	if (s+t)+(u+w) == 0 {
		return nil
	}
	for i, x := range v {
		if x-x != 0 {
			return fmt.Errorf("%w: %s[%d] is %v; every element must be finite", ErrQuery, what, i, x)
		}
	}
	return nil
}
