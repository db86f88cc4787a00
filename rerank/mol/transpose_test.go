package mol

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TestTranspose: on random models and every set of kernels, transposed scores are φ up to rounding, and an
// item's are the same alone and among others.
func TestTranspose(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c, set := randomShape(rng).random(rng)
		if seed%3 == 0 && set[gatePair+".1.weight"].Data != nil { // a linear part of the logits
			delete(set, gatePair+".3.weight")
			delete(set, gatePair+".3.bias")
			c.GatingPairHidden = 0
			set[gatePair+".1.weight"] = tensor.Tensor{Shape: []int{c.pairs(), c.pairs()}, Data: normal(rng, c.pairs(), c.pairs()).Data}
			set[gatePair+".1.bias"] = tensor.Tensor{Shape: []int{c.pairs()}, Data: normal(rng, 1, c.pairs()).Data}
		}
		plain, err := New(c, set)
		if err != nil {
			t.Fatal(err)
		}
		if plain.queryOnly() {
			continue
		}
		k := kernel.Sets()[seed%uint64(len(kernel.Sets()))]
		s := plain.WithKernels(k)
		queries := make([]rerank.Encoded, 1+rng.IntN(40))
		for q := range queries {
			queries[q] = encode(t, s, randomQuery(rng, plain))
		}
		f := features(t, s, normal(rng, 9, plain.spec.ItemDim))
		scores, err := rerank.AbilitiesOf(s).Transpose.Transpose(queries)
		if err != nil {
			t.Fatal(err)
		}
		for layout, items := range floatLayouts(f, []int32{8, 0, 3, 5, 1, 2, 2, 7, 4, 4, 4, 1, 1, 1, 3, 3, 3, 2, 6, 7, 8, 8, 8}) {
			checkTransposed(t, seed, layout, queries, items, scores)
		}
	}
}

func checkTransposed(t *testing.T, seed uint64, layout string, queries []rerank.Encoded, items rerank.Items, scores func([]float32, rerank.Items) error) {
	t.Helper()
	n := len(queries)
	got, alone := make([]float32, n*items.Len()), make([]float32, n)
	if err := scores(got, items); err != nil {
		t.Fatal(err)
	}
	if err := scores(alone, items.Slice(0, 1)); err != nil {
		t.Fatal(err)
	}
	want := make([]float64, items.Len())
	for q, e := range queries {
		if alone[q] != got[q] {
			t.Fatalf("seed %d, %s: query %d: %v alone, %v among others", seed, layout, q, alone[q], got[q])
		}
		score(t, e, items) // sets scoreError's extents
		epsilon, err := e.ScoreWide(want, items)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if v := float64(got[i*n+q]); !(math.Abs(v-w) <= epsilon+2*e.(*encoded).scoreError()) {
				t.Fatalf("seed %d, %s: query %d, item %d: %v, want %v", seed, layout, q, i, v, w)
			}
		}
	}
}

func TestTransposeRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	a, b := fullGate(2, 3, 8, 4).build(t, r), fullGate(2, 3, 8, 4).build(t, r)
	own := []rerank.Encoded{encode(t, b, rerank.Query{Vector: normal(r, 1, 384).Data})}
	if _, err := a.Transpose(own); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of another similarity: %v, want ErrQuery", err)
	}
	scores, err := b.Transpose(own)
	if err != nil {
		t.Fatal(err)
	}
	items := rerank.Items{Features: normal(r, 2, b.Spec().Features)}
	narrow := rerank.Items{Features: normal(r, 2, 3)}
	if err := scores(make([]float32, 3), items); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("places for other items: %v, want ErrItems", err)
	}
	if err := scores(make([]float32, 2), narrow); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("rows of another similarity: %v, want ErrItems", err)
	}
	if fixed := queryGate(2, 2, 8, 4).build(t, r); rerank.AbilitiesOf(fixed).Transpose != nil {
		t.Error("one inner product can be transposed")
	}
}
