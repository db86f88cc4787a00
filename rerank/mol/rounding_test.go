package mol

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestRoundingError packs the rows of random models in every format and wants no
// score to move by more than the bound, nor the bound to exceed twice the most
// that a score can be.
func TestRoundingError(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c, set := randomShape(rng).random(rng)
		s, err := New(c, set)
		if err != nil {
			t.Fatal(err)
		}
		x := features(t, s, normal(rng, 40, s.spec.ItemDim))
		e := encode(t, s, randomQuery(rng, s))
		want := score(t, e, rerank.Items{Features: x})
		for _, f := range rerank.Formats() {
			packed, loss := packRows(t, rerank.Packing{Format: f, Cols: x.Cols, Block: s.spec.Block}, x)
			have := score(t, e, rerank.Items{Packed: packed})
			bound := float64(e.(rerank.Rounder).RoundingError(loss))
			kernel := 2 * 1e-5 * largest(want) * 10
			for i := range want {
				if d := math.Abs(float64(have[i]) - float64(want[i])); d > bound+kernel {
					t.Fatalf("seed %d, %s: φ moves by %v, the bound is %v", seed, f, d, bound)
				}
			}
			if ceiling := 2 * float64(s.spec.MaxScore); f == rerank.FormatFloat32 && bound != 0 || bound > ceiling*1.01 {
				t.Fatalf("seed %d, %s: the bound is %v, φ at most %v", seed, f, bound, s.spec.MaxScore)
			}
		}
	}
}

func packRows(t testing.TB, p rerank.Packing, x rerank.Matrix) (*rerank.Packed, rerank.Loss) {
	t.Helper()
	out, loss, back := &rerank.Packed{Packing: p, Rows: x.Rows}, rerank.NewLoss(p), make([]float32, p.Cols)
	for r := range x.Rows {
		words := make([]uint32, p.RowWords())
		if !p.Pack(words, x.Row(r)) {
			t.Fatal("a number is too large")
		}
		p.Unpack(back, words, 1)
		loss.Add(p, x.Row(r), back)
		out.Words = append(out.Words, words...)
	}
	return out, loss
}

// BenchmarkScorePacked scores 4,096 candidates from rows of each format.
func BenchmarkScorePacked(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := fullGate(8, 4, 64, 128).build(b, rng)
	x, dst := normal(rng, 4096, s.spec.Features), make([]float32, 4096)
	e := encode(b, s, randomQuery(rng, s))
	for _, f := range rerank.Formats() {
		packed, _ := packRows(b, rerank.Packing{Format: f, Cols: x.Cols, Block: s.spec.Block}, x)
		items := rerank.Items{Packed: packed}
		if f == rerank.FormatFloat32 {
			items = rerank.Items{Features: x}
		}
		b.Run(string(f), func(b *testing.B) {
			for b.Loop() {
				if err := e.Score(dst, items); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
