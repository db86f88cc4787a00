package mol

import (
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// linear is the layer y = x·Wᵀ + b. Each row of w computes one output. bias may be nil.
type linear struct {
	w    rerank.Matrix
	bias []float32
	wide bool // sum in float64 and round once
	// The layer prepared for tiles: packed weights, and a bias for every packed row,
	// padding included.
	packed kernel.Weights
	biases []float32
}

// pack prepares the layer for tiles.
func (l *linear) pack() {
	l.packed = kernel.Pack(l.w)
	l.biases = padded(l.bias, l.w.Rows)
}

// padded returns v followed by zeros, with one element for every row of a packed matrix of
// the given rows.
func padded(v []float32, rows int) []float32 {
	p := make([]float32, kernel.Padded(rows))
	copy(p, v)
	return p
}

func readLinear(r *tensor.Reader, prefix string, in, out int, bias bool) linear {
	l := linear{w: rerank.Matrix{Rows: out, Cols: in, Data: r.Get(prefix+".weight", out, in)}}
	if bias {
		l.bias = r.Get(prefix+".bias", out)
	}
	return l
}

// apply writes y for every row of x to rows of dst, which begin stride elements apart.
func (l linear) apply(k *kernel.Set, dst []float32, stride int, x rerank.Matrix) {
	if l.wide {
		kernel.MulTWide(dst, stride, x, l.w, l.bias)
		return
	}
	k.MulT(dst, stride, x, l.w, l.bias)
}

// side projects embeddings to components, by a linear layer that an optional gated linear
// unit precedes.
type side struct {
	gated      linear // the first half of its outputs is activated and multiplied with the second half; zero rows if there is no such unit
	activation Activation
	out        linear
}

func readSide(r *tensor.Reader, prefix string, in, hidden, out int, a Activation) side {
	if hidden <= 0 {
		return side{out: readLinear(r, prefix+".1", in, out, true)}
	}
	s := side{activation: a, out: readLinear(r, prefix+".2", hidden, out, true)}
	s.gated.bias = r.Get(prefix+".1._b", 1, 2*hidden)
	// Unlike the weights of a linear layer, _w is (in, out).
	if w := r.Get(prefix+".1._w", in, 2*hidden); w != nil {
		s.gated.w = kernel.Transpose(rerank.Matrix{Rows: in, Cols: 2 * hidden, Data: w})
	}
	return s
}

func (s *side) isLinear() bool { return s.gated.w.Rows == 0 }

// hidden returns how many scratch numbers apply needs per row.
func (s *side) hidden() int { return s.gated.w.Rows }

// apply projects every row of x. scratch needs x.Rows·hidden() numbers.
func (s *side) apply(k *kernel.Set, dst []float32, stride int, x rerank.Matrix, scratch []float32) {
	if s.isLinear() {
		s.out.apply(k, dst, stride, x)
		return
	}
	width := s.gated.w.Rows
	half := width / 2
	s.gated.apply(k, scratch, width, x)
	for r := range x.Rows {
		row := scratch[r*width:][:width]
		first, second := row[:half], row[half:]
		if s.activation == GeGLU {
			kernel.GELU(first)
		} else {
			k.SiLU(first)
		}
		packed := scratch[r*half:][:half] // overwrites only elements that have been read
		for i, v := range first {
			packed[i] = v * second[i]
		}
	}
	s.out.apply(k, dst, stride, rerank.Matrix{Rows: x.Rows, Cols: half, Data: scratch[:x.Rows*half]})
}

// mlp is linear → SiLU → linear, or a single linear layer if first has no rows.
type mlp struct{ first, second linear }

func (m *mlp) exists() bool { return m.second.w.Rows > 0 }

// hidden returns how many scratch numbers apply needs per row.
func (m *mlp) hidden() int { return m.first.w.Rows }

// apply computes the network for every row of x. scratch needs x.Rows·hidden() numbers.
func (m *mlp) apply(k *kernel.Set, dst []float32, stride int, x rerank.Matrix, scratch []float32) {
	if m.first.w.Rows == 0 {
		m.second.apply(k, dst, stride, x)
		return
	}
	hidden := rerank.Matrix{Rows: x.Rows, Cols: m.first.w.Rows, Data: scratch[:x.Rows*m.first.w.Rows]}
	m.first.apply(k, hidden.Data, hidden.Cols, x)
	k.SiLU(hidden.Data)
	m.second.apply(k, dst, stride, hidden)
}
