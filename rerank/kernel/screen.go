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

// GateErrors bound what the inputs of a softmax can be off: All the norm of it, Each the greatest of one. Both are sums, of
// a number and of four times the roots of sums of squares.
type GateErrors struct {
	All, Each  [5]float32
	four, room float32
}

// boundRoom is for the roundings of Bound, and of the sums and means that it gets.
const boundRoom = 1 + 2.2e-4

// Bound writes to out what the mean that Weigh wrote is at most, if the gates are off as errors say of the sums of squares: with δ for each
// and Δ for all, mean + e^δ·(e^δ − 1)/δ·Δ·spread, by e^δ ≤ ((4 + δ)/(4 − δ))². Of δ from 4 on it is infinite, or not a number, and of what is not a
// number, not one. Where a greater bound of all lanes is below reach, it may do.
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

// factor bounds what a mean is off in units of its spread.
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

// Greatest of numbers that are not negative; NaN is above all. Four maxima do not wait for
// each other.
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
