package train

import (
	"math"

	"github.com/likenessdb/likeness/learn/fit/linalg"
)

// The constants of Kingma and Ba (2015, algorithm 1).
const (
	adamBeta1   = 0.9
	adamBeta2   = 0.999
	adamEpsilon = 1e-8
)

// Adam is the optimiser of Kingma and Ba (2015, algorithm 1).
type Adam struct {
	// Rate is the learning rate of the next step.
	Rate float64
	// Step counts the steps taken.
	Step int
	// First and Second are the running means of the gradients and of their squares.
	First, Second [][]float32
}

// NewAdam makes an optimiser of arrays with these lengths.
func NewAdam(rate float64, parameters [][]float32) *Adam {
	a := &Adam{Rate: rate}
	for _, p := range parameters {
		a.First = append(a.First, make([]float32, len(p)))
		a.Second = append(a.Second, make([]float32, len(p)))
	}
	return a
}

// Update takes a step against the gradients.
func (a *Adam) Update(parameters, gradients [][]float32) {
	a.Step++
	rate := float32(correctedRate(a.Rate, a.Step))
	for i, p := range parameters {
		g, m, v := gradients[i][:len(p)], a.First[i][:len(p)], a.Second[i][:len(p)]
		linalg.Parallel(len(p), 1<<15, func(from, to int) {
			for j := from; j < to; j++ {
				x := g[j]
				m[j] = adamBeta1*m[j] + (1-adamBeta1)*x
				v[j] = adamBeta2*v[j] + (1-adamBeta2)*x*x
				p[j] -= rate * m[j] / (float32(math.Sqrt(float64(v[j]))) + adamEpsilon)
			}
		})
	}
}

// correctedRate corrects the rate of a step for means that started at zero.
func correctedRate(rate float64, step int) float64 {
	n := float64(step)
	return rate * math.Sqrt(1-math.Pow(adamBeta2, n)) / (1 - math.Pow(adamBeta1, n))
}
