package kernel

import "math"

// Extent tells how far the values of each lane of a tile reach: the greatest, the
// least, and the sum of their squares. The sum is not finite if a value is not; of
// the others nothing is said then.
func (s *Set) Extent(out *[3][Lanes]float32, tile []float32) { s.isa.extent(out, tile) }

// Weigh is Mix that also tells how far apart the logits are which the gates weigh:
// it writes φ = Σ_l π_l·logits_l, π = softmax(gates), of every lane to out[0] and
// the root of Σ_l (π_l·(logits_l − φ))² to out[1]. It overwrites the gates. A gate or logit that
// is not finite gives results that are not.
func (s *Set) Weigh(out *[2][Lanes]float32, logits, gates []float32) {
	s.isa.weigh(out, logits, gates[:len(logits)])
}

func extentGo(out *[3][Lanes]float32, x []float32) {
	copy(out[0][:], x)
	copy(out[1][:], x)
	out[2] = [Lanes]float32{}
	for i := 0; i < len(x); i += Lanes {
		for l, v := range x[i : i+Lanes] {
			out[0][l], out[1][l] = max(out[0][l], v), min(out[1][l], v)
			out[2][l] += v * v
		}
	}
}

func weighGo(out *[2][Lanes]float32, logits, gates []float32) {
	mixGo(&out[0], logits, gates)
	for l := range Lanes {
		top, sum, squares := float32(math.Inf(-1)), float32(0), float32(0)
		for i := l; i < len(gates); i += Lanes {
			top = max(top, gates[i])
		}
		for i := l; i < len(gates); i += Lanes {
			e := Exp(gates[i] - top)
			d := e * (logits[i] - out[0][l])
			sum, squares = sum+e, squares+d*d
		}
		out[1][l] = float32(math.Sqrt(float64(squares))) / sum
	}
}
