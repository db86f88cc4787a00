package kernel

import "math"

// Exp returns eˣ with an error of at most 0.51 units in the last place of float32. This
// includes subnormal results. −Inf gives 0, +Inf and overflow give +Inf, NaN gives NaN.
func Exp(x float32) float32 {
	switch {
	case x > 700:
		return float32(math.Inf(1))
	case x < -700:
		return 0
	default:
		return float32(exp(float64(x)))
	}
}

// steps is the number of table entries between two powers of two.
const steps = 32

// roots[i] holds the bits of 2^(i/steps), minus i at the position where exp adds it back.
var roots = func() (t [steps]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i)/steps)) - uint64(i)<<(52-5)
	}
	return t
}()

// exp returns eˣ for −700 ≤ x ≤ 700, with a relative error below 6·10⁻¹⁰. With k the
// nearest integer to x·steps/ln 2, the result is 2^(k/steps), from a table, times e^r with
// |r| ≤ ln 2/(2·steps). A Taylor polynomial of degree 3 approximates e^r with an error of
// at most r⁴/24. glibc's expf uses the same method. For scalars, float64 costs no more than
// float32, and its rounding can be neglected.
func exp(x float64) float64 {
	const (
		toInteger = 0x1.8p52 // adding it rounds to an integer, which is left in the low bits
		c         = math.Ln2 / steps
	)
	z := x * (1 / c)
	k := z + toInteger
	r := z - (k - toInteger)
	n := math.Float64bits(k)
	power := math.Float64frombits(roots[n%steps] + n<<(52-5))
	return power + power*r*(c+r*(c*c/2+r*(c*c*c/6)))
}

// Exps replaces every x of v by Exp(x).
func Exps(v []float32) {
	for i, x := range v {
		v[i] = Exp(x)
	}
}

// SiLU replaces every x of v by x·sigmoid(x), with an error of at most one unit in the last
// place. Below −700 the result is −0. NaN and infinities stay NaN or infinite.
func SiLU(v []float32) {
	for i, x := range v {
		switch {
		case x > 700: // sigmoid(x) is 1
		case !(x > -700):
			v[i] = x * 0 // NaN stays NaN, and −Inf becomes NaN
		default:
			v[i] = float32(float64(x) / (1 + exp(-float64(x))))
		}
	}
}

// GELU replaces every x of v by ½x·(1 + erf(x/√2)): the exact form, not the
// approximation by tanh.
func GELU(v []float32) {
	for i, x := range v {
		v[i] = float32(0.5 * float64(x) * (1 + math.Erf(float64(x)/math.Sqrt2)))
	}
}

// Softmax replaces v by exp(v − max v) / Σ exp(v − max v). If an element is not finite,
// every result is NaN: no finite item has a gate of −Inf.
func Softmax(v []float32) {
	top := float32(math.Inf(-1))
	var check float32 // NaN if an element is not finite, else 0
	for _, x := range v {
		top = max(top, x)
		check += x * 0
	}
	sum := float64(check)
	for i, x := range v {
		var e float64
		if d := x - top; !(d < -700) {
			e = exp(float64(d))
		}
		v[i] = float32(e)
		sum += e
	}
	scale := float32(1 / sum)
	for i := range v {
		v[i] *= scale
	}
}
