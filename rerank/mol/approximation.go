package mol

import (
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// approximation describes the query's side in a number format: f_i/τ, and what the format leaves
// of them.
type approximation struct {
	scaled rerank.Matrix // f_i/τ
	norm   []float64     // norm of each row of scaled
	all    float64       // Frobenius norm of scaled
	// spectral bounds the spectral norm of scaled.
	spectral float64
	// The error of representing f_i/τ by one matrix of the format (index 0) and by a sum of
	// two (index 1): the norm of each row, and the spectral norm.
	lost    [2][]float64
	lostAll [2]float64
}

// measure sets scaled, and its norms, for components f_i and 1/τ.
func (a *approximation) measure(components rerank.Matrix, inverseTemperature float32) {
	a.scaled = rerank.NewMatrix(components.Rows, components.Cols)
	for k := range a.scaled.Data {
		a.scaled.Data[k] = components.Data[k] * inverseTemperature
	}
	a.all, a.spectral = rerank.Norm(a.scaled.Data), kernel.SpectralNorm(a.scaled)
	for i := range a.scaled.Rows {
		a.norm = append(a.norm, rerank.Norm(a.scaled.Row(i)))
	}
}

// leave records what the matrices up to `part` leave of scaled.
func (a *approximation) leave(part int, rest rerank.Matrix) {
	a.lostAll[part] = kernel.SpectralNorm(rest)
	for i := range rest.Rows {
		a.lost[part] = append(a.lost[part], rerank.Norm(rest.Row(i)))
	}
}

// approximation returns the query's side as screens of the items have it.
func (e *encoded) approximation(items rerank.Items) *approximation {
	if e.c.inInt8(items.Packed) {
		return &e.int8Parts().approximation
	}
	return &e.split().approximation
}

// split is the query's side for tiles of bfloat16: f_i/τ as a sum high + low of two
// bfloat16 matrices.
type split struct {
	once sync.Once
	approximation
	high, low kernel.WeightsBFloat16
}

func (e *encoded) split() *split {
	s := &e.halves
	s.once.Do(func() {
		s.measure(e.components, e.c.maxScore())
		left := [2]rerank.Matrix{rerank.NewMatrix(s.scaled.Rows, s.scaled.Cols), rerank.NewMatrix(s.scaled.Rows, s.scaled.Cols)}
		for k, v := range s.scaled.Data {
			for i := range left {
				v -= kernel.WidenBFloat16(kernel.RoundBFloat16(v)) // exact
				left[i].Data[k] = v
			}
		}
		for i, rest := range left {
			s.leave(i, rest)
		}
		s.high, s.low = kernel.PackBFloat16(s.scaled), kernel.PackBFloat16(left[0])
	})
	return s
}

// logitError bounds how far a screen's logits differ from Score's logits, and from exact
// ones: the greatest difference, and the norm of all differences. rough means that one matrix
// of the rows' format represents the query.
func (e *encoded) logitError(items rerank.Items, loss rerank.Loss, rough bool) (greatest, norm float64) {
	c, s, half := e.c, e.approximation(items), 1
	if rough {
		half = 0
	}
	rounding, rest, restAll := 3*kernel.Gamma(2*c.Dim+2), s.lost[half], s.lostAll[half]
	if items.Packed == nil { // the same logits as Score's
		rounding, rest, restAll = kernel.Gamma(c.Dim+4), make([]float64, c.PairsQuery), 0
	}
	var squares float64
	for j := range c.PairsItem {
		lost, length := e.c.lost(loss, j), e.c.length(loss, j)
		for i, n := range s.norm {
			greatest = max(greatest, n*lost+(rest[i]+rounding*(n+rest[i]))*length+1e-30)
		}
		d := s.spectral*lost + (restAll+rounding*(s.all+restAll))*length + 1e-28
		squares += d * d
	}
	return greatest, math.Sqrt(squares)
}
