package rbe

import (
	"context"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// spannedShare is the share of a row's squared norm below which the residual counts as
// rounding and the row as lying in the span of the chosen rows.
const spannedShare = 1e-10

// greedy chooses rows of X one by one. Each time it adds the row that leaves the least
// error Σ‖x_i − π(x_i)‖², where π projects onto the span of the chosen rows (RBE, section
// 3.4 and appendix B). With the residual r_i of row i and o_i = r_i/‖r_i‖, this is the row
// of the greatest gain o_iᵀGo_i, G = XᵀX, because residuals are orthogonal to the chosen
// rows.
//
// It keeps N_i = r_iᵀGr_i and S_i = ‖r_i‖² instead of vectors for each row: for
// the direction u = o_b of the row b chosen, r_i loses a_i·u, a_i = ⟨x_i, u⟩, so
//
//	S_i ← S_i − a_i²,  N_i ← N_i − 2·a_i·⟨r_i, Gu⟩ + a_i²·uᵀGu.
//
// All sums are in float64. The start takes O(n²M), a step O(n(n+M)).
type greedy struct {
	x     rerank.Matrix // M rows of n
	gram  blas64.General
	norm  []float64 // ‖x_i‖²
	left  []float64 // S
	gain  []float64 // N
	basis [][]float64
	// parts[l][i] is ⟨x_i, u_l⟩, where u_l is a direction of the basis.
	parts [][]float64
}

// gramBlock is the side of the blocks in which products are computed.
const gramBlock = 256

// newGreedy computes G and N.
func newGreedy(ctx context.Context, x rerank.Matrix, done func(n int)) (*greedy, error) {
	g := &greedy{x: x, gram: blas64.General{Rows: x.Cols, Cols: x.Cols, Stride: x.Cols, Data: make([]float64, x.Cols*x.Cols)}}
	g.norm, g.left, g.gain = make([]float64, x.Rows), make([]float64, x.Rows), make([]float64, x.Rows)
	for from := 0; from < x.Rows; from += 4 * gramBlock {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(from+4*gramBlock, x.Rows)
		g.addGram(from, to)
		done(to - from)
	}
	for i := range x.Cols {
		for j := range i {
			g.gram.Data[i*x.Cols+j] = g.gram.Data[j*x.Cols+i]
		}
	}
	for from := 0; from < x.Rows; from += 4 * gramBlock {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(from+4*gramBlock, x.Rows)
		g.addForms(from, to)
		done(to - from)
	}
	return g, nil
}

// addGram adds the products of some rows of X to the blocks of G on and above the
// diagonal.
func (g *greedy) addGram(from, to int) {
	n, rows := g.x.Cols, to-from
	t := blas64.General{Rows: n, Cols: rows, Stride: rows, Data: make([]float64, n*rows)} // the rows as columns
	for r := range rows {
		for c, v := range g.x.Row(from + r) {
			t.Data[c*rows+r] = float64(v)
			g.norm[from+r] += float64(v) * float64(v)
		}
		g.left[from+r] = g.norm[from+r]
	}
	for i := 0; i < n; i += gramBlock {
		a, to := blockOf(t, i, min(i+gramBlock, n), 0, rows), min(i+gramBlock, n)
		blas64.Gemm(blas.NoTrans, blas.Trans, 1, a, blockOf(t, i, n, 0, rows), 1, blockOf(g.gram, i, to, i, n))
	}
}

// addForms computes x_iᵀGx_i for some rows, as twice x_iᵀLx_i, where L is the lower
// triangle of G with half of the diagonal.
func (g *greedy) addForms(from, to int) {
	n, rows := g.x.Cols, to-from
	x := blas64.General{Rows: rows, Cols: n, Stride: n, Data: make([]float64, rows*n)}
	for i, v := range g.x.Data[from*n : to*n] {
		x.Data[i] = float64(v)
	}
	y := blas64.General{Rows: rows, Cols: gramBlock, Stride: gramBlock, Data: make([]float64, rows*gramBlock)}
	l := blas64.General{Rows: gramBlock, Cols: n, Stride: n, Data: make([]float64, gramBlock*n)}
	for i := 0; i < n; i += gramBlock {
		end := min(i+gramBlock, n)
		for r := i; r < end; r++ { // the lower triangle's rows
			row := l.Data[(r-i)*n : (r-i)*n+n]
			copy(row, g.gram.Data[r*n:r*n+r])
			clear(row[r:])
			row[r] = g.gram.Data[r*n+r] / 2
		}
		out := blockOf(y, 0, rows, 0, end-i)
		blas64.Gemm(blas.NoTrans, blas.Trans, 1, blockOf(x, 0, rows, 0, end), blockOf(l, 0, end-i, 0, end), 0, out)
		for r := range rows {
			var sum float64
			for c := range end - i {
				sum += out.Data[r*out.Stride+c] * x.Data[r*n+i+c]
			}
			g.gain[from+r] += 2 * sum
		}
	}
}

// blockOf returns a view of rows r0 to r1 and columns c0 to c1.
func blockOf(m blas64.General, r0, r1, c0, c1 int) blas64.General {
	return blas64.General{Rows: r1 - r0, Cols: c1 - c0, Stride: m.Stride, Data: m.Data[r0*m.Stride+c0 : (r1-1)*m.Stride+c1]}
}

// takeNext chooses the row of the greatest gain, the first of equal ones. It returns
// the row and Σ a_i², by which the row lowers Σ‖r_i‖². It returns −1 if every row lies
// in the span of the chosen ones.
func (g *greedy) takeNext() (row int, gain float64) {
	for {
		row = -1
		best := 0.0
		for i, s := range g.left {
			if s <= spannedShare*g.norm[i] || s == 0 {
				continue
			}
			if v := g.gain[i] / s; row < 0 || v > best {
				row, best = i, v
			}
		}
		if row < 0 {
			return -1, 0
		}
		if u := g.direction(row); u != nil {
			return row, g.subtractDirection(row, u)
		}
		g.left[row] = 0
	}
}

// direction returns the unit vector that a row adds to the basis, or nil if the row
// adds nothing. It is made orthogonal to the basis twice, because of rounding.
func (g *greedy) direction(row int) []float64 {
	u := make([]float64, g.x.Cols)
	for c, v := range g.x.Row(row) {
		u[c] = float64(v)
	}
	for range 2 {
		for _, b := range g.basis {
			blas64.Axpy(-dot64(b, u), vector(b), vector(u))
		}
	}
	norm := math.Sqrt(dot64(u, u))
	if norm*norm <= spannedShare*g.norm[row] {
		return nil
	}
	blas64.Scal(1/norm, vector(u))
	return u
}

func vector(v []float64) blas64.Vector { return blas64.Vector{N: len(v), Inc: 1, Data: v} }

func dot64(a, b []float64) float64 { return blas64.Dot(vector(a), vector(b)) }

// subtractDirection takes the direction u of a chosen row away from all residuals.
func (g *greedy) subtractDirection(row int, u []float64) (gain float64) {
	gu := make([]float64, len(u))
	blas64.Gemv(blas.NoTrans, 1, g.gram, vector(u), 0, vector(gu))
	form := dot64(u, gu)
	turned := make([]float64, len(g.basis)) // ⟨u_l, Gu⟩
	for l, b := range g.basis {
		turned[l] = dot64(b, gu)
	}
	a, h := make([]float64, g.x.Rows), make([]float64, g.x.Rows)
	linalg.Parallel(g.x.Rows, 64, func(from, to int) {
		for i := from; i < to; i++ {
			a[i], h[i] = dotTwo(g.x.Row(i), u, gu)
			for l, parts := range g.parts {
				h[i] -= parts[i] * turned[l]
			}
		}
	})
	for i, v := range a {
		gain += v * v
		g.left[i] = max(0, g.left[i]-v*v)
		g.gain[i] = max(0, g.gain[i]-2*v*h[i]+v*v*form)
	}
	g.left[row] = 0
	g.basis, g.parts = append(g.basis, u), append(g.parts, a)
	return gain
}

// dotTwo returns ⟨x, u⟩ and ⟨x, v⟩.
func dotTwo(x []float32, u, v []float64) (a, b float64) {
	u, v = u[:len(x)], v[:len(x)]
	var a1, b1 float64
	i := 0
	for ; i+1 < len(x); i += 2 {
		p, q := float64(x[i]), float64(x[i+1])
		a += p * u[i]
		b += p * v[i]
		a1 += q * u[i+1]
		b1 += q * v[i+1]
	}
	if i < len(x) {
		a += float64(x[i]) * u[i]
		b += float64(x[i]) * v[i]
	}
	return a + a1, b + b1
}
