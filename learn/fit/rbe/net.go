package rbe

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// eluNet is the perceptron W₁·elu(W₀·x + b₀) + b₁ of rbe.Similarity under training.
type eluNet struct {
	in, hidden, out int
	// params holds W₀ (hidden, in), b₀, W₁ (out, hidden) and b₁, grads their gradients.
	params, grads [4][]float32

	x, before, after, y rerank.Matrix
}

// newELUNet makes a perceptron with random weights, for inputs whose numbers have the
// root mean square scale.
func newELUNet(in, hidden, out int, scale float64, rng *rand.Rand) *eluNet {
	p := &eluNet{in: in, hidden: hidden, out: out}
	for i, n := range [4]int{hidden * in, hidden, out * hidden, out} {
		p.params[i], p.grads[i] = make([]float32, n), make([]float32, n)
	}
	inner := 1 / (math.Sqrt(float64(in)) * max(scale, math.SmallestNonzeroFloat32))
	for i := range p.params[0] {
		p.params[0][i] = float32(rng.NormFloat64() * inner)
	}
	outer := 1 / math.Sqrt(float64(hidden))
	for i := range p.params[2] {
		p.params[2][i] = float32(rng.NormFloat64() * outer)
	}
	return p
}

func (p *eluNet) weights(i, rows, cols int) rerank.Matrix {
	return rerank.Matrix{Rows: rows, Cols: cols, Data: p.params[i]}
}

// forward returns the outputs of the rows of x.
func (p *eluNet) forward(x rerank.Matrix) rerank.Matrix {
	p.x, p.before, p.after, p.y = x, linalg.Resize(p.before, x.Rows, p.hidden), linalg.Resize(p.after, x.Rows, p.hidden), linalg.Resize(p.y, x.Rows, p.out)
	linalg.Multiply(p.before, x, false, p.weights(0, p.hidden, p.in), true)
	addRow(p.before, p.params[1])
	for i, v := range p.before.Data {
		p.after.Data[i] = rbe.ELU(v)
	}
	linalg.Multiply(p.y, p.after, false, p.weights(2, p.out, p.hidden), true)
	addRow(p.y, p.params[3])
	return p.y
}

// backward sets the gradients from dy, the gradient by the output of the last forward.
func (p *eluNet) backward(dy rerank.Matrix) {
	linalg.Multiply(rerank.Matrix{Rows: p.out, Cols: p.hidden, Data: p.grads[2]}, dy, true, p.after, false)
	linalg.SumRows(p.grads[3], dy)
	dh := rerank.NewMatrix(dy.Rows, p.hidden)
	linalg.Multiply(dh, dy, false, p.weights(2, p.out, p.hidden), false)
	for i, v := range p.before.Data {
		if v <= 0 { // elu' = eˣ = elu + 1
			dh.Data[i] *= p.after.Data[i] + 1
		}
	}
	linalg.Multiply(rerank.Matrix{Rows: p.hidden, Cols: p.in, Data: p.grads[0]}, dh, true, p.x, false)
	linalg.SumRows(p.grads[1], dh)
}

// addTensors adds the perceptron to the tensors of a model.
func (p *eluNet) addTensors(t tensor.Set, name string) {
	t[name+".0.weight"] = tensor.Tensor{Shape: []int{p.hidden, p.in}, Data: p.params[0]}
	t[name+".0.bias"] = tensor.Tensor{Shape: []int{p.hidden}, Data: p.params[1]}
	t[name+".1.weight"] = tensor.Tensor{Shape: []int{p.out, p.hidden}, Data: p.params[2]}
	t[name+".1.bias"] = tensor.Tensor{Shape: []int{p.out}, Data: p.params[3]}
}

// addRow adds row to every row of m.
func addRow(m rerank.Matrix, row []float32) {
	for r := range m.Rows {
		for i, v := range row {
			m.Row(r)[i] += v
		}
	}
}

// softmaxLoss returns the mean cross-entropy of softmax(approximate/τ) to
// softmax(truth/τ) over the rows, and replaces approximate by its gradient.
func softmaxLoss(approximate, truth rerank.Matrix, tau float64) (loss float64) {
	p := make([]float64, approximate.Cols)
	want := make([]float64, approximate.Cols)
	for q := range approximate.Rows {
		row := approximate.Row(q)
		softmaxOf(want, truth.Row(q), tau)
		logSum := softmaxOf(p, row, tau)
		for i := range row {
			if want[i] > 0 {
				loss -= want[i] * (float64(row[i])/tau - logSum)
			}
			row[i] = float32((p[i] - want[i]) / tau / float64(approximate.Rows))
		}
	}
	return loss / float64(approximate.Rows)
}

// softmaxOf writes softmax(v/τ) to p and returns log Σ e^(v/τ).
func softmaxOf(p []float64, v []float32, tau float64) float64 {
	most := math.Inf(-1)
	for _, x := range v {
		most = max(most, float64(x)/tau)
	}
	var sum float64
	for i, x := range v {
		p[i] = math.Exp(float64(x)/tau - most)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return most + math.Log(sum)
}

// listwiseGain returns the mean over the rows of Σ softmax(R̃/τ)·(2·[R ≥ bound] − 1), which
// training maximises. It replaces approximate by the gradient of the negated mean. bounds holds the
// bound of each row.
func listwiseGain(approximate, truth rerank.Matrix, bounds []float64, tau float64) (gain float64) {
	p := make([]float64, approximate.Cols)
	for q := range approximate.Rows {
		row := approximate.Row(q)
		softmaxOf(p, row, tau)
		sign := func(i int) float64 {
			if float64(truth.Row(q)[i]) >= bounds[q] {
				return 1
			}
			return -1
		}
		var sum float64
		for i := range row {
			sum += p[i] * sign(i)
		}
		gain += sum
		for i := range row {
			row[i] = float32(-p[i] * (sign(i) - sum) / tau / float64(approximate.Rows))
		}
	}
	return gain / float64(approximate.Rows)
}

// quantile returns the x-th quantile, with linear interpolation between order statistics.
func quantile(sorted []float32, x float64) float64 {
	at := x * float64(len(sorted)-1)
	i := int(math.Floor(at))
	if i+1 >= len(sorted) {
		return float64(sorted[len(sorted)-1])
	}
	return float64(sorted[i]) + (at-float64(i))*(float64(sorted[i+1])-float64(sorted[i]))
}
