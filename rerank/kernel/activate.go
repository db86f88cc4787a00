package kernel

import "math"

// Exp is eˣ to 0.51 units in the last place of float32, over the whole range:
// denormal results are rounded as any other, −Inf gives 0, +Inf and what
// overflows give +Inf, NaN gives NaN.
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

// roots[i] are the bits of 2^(i/steps), less i where exp adds it again.
var roots = func() (t [steps]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i)/steps)) - uint64(i)<<(52-5)
	}
	return t
}()

// exp is eˣ for −700 ≤ x ≤ 700, with a relative error below 6·10⁻¹⁰. With k the
// nearest integer to x·steps/ln 2, it is 2^(k/steps), by table, times e^r for
// |r| ≤ ln 2/(2·steps), of which the Taylor polynomial of degree 3 leaves out
// r⁴/24 at most: the method of expf in glibc. float64 costs a scalar no more than
// float32, and leaves no rounding to think of.
func exp(x float64) float64 {
	const (
		toInteger = 0x1.8p52 // adding it rounds to an integer, in the low bits
		c         = math.Ln2 / steps
	)
	z := x * (1 / c)
	k := z + toInteger
	r := z - (k - toInteger)
	n := math.Float64bits(k)
	power := math.Float64frombits(roots[n%steps] + n<<(52-5))
	return power + power*r*(c+r*(c*c/2+r*(c*c*c/6)))
}

// SiLU replaces every x of v by x·sigmoid(x), to one unit in the last place;
// below −700 by −0. What is not finite stays so.
func SiLU(v []float32) {
	for i, x := range v {
		switch {
		case x > 700: // sigmoid(x) is 1
		case !(x > -700):
			v[i] = x * 0 // NaN stays, and −Inf becomes it
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

// Softmax replaces v by exp(v − max v) / Σ exp(v − max v). If an element is not
// finite, every result is NaN: −Inf is no gate that a finite item can have.
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
