package train

import (
	"math"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// RowAdam is Adam for a table with many rows when each step changes only a few. A step
// moves only those rows and updates only their running means.
type RowAdam struct {
	First, Second rerank.Matrix // running means of the gradients and of their squares

	touched   []int // rows of this step, in the order of the first touch
	places    map[int]int
	gradients [][]float32 // by the place in touched
}

// NewRowAdam makes an optimiser of a table of this shape.
func NewRowAdam(rows, cols int) *RowAdam {
	return &RowAdam{First: rerank.NewMatrix(rows, cols), Second: rerank.NewMatrix(rows, cols), places: map[int]int{}}
}

// AddGradient adds d to the gradient of a row.
func (a *RowAdam) AddGradient(row int, d []float32) {
	i, ok := a.places[row]
	if !ok {
		i = len(a.touched)
		a.places[row] = i
		a.touched = append(a.touched, row)
		if i == len(a.gradients) {
			a.gradients = append(a.gradients, make([]float32, len(d)))
		}
		clear(a.gradients[i])
	}
	linalg.AddScaled(a.gradients[i], d, 1)
}

// Update takes the given step, which counts from 1, against the gradients and
// forgets them.
func (a *RowAdam) Update(table rerank.Matrix, rate float64, step int) {
	r := float32(correctedRate(rate, step))
	for i, row := range a.touched {
		p, m, v := table.Row(row), a.First.Row(row), a.Second.Row(row)
		for j, x := range a.gradients[i] {
			m[j] = adamBeta1*m[j] + (1-adamBeta1)*x
			v[j] = adamBeta2*v[j] + (1-adamBeta2)*x*x
			p[j] -= r * m[j] / (float32(math.Sqrt(float64(v[j]))) + adamEpsilon)
		}
	}
	a.touched = a.touched[:0]
	clear(a.places)
}
