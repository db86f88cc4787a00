package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestTheorem1 follows the proof of theorem 1 of the RAILS paper with the mixture that Score
// computes: any matrix A of scores, of full rank n, is π∘B₁ + (1−π)∘B₂, where B₁ and B₂ are
// logits of rank d < n. With A = U·V, let L be the sum of the first d products, and λ = A/L
// element by element; then B₁ = λ_min·L and B₂ = λ_max·L. Rows are queries, lanes are items.
func TestTheorem1(t *testing.T) {
	const n, m = 12, kernel.Lanes
	const almostZero = 1e-30 // a softmax has no gate of zero: it is the ε of the theorem
	rng := rand.New(rand.NewPCG(1, 1))
	u, v := normal(rng, n, n), normal(rng, n, m)
	product := func(i, j, rank int) (sum float64) {
		for k := range rank {
			sum += float64(u.Row(i)[k]) * float64(v.Row(k)[j])
		}
		return sum
	}
	for _, d := range []int{1, 4, n - 1} {
		least, greatest := math.Inf(1), math.Inf(-1)
		for i := range n {
			for j := range m {
				lambda := product(i, j, n) / product(i, j, d)
				least, greatest = min(least, lambda), max(greatest, lambda)
			}
		}
		for i := range n {
			var logits, gates [2 * m]float32
			var got [m]float32
			for j := range m {
				low := product(i, j, d)
				pi := (greatest - product(i, j, n)/low) / (greatest - least)
				logits[j], logits[m+j] = float32(least*low), float32(greatest*low)
				gates[j], gates[m+j] = float32(math.Log(max(pi, almostZero))), float32(math.Log(max(1-pi, almostZero)))
			}
			kernel.Best().Mix(&got, logits[:], gates[:])
			for j, x := range got {
				want, largest := product(i, j, n), max(math.Abs(float64(logits[j])), math.Abs(float64(logits[m+j])))
				if !(math.Abs(float64(x)-want) <= 1e-5*largest) {
					t.Errorf("rank %d of %d: query %d, item %d scores %v, want %v", d, n, i, j, x, want)
				}
			}
		}
	}
}
