package mol

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// naive is φ in float64, one item at a time, by the formulae of
// testdata/golden/README.md. It shares nothing with the code under test.
type naive struct {
	c Config
	t tensor.Set
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func unit(v []float64, eps float64) []float64 {
	var sum float64
	for _, x := range v {
		sum += x * x
	}
	n := math.Max(math.Sqrt(sum), eps)
	u := make([]float64, len(v))
	for i, x := range v {
		u[i] = x / n
	}
	return u
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func (n naive) linear(x []float64, name string) []float64 {
	w := n.t[name+".weight"]
	y := make([]float64, w.Shape[0])
	for o := range y {
		for i, v := range x {
			y[o] += v * float64(w.Data[o*len(x)+i])
		}
		if b, ok := n.t[name+".bias"]; ok {
			y[o] += float64(b.Data[o])
		}
	}
	return y
}

func (n naive) side(x []float64, prefix string, hidden int, a Activation) []float64 {
	if hidden <= 0 {
		return n.linear(x, prefix+".1")
	}
	w, b := n.t[prefix+".1._w"].Data, n.t[prefix+".1._b"].Data
	y := make([]float64, 2*hidden)
	for o := range y {
		y[o] = float64(b[o])
		for i, v := range x {
			y[o] += v * float64(w[i*2*hidden+o])
		}
	}
	for i := range hidden {
		act := silu(y[i])
		if a == GeGLU {
			act = 0.5 * y[i] * (1 + math.Erf(y[i]/math.Sqrt2))
		}
		y[i] = act * y[hidden+i]
	}
	return n.linear(y[:hidden], prefix+".2")
}

func (n naive) mlp(x []float64, prefix string, first int) []float64 {
	h := n.linear(x, fmt.Sprintf("%s.%d", prefix, first))
	if _, ok := n.t[fmt.Sprintf("%s.%d.weight", prefix, first+2)]; !ok {
		return h
	}
	for i, v := range h {
		h[i] = silu(v)
	}
	return n.linear(h, fmt.Sprintf("%s.%d", prefix, first+2))
}

func (n naive) components(v []float64) [][]float64 {
	var parts [][]float64
	for i := 0; i < len(v); i += n.c.Dim {
		part := v[i : i+n.c.Dim]
		if n.c.L2Norm {
			part = unit(part, 1e-6)
		}
		parts = append(parts, part)
	}
	return parts
}

// terms are the logits over τ and the inputs of the softmax.
func (n naive) terms(query rerank.Query, item []float32) (logits, gates []float64) {
	q, x := wide(query.Vector), wide(item)
	if n.c.Normalise {
		q, x = unit(q, 1e-300), unit(x, 1e-300)
	}
	f := n.side(q, querySide, n.c.QueryHidden, n.c.QueryNonlinearity)
	for i, size := range n.c.UserTables {
		row := int(math.Mod(math.Mod(float64(query.UserID), float64(size))+float64(size), float64(size))) + 1
		f = append(f, wide(n.t[fmt.Sprintf(userTable, i)].Data[row*n.c.Dim:][:n.c.Dim])...)
	}
	g := n.components(n.side(x, itemSide, n.c.ItemHidden, n.c.ItemNonlinearity))
	for _, a := range n.components(f) {
		for _, b := range g {
			var dot float64
			for k := range a {
				dot += a[k] * b[k]
			}
			logits = append(logits, dot/n.c.Temperature)
		}
	}
	gates = make([]float64, len(logits))
	for l := range gates {
		if n.c.Combination == GLUSiLU {
			break
		}
		gates[l] = n.part(q, gateQuery, 0, l) + n.part(x, gateItem, 1, l) + n.part(logits, gatePair, 1, l)
	}
	if n.c.Combination == GLUSiLU {
		for l := range gates {
			gates[l] = silu(n.part(q, gateQuery, 0, l)*n.part(x, gateItem, 1, l) + n.part(logits, gatePair, 1, l))
		}
	}
	return logits, gates
}

// part is element l of a part of the gates, 0 if the model lacks the part.
func (n naive) part(x []float64, prefix string, first, l int) float64 {
	if _, ok := n.t[fmt.Sprintf("%s.%d.weight", prefix, first)]; !ok {
		return 0
	}
	return n.mlp(x, prefix, first)[l]
}

func (n naive) score(q rerank.Query, item []float32) float64 {
	logits, gates := n.terms(q, item)
	top, sum, score := math.Inf(-1), 0.0, 0.0
	for _, g := range gates {
		top = math.Max(top, g)
	}
	for l, g := range gates {
		e := math.Exp(g - top)
		sum += e
		score += e * logits[l]
	}
	return score / sum
}
