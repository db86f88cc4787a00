package rerank_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestTopK holds the kept rows against all rows sorted, with ties, zeros of both
// signs and scores that are not finite.
func TestTopK(t *testing.T) {
	odd := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32,
		math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	random := rand.New(rand.NewPCG(1, 2))
	var top rerank.TopK
	for n := range 60 {
		rows := make([]rerank.Scored, n)
		for i := range rows {
			rows[i] = rerank.Scored{ID: rerank.IntID(int64((i*37)%61) - 30), Score: odd[random.IntN(len(odd))], Index: i}
			if random.IntN(3) == 0 {
				rows[i].ID = rerank.TextID(strconv.Itoa((i * 37) % 61))
			}
		}
		want := slices.Clone(rows)
		slices.SortFunc(want, func(a, b rerank.Scored) int {
			switch {
			case rerank.Better(a, b):
				return -1
			case rerank.Better(b, a):
				return 1
			}
			return 0
		})
		for _, k := range []int{-1, 0, 1, 7, n, n + 1} {
			top.Reset(k)
			for _, r := range rows {
				top.Push(r)
			}
			threshold := top.Threshold()
			got := top.AppendSorted(nil)
			if len(got) != min(max(k, 0), n) {
				t.Fatalf("%d of %d rows: kept %d", k, n, len(got))
			}
			for i := range got {
				if got[i].ID != want[i].ID || math.Float32bits(got[i].Score+0) != math.Float32bits(want[i].Score+0) {
					t.Fatalf("%d of %d rows: row %d is %v, want %v", k, n, i, got[i], want[i])
				}
			}
			last := math.Inf(-1)
			if k > 0 && k <= n && !math.IsNaN(float64(want[k-1].Score)) && !math.IsInf(float64(want[k-1].Score), 0) {
				last = float64(want[k-1].Score)
			}
			if float64(threshold) != last {
				t.Fatalf("%d of %d rows: threshold %v, want %v", k, n, threshold, last)
			}
		}
	}
}
