package gpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// TestBestFirst: the n best entries come first, whatever the order, with equal scores and scores
// that are not finite among them. Cut keeps them and tells the best score that it removed.
func TestBestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for _, size := range []int{0, 1, 2, 3, 7, 100, 513, 1025} {
		for _, kind := range []string{"random", "both signs", "zeros", "equal", "rising", "falling", "not finite"} {
			var f Survivors
			for i := range size {
				x := map[string]float32{"random": rng.Float32(), "both signs": rng.Float32() - 0.5, "zeros": float32(math.Copysign(0, rng.Float64()-0.5)), "equal": 1, "rising": float32(i), "falling": -float32(i), "not finite": float32(i % 3)}[kind]
				if kind == "not finite" && i%3 == 1 {
					x = float32(math.NaN())
				}
				f.Rows, f.Scores = append(f.Rows, uint32(i*7919%10007)), append(f.Scores, x)
			}
			sorted := Survivors{Rows: slices.Clone(f.Rows), Scores: slices.Clone(f.Scores)}
			sort.Sort(&sorted)
			for _, n := range []int{0, 1, size / 2, size - 1, size, size + 1} {
				if n < 0 {
					continue
				}
				best := min(n, size)
				cut := Survivors{Rows: slices.Clone(f.Rows), Scores: slices.Clone(f.Scores), Next: none32}
				cut.Cut(n)
				want := slices.Clone(sorted.Rows[:best])
				slices.Sort(want)
				slices.Sort(cut.Rows)
				if !slices.Equal(cut.Rows, want) {
					t.Errorf("%d %s entries: the %d best are %v, want %v", size, kind, n, cut.Rows, want)
				}
				next := none32
				if best < size && finite(sorted.Scores[best]) {
					next = sorted.Scores[best]
				}
				if cut.Next != next {
					t.Errorf("%d %s entries: behind the %d best comes %v, want %v", size, kind, n, cut.Next, next)
				}
			}
		}
	}
}

func BenchmarkBestFirst(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 4))
	for _, size := range []int{64, 256, 512} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			rows, scores := make([]uint32, size), make([]float32, size)
			f := Survivors{Rows: make([]uint32, size), Scores: make([]float32, size)}
			for i := range rows {
				rows[i], scores[i] = uint32(i), rng.Float32()
			}
			b.ReportAllocs()
			for b.Loop() {
				copy(f.Rows, rows)
				copy(f.Scores, scores)
				f.BestFirst(64)
			}
		})
	}
}
