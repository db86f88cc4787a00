package gateway

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrder: the best score comes first, among equals the first document, and no score that is not finite has a place.
func TestOrder(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	got := order([]float32{1, nan, float32(math.Copysign(0, -1)), 0, -2, inf, 0.5, 0, -0.5, -inf, 1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}, nil)
	want := []int{11, 0, 10, 6, 13, 2, 3, 7, 8, 4, 12}
	for n, r := range got {
		if n >= len(want) || r.index != want[n] {
			t.Fatalf("%+v, want the documents %v", got, want)
		}
	}
	scores := make([]float32, 500)
	for i := range scores {
		scores[i] = float32(rand.IntN(100)-50) / 7
	}
	five := 5
	ranked := order(scores, nil)
	if !slices.IsSortedFunc(ranked, func(a, b reranked) int { return cmp.Or(cmp.Compare(b.score, a.score), a.index-b.index) }) || len(ranked) != 500 {
		t.Errorf("%d documents out of order", len(ranked))
	}
	if !slices.Equal(order(scores, &five), ranked[:5]) {
		t.Error("the first five of an answer are other ones than those of the whole answer")
	}
}
