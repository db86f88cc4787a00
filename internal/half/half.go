// Package half converts between float32 and two 16-bit floating-point formats. Every 16-bit
// value has an exact float32. Narrowing rounds to the nearest value, ties to even.
package half

import "math"

// Float16 converts an IEEE 754 binary16 to a float32.
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

// BFloat16 converts a bfloat16 to a float32.
func BFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBFloat16 rounds a float32 to a bfloat16. NaN stays NaN, and values beyond the range
// become infinite.
func ToBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // keeps a NaN whose set bits are all in the lower half
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// ToFloat16 rounds a float32 to an IEEE 754 binary16. NaN stays NaN, and magnitudes of
// 65,520 or more become infinite.
func ToFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65,520, half way between the largest number and the next
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: subnormal, a multiple of 2⁻²⁴
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*0x1p24))
	default:
		return sign | uint16((b-(127-15)<<23+0xfff+b>>13&1)>>13)
	}
}
