package half_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/half"
)

// TestNarrow wants every value of both formats back, and of random numbers the
// nearest value, the even one where two are.
func TestNarrow(t *testing.T) {
	for name, f := range map[string]struct {
		narrow func(float32) uint16
		widen  func(uint16) float32
	}{"bfloat16": {half.ToBFloat16, half.BFloat16}, "float16": {half.ToFloat16, half.Float16}} {
		for h := range 1 << 16 {
			x := f.widen(uint16(h))
			if back := f.narrow(x); x == x && back != uint16(h) || x != x && f.widen(back) == f.widen(back) {
				t.Fatalf("%s: %04x widens to %v, which narrows to %04x", name, h, x, back)
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 1 << 18 {
			x := math.Float32frombits(rng.Uint32())
			if rng.IntN(2) == 0 {
				x = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(40)-28)))
			}
			h := f.narrow(x)
			if y := f.widen(h); x != x || y-y != 0 {
				continue
			}
			for _, other := range []uint16{h - 1, h + 1} {
				away, nearest := f.widen(other), f.widen(h)
				d, e := math.Abs(float64(away)-float64(x)), math.Abs(float64(nearest)-float64(x))
				if d < e || d == e && h&1 == 1 && away == away {
					t.Fatalf("%s: %v becomes %v, though %v is nearer or even", name, x, nearest, away)
				}
			}
		}
	}
}
