package search_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// oracle is φ in float64, written from the formulae alone
// (testdata/golden/README.md); it shares no code with the similarities.
type oracle struct {
	// item computes the item's part of φ, phi the rest.
	item func(x []float64) []float64
	phi  func(q []float64) func(item []float64) float64
	// size bounds φ of unit vectors where W was rounded on its way to a feature
	// row or a probe; 0 where it was not.
	size float64
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func unit(v []float64, eps float64) []float64 {
	norm := math.Max(math.Sqrt(product(v, v)), eps)
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x / norm
	}
	return out
}

func product(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// linear returns x·Wᵀ + b, with W (out, in).
func linear(t tensor.Set, weight, bias string, x []float64) []float64 {
	w := t[weight]
	in := len(x)
	out := make([]float64, w.Shape[0])
	for o := range out {
		out[o] = product(x, wide(w.Data[o*in:(o+1)*in]))
		if b, ok := t[bias]; ok {
			out[o] += float64(b.Data[o])
		}
	}
	return out
}

// formula is the oracle of an inner product qᵀWx. A nil w means the identity.
func formula(normalise bool, w func(i, j int) float64, items int) oracle {
	prepare := func(v []float64) []float64 {
		if normalise {
			return unit(v, math.SmallestNonzeroFloat32)
		}
		return v
	}
	return oracle{item: prepare, phi: func(q []float64) func([]float64) float64 {
		u := prepare(q)
		if w != nil {
			v := make([]float64, items)
			for j := range v {
				for i, x := range u {
					v[j] += x * w(i, j)
				}
			}
			u = v
		}
		return func(x []float64) float64 { return product(u, x) }
	}}
}

// mixture is the oracle of a MoL.
func mixture(t testing.TB, config json.RawMessage, set tensor.Set) oracle {
	var c mol.Config
	must(t, json.Unmarshal(config, &c))
	m := oracleMoL{c, set}
	return oracle{item: m.item, phi: m.phi}
}

type oracleMoL struct {
	c mol.Config
	t tensor.Set
}

func (m oracleMoL) prepare(v []float64) []float64 {
	if m.c.Normalise {
		return unit(v, math.SmallestNonzeroFloat32)
	}
	return v
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func gelu(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 }

// components computes formulae 1 and 3.
func (m oracleMoL) components(side string, hidden int, act mol.Activation, x []float64) []float64 {
	weight := ".1.weight"
	if hidden > 0 {
		w, b := m.t[side+".1._w"], m.t[side+".1._b"]
		both := wide(b.Data)
		for i, v := range x {
			for o := range both {
				both[o] += v * float64(w.Data[i*len(both)+o])
			}
		}
		x = make([]float64, hidden)
		for h := range x {
			f := silu
			if act == mol.GeGLU {
				f = gelu
			}
			x[h] = f(both[h]) * both[hidden+h]
		}
		weight = ".2.weight"
	}
	out := linear(m.t, side+weight, side+map[bool]string{true: ".2.bias", false: ".1.bias"}[hidden > 0], x)
	if !m.c.L2Norm {
		return out
	}
	eps := m.c.Eps
	if eps == 0 {
		eps = 1e-6
	}
	for at := 0; at < len(out); at += m.c.Dim {
		copy(out[at:], unit(out[at:at+m.c.Dim], eps))
	}
	return out
}

// gate computes linear, silu, linear. It returns nil if the part does not exist.
func (m oracleMoL) gate(part, first, second string, x []float64) []float64 {
	if _, ok := m.t[part+first+".weight"]; !ok {
		return nil
	}
	h := linear(m.t, part+first+".weight", part+first+".bias", x)
	if second == "" {
		return h
	}
	for i := range h {
		h[i] = silu(h[i])
	}
	return linear(m.t, part+second+".weight", part+second+".bias", h)
}

func (m oracleMoL) item(x []float64) []float64 {
	x = m.prepare(x)
	g := m.components("_item_embeddings_fn._item_emb_proj_module", m.c.ItemHidden, m.c.ItemNonlinearity, x)
	return append(g, m.gate("_gating_fn._item_only_partial_module", ".1", ".3", x)...)
}

func (m oracleMoL) phi(q []float64) func([]float64) float64 {
	q = m.prepare(q)
	f := m.components("_query_embeddings_fn._query_emb_proj_module", m.c.QueryHidden, m.c.QueryNonlinearity, q)
	byQuery := m.gate("_gating_fn._query_only_partial_module", ".0", ".2", q)
	second := ".3"
	if m.c.GatingPairHidden <= 0 {
		second = ""
	}
	d, components := m.c.Dim, m.c.PairsItem*m.c.Dim
	return func(item []float64) float64 {
		logits := make([]float64, m.c.PairsQuery*m.c.PairsItem)
		for l := range logits {
			i, j := l/m.c.PairsItem, l%m.c.PairsItem
			logits[l] = product(f[i*d:(i+1)*d], item[j*d:(j+1)*d]) / m.c.Temperature
		}
		byPair := m.gate("_gating_fn._qi_partial_module", ".1", second, logits)
		return mix(m.c.Combination, logits, byQuery, item[components:], byPair)
	}
}

// mix computes formulae 6 to 8.
func mix(c mol.Combination, logits, query, item, pair []float64) float64 {
	at := func(part []float64, l int) float64 {
		if len(part) == 0 {
			return 0
		}
		return part[l]
	}
	var sum, phi float64
	gates := make([]float64, len(logits))
	most := math.Inf(-1)
	for l := range gates {
		if c == mol.GLUSiLU {
			gates[l] = silu(query[l]*item[l] + pair[l])
		} else {
			gates[l] = at(query, l) + at(item, l) + at(pair, l)
		}
		most = math.Max(most, gates[l])
	}
	for l, g := range gates {
		e := math.Exp(g - most)
		sum += e
		phi += e * logits[l]
	}
	return phi / sum
}

// truth returns φ of every item with a row for which keep is true.
func (o oracle) truth(w *world, items [][]float64, q []float32, keep func(int) bool) map[rerank.ID]float64 {
	phi := o.phi(wide(q))
	out := make(map[rerank.ID]float64, len(items))
	for from := 0; from < len(items); {
		best, kept, to := math.Inf(-1), false, from
		for ; to < len(items) && w.owners[to] == w.owners[from]; to++ {
			best = math.Max(best, phi(items[to]))
			kept = kept || keep == nil || keep(to)
		}
		if kept {
			out[w.owners[from]] = best
		}
		from = to
	}
	return out
}
