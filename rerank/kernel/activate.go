package kernel

import "math"

// Exp is eˣ to 0.6 units in the last place of float32, over the whole range:
// denormal results are rounded as any other, −Inf gives 0, +Inf and what
// overflows give +Inf, NaN gives NaN.
func Exp(x float32) float32 { return float32(exp(float64(x))) }

// exp is eˣ with a relative error below 8·10⁻⁹ for −700 ≤ x ≤ 700; beyond, it is
// e^±700, which float32 rounds to +Inf or 0. It multiplies 2ⁿ, n the nearest
// integer to x·log₂e, with the Taylor polynomial of degree 7 of the rest,
// |r| ≤ ½·ln 2: the first term left out is at most r⁸/8! = 5.2·10⁻⁹, and
// e⁻ʳ at most √2. float64 costs a scalar no more than float32 and leaves no
// rounding to think of.
func exp(x float64) float64 {
	const toInteger = 0x1.8p52 // adding it rounds to an integer, in the low bits
	x = min(max(x, -700), 700) // keeps NaN
	shifted := x*math.Log2E + toInteger
	r := x - (shifted-toInteger)*math.Ln2
	r2 := r * r
	p := (1 + r) + r2*((1./2+r*(1./6))+r2*((1./24+r*(1./120))+r2*(1./720+r*(1./5040))))
	return p * math.Float64frombits((math.Float64bits(shifted)+1023)<<52)
}

// SiLU replaces every x of v by x·sigmoid(x), to one unit in the last place.
// What is not finite stays so.
func SiLU(v []float32) {
	for i, x := range v {
		v[i] = float32(float64(x) / (1 + exp(-float64(x))))
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
		e := float32(exp(float64(x - top)))
		v[i] = e
		sum += float64(e)
	}
	scale := float32(1 / sum)
	for i := range v {
		v[i] *= scale
	}
}
