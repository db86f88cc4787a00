package dot_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func build(t testing.TB, c dot.Config, set tensor.Set) *dot.Similarity {
	t.Helper()
	s, err := dot.New(c, set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t testing.TB, s rerank.Similarity, q []float32) rerank.Encoded {
	t.Helper()
	e, err := s.Encode(rerank.Query{Vector: q})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestScore(t *testing.T) {
	base := rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{3, 4, 0, 0, -1, 0}}
	for normalise, want := range map[bool][]float32{
		false: {0*3 + 5*4, 0, 0*-1 + 5*0},
		true:  {4. / 5, 0, 0},
	} {
		s := build(t, dot.Config{Dim: 2, Normalise: normalise}, nil)
		x, dst := rerank.NewMatrix(3, 2), make([]float32, 3)
		if err := s.EncodeItems(x, base); err != nil {
			t.Fatal(err)
		}
		e := encode(t, s, []float32{0, 5})
		if err := e.Score(dst, rerank.Items{Features: x}); err != nil {
			t.Fatal(err)
		}
		explained, err := e.(rerank.Explainer).Explain(rerank.Items{Features: x})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			term := explained[i].Terms[0]
			if !(math.Abs(float64(dst[i]-want[i])) <= 1e-6) || explained[i].Score != dst[i] || term != (rerank.Term{Dot: dst[i], Logit: dst[i], Gate: 1}) {
				t.Errorf("normalise %t, item %d: %v (%+v), want %v", normalise, i, dst[i], explained[i], want[i])
			}
		}
	}
}

// TestBound: if the list is ordered by φ, the bound is its threshold, otherwise a bound by norms. ε
// holds for scores that a store sums in another order.
func TestBound(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dim := 1 + rng.IntN(300)
		unit := seed%2 == 0
		s := build(t, dot.Config{Dim: dim, Normalise: unit}, nil)
		base, q := rerank.NewMatrix(20, dim), make([]float32, dim)
		for i := range base.Data {
			base.Data[i] = float32(rng.NormFloat64() * 100)
		}
		for i := range q {
			q[i] = float32(rng.NormFloat64() * 100)
		}
		x, dst := rerank.NewMatrix(20, dim), make([]float32, 20)
		if err := s.EncodeItems(x, base); err != nil {
			t.Fatal(err)
		}
		e := encode(t, s, q)
		if err := e.Score(dst, rerank.Items{Features: x}); err != nil {
			t.Fatal(err)
		}
		probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 5})
		if err != nil {
			t.Fatal(err)
		}
		list := rerank.List{Scores: []float32{3, 2.5}, Exact: true, Epsilon: 0.25}
		bound := e.Bound(probes, []rerank.List{list})
		if !unit && bound.Max != 2.5 || bound.Max > 2.5 {
			t.Errorf("bound is %+v, want the threshold 2.5", bound)
		}
		if bound.Epsilon < 0.25 {
			t.Errorf("ε is %v, less than the list's", bound.Epsilon)
		}
		kernelError := e.Bound(nil, nil).Epsilon
		for i, v := range dst {
			var exact float64
			for k, p := range probes[0].Vector {
				exact += float64(p) * float64(x.Row(i)[k])
			}
			if d := math.Abs(exact - float64(v)); d > float64(kernelError) {
				t.Errorf("seed %d: item %d is off by %v, ε is %v", seed, i, d, kernelError)
			}
			if top := e.Bound(nil, nil).Max; v > top || unit && math.IsInf(float64(top), 1) {
				t.Errorf("seed %d: item %d scores %v, above %v", seed, i, v, top)
			}
		}
		list.Exhausted = true
		if max := e.Bound(probes, []rerank.List{list}).Max; !math.IsInf(float64(max), -1) {
			t.Errorf("an exhausted list leaves a bound of %v", max)
		}
	}
}

func TestProbes(t *testing.T) {
	head := tensor.Tensor{Shape: []int{2, 2}, Data: []float32{0, 1, 1, 0}}
	s := build(t, dot.Config{Dim: 2}, tensor.Set{"probe.swap.W": head})
	e := encode(t, s, []float32{3, 4})
	for strategy, want := range map[rerank.Strategy][]float32{
		rerank.PerEmbedding: {3, 4}, rerank.Average: {3, 4}, rerank.Combined: {3, 4}, rerank.Distilled: {4, 3},
	} {
		probes, err := e.Probes(rerank.Plan{Strategy: strategy, Depth: 1})
		if err != nil || len(probes) != 1 || probes[0].Vector[0] != want[0] || probes[0].Vector[1] != want[1] {
			t.Errorf("%s: %+v, %v, want %v", strategy, probes, err, want)
		}
		// The list of a learned probe is not of φ.
		bound := e.Bound(probes, []rerank.List{{Scores: []float32{1}, Exact: true}})
		if exact := strategy != rerank.Distilled; exact != (bound.Max == 1) {
			t.Errorf("%s: bound is %v", strategy, bound.Max)
		}
	}
	for _, plan := range []rerank.Plan{{Strategy: "best"}, {Strategy: rerank.Average, Derived: true}} {
		if _, err := e.Probes(plan); !errors.Is(err, rerank.ErrStrategy) {
			t.Errorf("%+v: %v", plan, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	one := tensor.Tensor{Shape: []int{1}, Data: []float32{1}}
	for want, c := range map[string]struct {
		dot.Config
		tensor.Set
	}{
		"dim is 0":         {dot.Config{}, nil},
		`"W" of shape [1]`: {dot.Config{Dim: 1}, tensor.Set{"W": one}},
		`"probe.a.W" has`:  {dot.Config{Dim: 1}, tensor.Set{"probe.a.W": one}},
	} {
		if _, err := dot.New(c.Config, c.Set); !errors.Is(err, rerank.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrModel with %q, have: %v", want, err)
		}
	}
	s := build(t, dot.Config{Dim: 2}, nil)
	for _, q := range [][]float32{{1}, {1, float32(math.Inf(1))}} {
		if _, err := s.Encode(rerank.Query{Vector: q}); !errors.Is(err, rerank.ErrQuery) {
			t.Errorf("query %v: %v", q, err)
		}
	}
}
