package fit

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// rowAdam is adam for a table of which a step touches few rows: only those are
// moved, and only their moments decay.
type rowAdam struct {
	first, second rerank.Matrix
	touched       []int // in the order they were first touched
	at            map[int]int
	grads         [][]float32 // by the place in touched
}

func newRowAdam(rows, cols int) *rowAdam {
	return &rowAdam{first: rerank.NewMatrix(rows, cols), second: rerank.NewMatrix(rows, cols), at: map[int]int{}}
}

// add adds to the gradient of a row.
func (a *rowAdam) add(row int, d []float32) {
	i, ok := a.at[row]
	if !ok {
		i = len(a.touched)
		a.at[row] = i
		a.touched = append(a.touched, row)
		if i == len(a.grads) {
			a.grads = append(a.grads, make([]float32, len(d)))
		}
		clear(a.grads[i])
	}
	add(a.grads[i], d, 1)
}

// update takes the given step, which counts from 1, against the gradients and
// forgets them.
func (a *rowAdam) update(table rerank.Matrix, rate float64, step int) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	n := float64(step)
	r := float32(rate * math.Sqrt(1-math.Pow(beta2, n)) / (1 - math.Pow(beta1, n)))
	for i, row := range a.touched {
		p, m, v := table.Row(row), a.first.Row(row), a.second.Row(row)
		for j, x := range a.grads[i] {
			m[j] = beta1*m[j] + (1-beta1)*x
			v[j] = beta2*v[j] + (1-beta2)*x*x
			p[j] -= r * m[j] / (float32(math.Sqrt(float64(v[j]))) + epsilon)
		}
	}
	a.touched = a.touched[:0]
	clear(a.at)
}
