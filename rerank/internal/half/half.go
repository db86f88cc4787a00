// Package half converts between float32 and the two 16-bit floating-point
// formats. Every value of both has an exact float32; narrowing rounds to the
// nearest value, ties to the even one.
package half

import "math"

// Float16 widens an IEEE 754 binary16.
func Float16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent := uint32(h>>10) & 0x1f
	fraction := uint32(h & 0x3ff)
	switch exponent {
	case 0: // zero and subnormal: fraction · 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinite and NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}

// BFloat16 widens a bfloat16, the upper half of a float32.
func BFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBFloat16 narrows to a bfloat16; NaN stays one, and what is too large becomes
// infinite.
func ToBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // a NaN whose lower half held it all
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// ToFloat16 narrows to an IEEE 754 binary16; NaN stays one, and what is 65,520
// or more becomes infinite.
func ToFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65,520, the middle between the last number and the next
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: subnormal, a multiple of 2⁻²⁴
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*0x1p24))
	default:
		return sign | uint16((b-(127-15)<<23+0xfff+b>>13&1)>>13)
	}
}
