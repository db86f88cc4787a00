package kernel

import "math"

// Extent writes the maximum, the minimum and the sum of squares of each lane of a tile to
// out. If a value is not finite, the sum of squares is not finite and the other two are
// unspecified.
func (s *Set) Extent(out *[3][Lanes]float32, tile []float32) { s.isa.extent(out, tile) }

// Weigh is Mix that also measures how much the weighted logits vary. For every lane, it
// writes φ = Σ_l π_l·logits_l with π = softmax(gates) to out[0], and the root of Σ_l
// (π_l·(logits_l − φ))² to out[1]. It overwrites the gates. If a gate or logit is not
// finite, the results are not finite.
func (s *Set) Weigh(out *[2][Lanes]float32, logits, gates []float32) {
	s.isa.weigh(out, logits, gates[:len(logits)])
}

// GateErrors bounds the errors of the softmax inputs: All bounds their norm, Each the
// greatest single error. Both are a constant (index 0) plus factors (indices 1 to 4) of
// four norms, which are roots of sums of squares.
type GateErrors struct {
	All, Each  [5]float32
	four, room float32
}

// boundRoom covers the roundings of Bound and of the sums and means that it receives.
const boundRoom = 1 + 2.2e-4

// Bound writes to out an upper bound of the exact mean, given the mean that Weigh wrote and
// the errors of the gates. errors and the sums of squares yield δ for each gate and Δ for
// all; the bound is mean + e^δ·(e^δ − 1)/δ·Δ·spread, with e^δ ≤ ((4 + δ)/(4 − δ))². For δ
// of 4 or more it is infinite or NaN; NaN input gives NaN. If a looser bound with the
// greatest sums of all lanes is already below reach, out may hold that bound.
func (s *Set) Bound(out *[Lanes]float32, weighed *[2][Lanes]float32, squares *[4]*[Lanes]float32, errors *GateErrors, reach float32) {
	errors.four, errors.room = 4, 16*boundRoom
	s.isa.bound(out, weighed, squares, errors, reach)
}

func boundGo(out *[Lanes]float32, weighed *[2][Lanes]float32, squares *[4]*[Lanes]float32, errors *GateErrors, reach float32) {
	worst := errors.factor(Greatest(squares[0]), Greatest(squares[1]), Greatest(squares[2]), Greatest(squares[3]))
	for l := range out {
		mean, spread := weighed[0][l], weighed[1][l]
		if out[l] = mean + worst*spread; !(out[l] < reach) {
			out[l] = mean + errors.factor(squares[0][l], squares[1][l], squares[2][l], squares[3][l])*spread
		}
	}
}

// factor bounds the error of a mean in units of its spread.
func (e *GateErrors) factor(squares ...float32) float32 {
	all, each := e.All[0], e.Each[0]
	for i, x := range squares {
		root := float32(math.Sqrt(float64(x)))
		all, each = all+e.All[i+1]*root, each+e.Each[i+1]*root
	}
	up, down := 4+each, max(4-each, 0)
	up, down = up*up, down*down
	return all * up * (16 * boundRoom) / (down * down)
}

// Greatest returns the maximum of numbers that are not negative. NaN counts as greater than
// all others. It computes four maxima that do not wait for each other.
func Greatest(v *[Lanes]float32) float32 {
	var a, b, c, d uint32
	for i := 0; i < Lanes; i += 4 {
		a = max(a, math.Float32bits(v[i]))
		b = max(b, math.Float32bits(v[i+1]))
		c = max(c, math.Float32bits(v[i+2]))
		d = max(d, math.Float32bits(v[i+3]))
	}
	return math.Float32frombits(max(a, b, c, d))
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
