package fit

import "math"

// adam is Kingma and Ba's optimiser (2015, algorithm 1) with their constants.
type adam struct {
	rate   float64
	step   int
	first  [][]float32
	second [][]float32
}

func newAdam(rate float64, params [][]float32) *adam {
	a := &adam{rate: rate}
	for _, p := range params {
		a.first = append(a.first, make([]float32, len(p)))
		a.second = append(a.second, make([]float32, len(p)))
	}
	return a
}

// update takes a step against the gradients.
func (a *adam) update(params, grads [][]float32) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	a.step++
	n := float64(a.step)
	rate := float32(a.rate * math.Sqrt(1-math.Pow(beta2, n)) / (1 - math.Pow(beta1, n)))
	for i, p := range params {
		g, m, v := grads[i][:len(p)], a.first[i][:len(p)], a.second[i][:len(p)]
		spread(len(p), 1<<15, func(from, to int) {
			for j := from; j < to; j++ {
				x := g[j]
				m[j] = beta1*m[j] + (1-beta1)*x
				v[j] = beta2*v[j] + (1-beta2)*x*x
				p[j] -= rate * m[j] / (float32(math.Sqrt(float64(v[j]))) + epsilon)
			}
		})
	}
}
