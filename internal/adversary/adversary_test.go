package adversary_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestRoundedDown: the rows lose nearly all that the format can take of a number,
// and nearly all of it in the query's direction.
func TestRoundedDown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range rerank.Formats()[1:] {
		for _, block := range []int{0, 8} {
			p := rerank.Packing{Format: f, Cols: 32, Block: block}
			u := make([]float32, p.Cols)
			for i := range u {
				u[i] = float32(math.Copysign(1+rng.Float64()/8, rng.Float64()-0.5))
			}
			for _, size := range []float64{1, 0x1p-10, 0x1p8} {
				x, back, words := adversary.RoundedDown(rng, p, u, size), make([]float32, p.Cols), make([]uint32, p.RowWords())
				p.Pack(words, x)
				p.Unpack(back, words, 1)
				lost := make([]float32, p.Cols)
				for i := range x {
					lost[i] = x[i] - back[i]
				}
				if most := rerank.Norm(u) * rerank.Norm(lost); !(adversary.Dot(u, lost) > 0.9*most) || most == 0 {
					t.Errorf("%s, block %d, size %v: the loss is worth %v of %v", f, block, size, adversary.Dot(u, lost), most)
				}
				p.Pack(words, adversary.ExactlyPacked(rng, p, size))
			}
		}
	}
}

// TestSplitDown: two numbers of bfloat16 leave of each number what Parallel then
// points a row at.
func TestSplitDown(t *testing.T) {
	for _, v := range adversary.SplitDown(rand.New(rand.NewPCG(1, 2)), 100) {
		low := v - kernel.WidenBFloat16(kernel.RoundBFloat16(v))
		rest := low - kernel.WidenBFloat16(kernel.RoundBFloat16(low))
		if !(math.Abs(float64(rest)) > 0x1p-18) || math.Signbit(float64(rest)) != math.Signbit(float64(v)) {
			t.Errorf("of %v is left %v, want at least 2⁻¹⁸ of the same sign", v, rest)
		}
	}
}
