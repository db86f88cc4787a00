package mol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// family describes made-up models whose gates or logits amplify rounding.
type family struct {
	gain, temperature, size float64 // of the gates' weights, and of components that are not normalised
	l2                      bool
	pairsQuery, pairsItem   int
	combination             Combination
}

func (f family) String() string {
	return fmt.Sprintf("gain %g, τ %g, size %g, l2 %t, %dx%d, %s", f.gain, f.temperature, f.size, f.l2, f.pairsQuery, f.pairsItem, f.combination)
}

func families() (all []family) {
	for _, pairs := range [][2]int{{1, 1}, {2, 1}, {3, 5}, {8, 4}, {8, 8}} {
		for _, gain := range []float64{1, 10, 60, 100} {
			for _, temperature := range []float64{1, 0.05, 0.001} {
				for _, combination := range []Combination{GLUSiLU, None} {
					all = append(all, family{gain, temperature, 1, true, pairs[0], pairs[1], combination})
					for _, size := range []float64{1e-20, 1e-3, 1, 1e4} {
						all = append(all, family{gain, temperature, size, false, pairs[0], pairs[1], combination})
					}
				}
			}
		}
	}
	return all
}

// model makes up a model of the family, an encoded query, and feature rows.
func (f family) model(t *testing.T, rng *rand.Rand, k *kernel.Set) (*encoded, rerank.Matrix) {
	t.Helper()
	sh := fullGate(f.pairsQuery, f.pairsItem, 8+rng.IntN(30), 1+rng.IntN(40))
	sh.temperature, sh.combination, sh.l2 = f.temperature, f.combination, f.l2
	c, set := sh.random(rng)
	for name, tensor := range set {
		by := 1.0
		switch {
		case strings.HasPrefix(name, "_gating_fn"):
			by = math.Sqrt(f.gain) // of each of two layers
		case !f.l2:
			by = math.Cbrt(f.size)
		}
		for i := range tensor.Data {
			tensor.Data[i] *= float32(by)
		}
	}
	s, err := New(c, set)
	if err != nil {
		t.Fatal(err)
	}
	s = s.WithKernels(k).(*Similarity)
	base := normal(rng, 40, s.spec.ItemDim)
	for r := 1; r < 20; r += 2 { // near duplicates
		copy(base.Row(r), base.Row(r-1))
		base.Row(r)[0] += 1e-6
	}
	return encode(t, s, randomQuery(rng, s)).(*encoded), features(t, s, base)
}

// TestScoreError: no score, of any kernel, is off by more than Bound says, and no score in
// float64 by more than ScoreWide says.
func TestScoreError(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 3))
	var tightest, tightestWide float64
	scored := 0
	for _, f := range families() {
		for _, k := range kernel.Sets() {
			e, rows := f.model(t, rng, k)
			scores, wide := score(t, e, rerank.Items{Features: rows}), make([]float64, rows.Rows)
			wideError, err := e.ScoreWide(wide, rerank.Items{Features: rows})
			if err != nil {
				t.Fatal(err)
			}
			epsilon := float64(e.Bound(nil, nil).Epsilon)
			for i, x := range scores {
				if !finite(x) {
					continue
				}
				reference := backwards(e, rows.Row(i))
				if off := math.Abs(wide[i] - reference); !(off <= 2*wideError) {
					t.Fatalf("%s, %s: item %d in float64 scores %v and %v, ε %v", f, k.Name(), i, wide[i], reference, wideError)
				} else if wideError > 0 {
					tightestWide = max(tightestWide, off/wideError)
				}
				if off := math.Abs(float64(x) - reference); !(off <= epsilon+wideError) {
					t.Fatalf("%s, %s: item %d scores %v, in float64 %v: off by %v, ε %v", f, k.Name(), i, x, reference, off, epsilon)
				} else if epsilon > 0 {
					tightest = max(tightest, off/epsilon)
				}
				scored++
			}
		}
	}
	t.Logf("%d scores: the greatest error is %.3g of ε, in float64 %.3g", scored, tightest, tightestWide)
	if scored < 10000 || tightest < 1e-3 {
		t.Errorf("%d scores were compared, the greatest error is %.3g of ε: the families do not reach it", scored, tightest)
	}
}

// backwards is φ of a feature row in float64, every sum from its end.
func backwards(e *encoded, row []float32) float64 {
	c, n := e.c, e.s.Network()
	logits, z := make([]float64, c.pairs()), make([]float64, c.pairs())
	for l := range logits {
		f, g := e.components.Row(l/c.PairsItem), row[l%c.PairsItem*c.Dim:][:c.Dim]
		for k := c.Dim - 1; k >= 0; k-- {
			logits[l] += float64(f[k]) * float64(g[k])
		}
		logits[l] /= c.Temperature
	}
	layer := func(w rerank.Matrix, bias []float32, x []float64) []float64 {
		out := make([]float64, w.Rows)
		for r := range out {
			for k := w.Cols - 1; k >= 0; k-- {
				out[r] += float64(w.Row(r)[k]) * x[k]
			}
			out[r] += float64(bias[r])
		}
		return out
	}
	h := layer(n.First, n.FirstBias, logits)
	for i, x := range h {
		h[i] = silu(x)
	}
	item, top := row[c.PairsItem*c.Dim:], math.Inf(-1)
	for l, p := range layer(n.Second, n.SecondBias, h) {
		if z[l] = float64(item[l]) + p + float64(e.gate[l]); c.Combination == GLUSiLU {
			z[l] = silu(float64(item[l])*float64(e.gate[l]) + p)
		}
		top = max(top, z[l])
	}
	var sum, phi float64
	for l := len(z) - 1; l >= 0; l-- {
		sum, phi = sum+math.Exp(z[l]-top), phi+math.Exp(z[l]-top)*logits[l]
	}
	return phi / sum
}

// TestRoundingTerms takes the terms of roundingOf one at a time: each error of a step, put
// into a network in float64 where it does the worst that it can, is nearly attained.
func TestRoundingTerms(t *testing.T) {
	const tau = 0.5
	s := given(1, 2, 4, tau)
	s.byItem.second.w = aligned(2, 2)
	e := &encoded{s: s, c: &s.c, components: rerank.Matrix{Rows: 1, Cols: 4, Data: []float32{1, 0, 0, 0}}, gate: []float32{0, 0}}
	p := precision{unit: 1e-6}
	// An input of size 1000 is off by γ_{8} and the exponential's part of it.
	off := p.gamma(2+6)*1000 + 8e-6*1001
	x := extents{item: 1000, span: 4, deviation: 10}
	adversary.Exactly(t, "gates", e.roundingOf(p, x), math.Tanh(off/2)*4*(1+1e-6)+2*4e-36)
	x.deviation = 1e-3
	adversary.Exactly(t, "gates with one weight", e.roundingOf(p, x), math.Expm1(2*off)*1e-3*(1+1e-6)+2*4e-36)
	adversary.Exactly(t, "logits", e.roundingOf(p, extents{component: 3}), (p.gamma(8)*3/tau)*(1+mixError(p, 2))*(1+1e-6))
	adversary.Exactly(t, "weighted mean", e.roundingOf(p, extents{top: 5}), 2*p.gamma(8)*5*(1+1e-6))
}
