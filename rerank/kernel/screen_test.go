package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestExtentAndWeigh compares every set with float64, and wants what is not finite
// to show.
func TestExtentAndWeigh(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range kernel.Sets() {
		for _, n := range []int{1, 2, 3, 32, 65} {
			logits, gates := make([]float32, n*kernel.Lanes), make([]float32, n*kernel.Lanes)
			for i := range logits {
				logits[i], gates[i] = float32(rng.NormFloat64()*8), float32(rng.NormFloat64()*3)
			}
			bad := rng.IntN(len(logits))
			logits[bad] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[rng.IntN(3)]
			var extent [3][kernel.Lanes]float32
			var mean [2][kernel.Lanes]float32
			s.Extent(&extent, logits)
			before := append([]float32(nil), gates...)
			s.Weigh(&mean, logits, gates)
			for l := range kernel.Lanes {
				if l == bad%kernel.Lanes {
					if finite(extent[2][l]) || finite(mean[0][l]) || finite(mean[1][l]) {
						t.Errorf("%s, %d rows: a lane with %v has a finite result", s.Name(), n, logits[bad])
					}
					continue
				}
				compareLane(t, s.Name(), l, logits, before, extent, mean)
			}
		}
	}
}

func finite(x float32) bool { return x-x == 0 }

func compareLane(t *testing.T, name string, l int, logits, gates []float32, extent [3][kernel.Lanes]float32, mean [2][kernel.Lanes]float32) {
	t.Helper()
	top, low, squares := math.Inf(-1), math.Inf(1), 0.0
	sum, phi, apart := 0.0, 0.0, 0.0
	for i := l; i < len(logits); i += kernel.Lanes {
		x := float64(logits[i])
		top, low, squares = max(top, x), min(low, x), squares+x*x
		sum += math.Exp(float64(gates[i]))
	}
	for i := l; i < len(logits); i += kernel.Lanes {
		phi += math.Exp(float64(gates[i])) / sum * float64(logits[i])
	}
	for i := l; i < len(logits); i += kernel.Lanes {
		d := math.Exp(float64(gates[i])) / sum * (float64(logits[i]) - phi)
		apart += d * d
	}
	if float64(extent[0][l]) != top || float64(extent[1][l]) != low || !(math.Abs(float64(extent[2][l])-squares) <= 1e-5*squares) {
		t.Errorf("%s, lane %d: extent %v %v %v, want %v %v %v", name, l, extent[0][l], extent[1][l], extent[2][l], top, low, squares)
	}
	if !(math.Abs(float64(mean[0][l])-phi) <= 1e-4) || !(math.Abs(float64(mean[1][l])-math.Sqrt(apart)) <= 1e-4*(1+math.Sqrt(apart))) {
		t.Errorf("%s, lane %d: mean %v and distance %v, want %v and %v", name, l, mean[0][l], mean[1][l], phi, math.Sqrt(apart))
	}
}

// TestBound wants no less than mean + e^δ·(e^δ − 1)/δ·Δ·spread of any set, and little more where δ is small; and what is not a number to show.
func TestBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range kernel.Sets() {
		for range 2000 {
			var squares [4]*[kernel.Lanes]float32
			var weighed [2][kernel.Lanes]float32
			var errors kernel.GateErrors
			for i := range squares {
				squares[i] = new([kernel.Lanes]float32)
				for l := range kernel.Lanes {
					squares[i][l] = float32(math.Exp(rng.NormFloat64() * 3))
				}
			}
			for l := range kernel.Lanes {
				weighed[0][l], weighed[1][l] = float32(rng.NormFloat64()*5), float32(math.Exp(rng.NormFloat64()*3))
			}
			scale := math.Exp(rng.Float64()*8 - 8)
			for i := range errors.All {
				errors.All[i], errors.Each[i] = rng.Float32(), rng.Float32()*float32(scale)
			}
			bad := rng.IntN(kernel.Lanes)
			squares[rng.IntN(4)][bad] = float32(math.NaN())
			var out [kernel.Lanes]float32
			s.Bound(&out, &weighed, &squares, &errors, float32(math.Inf(-1)))
			for l, got := range out {
				if l == bad {
					if finite(got) {
						t.Fatalf("%s: of what is not a number it makes %v", s.Name(), got)
					}
					continue
				}
				all, each := float64(errors.All[0]), float64(errors.Each[0])
				for i, v := range squares {
					all += float64(errors.All[i+1]) * math.Sqrt(float64(v[l]))
					each += float64(errors.Each[i+1]) * math.Sqrt(float64(v[l]))
				}
				added := math.Exp(each) * math.Expm1(each) / each * all * float64(weighed[1][l])
				rounding := 1e-6 * math.Abs(float64(weighed[0][l]))
				want, most := float64(weighed[0][l])+added, float64(weighed[0][l])+added*1.5
				if float64(got) < want-rounding || each < 1.5 && float64(got) > most+rounding {
					t.Fatalf("%s, δ %v: %v, want from %v to %v", s.Name(), each, got, want, most)
				}
			}
		}
	}
}
