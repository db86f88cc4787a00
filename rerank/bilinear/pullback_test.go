package bilinear_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TestPullBack compares what the pulled-back vector makes of a row with qᵀWx in
// float64, on rows in every way out of the ordinary, and with the score that the model
// gives the row: the two are no further apart than the ε of a certificate.
func TestPullBack(t *testing.T) {
	kinds := []adversary.Kind{adversary.Plain, adversary.Tie, adversary.NearTie, adversary.Zero, adversary.Huge, adversary.Tiny, adversary.Lone}
	for seed := range uint64(60) {
		for _, form := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
			rng := rand.New(rand.NewPCG(seed, 11))
			normalise := seed%2 == 0
			s, w := randomForm(t, rng, form, normalise)
			q := random(rng, s.Spec().QueryDim).Data
			base := adversary.Mix(rng, 40, s.Spec().ItemDim, kinds...)
			if normalise {
				rerank.Normalise(q)
				for i := range base.Rows {
					rerank.Normalise(base.Row(i))
					rerank.Normalise(base.Row(i)) // a tiny row is a unit vector only now
				}
			}
			for i := range base.Rows {
				x := base.Row(i)
				e := encode(t, s, q)
				p, ok := rerank.EncodedAbilitiesOf(e).PullBack.PullBack()
				if !ok || len(p.Vector) != s.Spec().ItemDim {
					t.Fatalf("seed %d, %s: %+v, %t", seed, form, p, ok)
				}
				phi := float64(p.Scale)*adversary.Dot(p.Vector, x) + float64(p.Offset)
				var want, size float64
				for a, v := range q {
					for b, y := range x {
						want += float64(v) * w(a, b) * float64(y)
					}
				}
				size = rerank.Norm(q) * rerank.Norm(x) * frobenius(w, len(q), len(x))
				if off := math.Abs(phi - want); off > 1e-5*size+math.SmallestNonzeroFloat32 {
					t.Fatalf("seed %d, %s, row %d: φ is %v, want %v", seed, form, i, phi, want)
				}
				probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
				if err != nil {
					t.Fatal(err)
				}
				score := scoreOne(t, s, e, x)
				listed := float32(kernel.Gamma(len(x)+4) * rerank.Norm(p.Vector) * rerank.Norm(x))
				epsilon := e.Bound(probes, []rerank.List{{Epsilon: listed}}).Epsilon
				if off := math.Abs(phi - float64(score)); off > float64(epsilon) {
					t.Fatalf("seed %d, %s, row %d: φ is %v and the score %v, ε is %v", seed, form, i, phi, score, epsilon)
				}
			}
		}
	}
}

func frobenius(w func(i, j int) float64, n, m int) float64 {
	var sum float64
	for i := range n {
		for j := range m {
			sum += w(i, j) * w(i, j)
		}
	}
	return math.Sqrt(sum)
}

func scoreOne(t *testing.T, s *bilinear.Similarity, e rerank.Encoded, x []float32) float32 {
	t.Helper()
	score, _ := scoreOf(t, s, e, x)
	return score
}

// TestPullBackOverflows: a query and a W that are finite can have a Wᵀq that is not.
func TestPullBackOverflows(t *testing.T) {
	s := build(t, bilinear.Config{QueryDim: 1, ItemDim: 2, Form: bilinear.LowRank}, tensor.Set{
		"P": {Shape: []int{1, 1}, Data: []float32{1e30}}, "Q": {Shape: []int{2, 1}, Data: []float32{1e30, 1}},
	})
	if p, ok := rerank.EncodedAbilitiesOf(encode(t, s, []float32{1})).PullBack.PullBack(); ok {
		t.Errorf("Wᵀq is %v", p.Vector)
	}
}
