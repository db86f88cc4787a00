package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestPullBack compares what the pulled-back vector makes of a row with φ in float64,
// and with the score of the model, for gates of the query alone over a linear item
// side: the latter are no further apart than the ε of a certificate.
func TestPullBack(t *testing.T) {
	kinds := []adversary.Kind{adversary.Plain, adversary.Tie, adversary.NearTie, adversary.Zero, adversary.Huge, adversary.Tiny, adversary.Lone}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 13))
		shape := queryGate(1+rng.IntN(4), 1+rng.IntN(4), 1+rng.IntN(9), 8)
		shape.queryDim, shape.itemDim, shape.l2, shape.normalise = 1+rng.IntN(12), 1+rng.IntN(12), false, seed%2 == 0
		c, set := shape.random(rng)
		s, err := New(c, set)
		if err != nil {
			t.Fatal(err)
		}
		q := randomQuery(rng, s)
		base := adversary.Mix(rng, 30, s.spec.ItemDim, kinds...)
		if c.Normalise {
			base = unitRows(base, make([]float32, len(base.Data)))
			base = unitRows(base, make([]float32, len(base.Data))) // a tiny row is a unit vector only now
		}
		for i := range base.Rows {
			x := base.Row(i)
			e := encode(t, s, q)
			p, ok := rerank.EncodedAbilitiesOf(e).PullBack.PullBack()
			if !ok || len(p.Vector) != s.spec.ItemDim || !(p.Scale > 0) {
				t.Fatalf("seed %d: %+v, %t", seed, p, ok)
			}
			phi := float64(p.Scale)*adversary.Dot(p.Vector, x) + float64(p.Offset)
			want := naive{c: c, t: set}.score(q, x)
			if size := float64(p.Scale)*rerank.Norm(p.Vector)*rerank.Norm(x) + math.Abs(float64(p.Offset)); !(math.Abs(phi-want) <= 1e-4*size) {
				t.Fatalf("seed %d, row %d: φ is %v, want %v", seed, i, phi, want)
			}
			probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
			if err != nil {
				t.Fatal(err)
			}
			score := make([]float32, 1)
			if err := e.Score(score, rerank.Items{Features: features(t, s, rowOf(x))}); err != nil {
				t.Fatal(err)
			}
			listed := float32(kernel.Gamma(len(x)+4) * rerank.Norm(p.Vector) * rerank.Norm(x))
			epsilon := e.Bound(probes, []rerank.List{{Epsilon: listed}}).Epsilon
			if off := math.Abs(phi - float64(score[0])); off > float64(epsilon) {
				t.Fatalf("seed %d, row %d: φ is %v and the score %v, ε is %v", seed, i, phi, score[0], epsilon)
			}
		}
	}
}

// TestNoPullBack: gates of the item, components that are normalised and an item side
// that is not linear leave φ no inner product with the stored vector.
func TestNoPullBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 17))
	unit, hidden := queryGate(2, 2, 4, 8), queryGate(2, 2, 4, 8)
	hidden.itemHidden, hidden.l2 = 5, false
	for name, shape := range map[string]shape{"gates of the item": fullGate(2, 2, 4, 8), "normalised components": unit, "hidden layer": hidden} {
		shape.queryDim, shape.itemDim = 6, 6
		s := shape.build(t, rng)
		able := rerank.EncodedAbilitiesOf(encode(t, s, randomQuery(rng, s))).PullBack
		if able == nil {
			continue
		}
		if p, ok := able.PullBack(); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
