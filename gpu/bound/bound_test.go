package bound_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/bound"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// shape describes a made-up MoL. size scales its gates' weights.
type shape struct {
	pairsQuery, pairsItem, dim, hidden int
	combination                        mol.Combination
	size, temperature                  float64
}

// made returns a random model, queries and rows with components of norm 1. Rounding to float16
// changes every other row as much as it can, and always in the same direction; with spiteful it
// does so to the weights too.
func made(s shape, seed uint64, rows, queries int, spiteful bool) (*gpu.Network, []rerank.Operands, rerank.Matrix) {
	r := rand.New(rand.NewPCG(seed, 7))
	numbers := func(n, cols int, size float64) rerank.Matrix {
		m := rerank.NewMatrix(n, cols)
		for i := range m.Data {
			m.Data[i] = float32(size * r.NormFloat64())
			if spiteful {
				m.Data[i] = between(m.Data[i], 1)
			}
		}
		return m
	}
	pairs := s.pairsQuery * s.pairsItem
	n := &mol.Network{PairsQuery: s.pairsQuery, PairsItem: s.pairsItem, Dim: s.dim, Combination: s.combination, Temperature: s.temperature}
	width := pairs
	if s.hidden > 0 {
		n.First, n.FirstBias = numbers(s.hidden, pairs, s.size/math.Sqrt(float64(pairs))), numbers(1, s.hidden, s.size).Data
		width = s.hidden
	}
	n.Second, n.SecondBias = numbers(pairs, width, s.size/math.Sqrt(float64(width))), numbers(1, pairs, s.size).Data
	features := s.pairsItem * s.dim
	if s.combination == mol.GLUSiLU {
		n.ItemGates, n.QueryGates = true, true
		features += pairs
	}
	var asked []rerank.Operands
	for range queries {
		o := rerank.Operands{Vectors: numbers(s.pairsQuery, s.dim, 1), Scale: float32(1 / s.temperature)}
		for i := range s.pairsQuery {
			rerank.Normalise(o.Vectors.Row(i))
		}
		if n.QueryGates {
			o.Gates = numbers(1, pairs, s.size).Data
		}
		asked = append(asked, o)
	}
	table := numbers(rows, features, s.size)
	for i := range rows {
		for j := range s.pairsItem {
			g := table.Row(i)[j*s.dim:][:s.dim]
			rerank.Normalise(g)
			if i%2 == 0 {
				continue
			}
			f := asked[i/2%queries].Vectors.Row(r.IntN(s.pairsQuery))
			for k, x := range f {
				g[k] = between(g[k], float64(x))
			}
		}
	}
	return &gpu.Network{Features: features, MoL: n}, asked, table
}

// between returns a number near x that lies almost half way between two float16 numbers, so that
// rounding moves it as far as it can. direction is the sign of the distance.
func between(x float32, direction float64) float32 {
	if x == 0 {
		return x
	}
	step := math.Exp2(math.Floor(math.Log2(math.Abs(float64(x)))) - 10)
	return float32(math.Trunc(float64(x)/step)*step + math.Copysign(0.49*step, direction))
}

// phi computes φ in float64.
func phi(n *mol.Network, o *rerank.Operands, row []float32) float64 {
	logits := make([]float64, n.PairsQuery*n.PairsItem)
	for l := range logits {
		f, g := o.Vectors.Row(l/n.PairsItem), row[l%n.PairsItem*n.Dim:][:n.Dim]
		for k, x := range f {
			logits[l] += float64(x) * float64(g[k]) * float64(o.Scale)
		}
	}
	z := logits
	if n.First.Rows > 0 {
		z = layer(n.First, n.FirstBias, z)
		for k, x := range z {
			z[k] = silu(x)
		}
	}
	z = layer(n.Second, n.SecondBias, z)
	if n.Combination == mol.GLUSiLU {
		for l, x := range z {
			z[l] = silu(x + float64(o.Gates[l])*float64(row[n.PairsItem*n.Dim+l]))
		}
	}
	sum, mixed, top := 0.0, 0.0, slices.Max(z)
	for l, x := range z {
		w := math.Exp(x - top)
		sum, mixed = sum+w, mixed+w*logits[l]
	}
	return mixed / sum
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func layer(w rerank.Matrix, bias []float32, x []float64) []float64 {
	out := make([]float64, w.Rows)
	for r := range out {
		out[r] = float64(bias[r])
		for k, v := range w.Row(r) {
			out[r] += float64(v) * x[k]
		}
	}
	return out
}

// scores returns the scores of all rows, by row number.
func scores(t *testing.T, m *hosted.Machine, j gpu.Job, rows int) []float32 {
	t.Helper()
	j.Keep = rows
	found, err := m.Run([]gpu.Job{j})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, rows)
	for i, row := range found[0].Rows {
		out[row] = found[0].Scores[i]
	}
	return out
}

// TestLimits runs a machine that rounds as the kernels do. No φ in float64 exceeds the upper bound
// that the machine computes, however steep the gates; for gates as in trained models the bound is
// also close to φ.
func TestLimits(t *testing.T) {
	const rows, queries = 120, 4
	for _, s := range []shape{
		{2, 3, 8, 0, mol.None, 0.3, 1},
		{2, 3, 8, 5, mol.None, 1, 0.1},
		{2, 2, 33, 16, mol.GLUSiLU, 0.1, 0.05},
		{4, 4, 16, 32, mol.GLUSiLU, 0.5, 0.05},
		{3, 5, 8, 7, mol.GLUSiLU, 1, 0.02},
		{8, 4, 16, 32, mol.GLUSiLU, 1, 0.05},
		{8, 8, 8, 16, mol.GLUSiLU, 3, 0.05},
		{2, 3, 8, 8, mol.GLUSiLU, 10, 0.02},
	} {
		for seed, spiteful := range []bool{false, true} {
			n, asked, table := made(s, uint64(seed), rows, queries, spiteful)
			machine := &hosted.Machine{Memory: 1 << 24}
			model, err := machine.LoadModel(n)
			if err != nil {
				t.Fatal(err)
			}
			on, err := machine.NewTable(model, rows)
			if err != nil {
				t.Fatal(err)
			}
			if err := errorsOf(on.Write(0, table), on.Resize(rows, nil)); err != nil {
				t.Fatal(err)
			}
			loss, of := lossOf(n, table), bound.New(n.MoL)
			allowed, used, spread := 0.0, 0.0, 0.0
			for _, o := range asked {
				limits, ok := of.Limits(&o, &loss)
				if !ok {
					t.Fatalf("%+v: no limits", s)
				}
				rough := scores(t, machine, gpu.Job{Table: on, Way: gpu.Approximate, Query: o}, rows)
				upper := scores(t, machine, gpu.Job{Table: on, Way: gpu.Bounded, Limits: limits, Query: o}, rows)
				low, high := math.Inf(1), math.Inf(-1)
				for i, u := range upper {
					p := phi(n.MoL, &o, table.Row(i))
					if !(p <= float64(u)) {
						t.Fatalf("%+v, spiteful: %t: row %d scores %v, bounded by %v", s, spiteful, i, p, u)
					}
					allowed, used = allowed+float64(u-rough[i])/rows/queries, max(used, math.Abs(p-float64(rough[i])))
					low, high = min(low, p), max(high, p)
				}
				spread = max(spread, high-low)
			}
			t.Logf("%+v, spiteful %t: scores over %.3g, off by %.2g at most, allowed %.2g", s, spiteful, spread, used, allowed)
			if near := allowed < spread/8; near != (s.size <= 1) {
				t.Errorf("%+v, spiteful %t: allowed %.3g of scores over %.3g", s, spiteful, allowed, spread)
			}
		}
	}
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// lossOf measures how much the components of all rows lose in float16.
func lossOf(n *gpu.Network, m rerank.Matrix) rerank.Loss {
	p := bound.Packing(n.MoL, n.Features)
	loss := rerank.NewLoss(p)
	words, back := make([]uint32, p.RowWords()), make([]float32, m.Cols)
	for i := range m.Rows {
		p.Pack(words, m.Row(i))
		p.Unpack(back, words, 1)
		copy(back[n.MoL.PairsItem*n.MoL.Dim:], m.Row(i)[n.MoL.PairsItem*n.MoL.Dim:])
		loss.Add(p, m.Row(i), back)
	}
	return loss
}

// TestNoLimits: there are no limits if a number is too large for float16.
func TestNoLimits(t *testing.T) {
	s := shape{2, 3, 8, 5, mol.GLUSiLU, 1, 0.1}
	for name, spoil := range map[string]func(n *mol.Network, o *rerank.Operands){
		"a weight":            func(n *mol.Network, _ *rerank.Operands) { n.First.Data[3] = 1e5 },
		"a component":         func(_ *mol.Network, o *rerank.Operands) { o.Vectors.Data[3] = 1e5 },
		"logits":              func(_ *mol.Network, o *rerank.Operands) { o.Scale = 60000 },
		"the hidden layer":    func(n *mol.Network, _ *rerank.Operands) { n.FirstBias[2] = 66000 },
		"not a number":        func(_ *mol.Network, o *rerank.Operands) { o.Vectors.Data[0] = float32(math.NaN()) },
		"more pairs than 120": func(n *mol.Network, _ *rerank.Operands) { n.PairsQuery = 41 },
	} {
		n, asked, table := made(s, 1, 10, 1, false)
		loss := lossOf(n, table)
		spoil(n.MoL, &asked[0])
		if limits, ok := bound.New(n.MoL).Limits(&asked[0], &loss); ok {
			t.Errorf("%s: %+v", name, limits)
		}
	}
}
