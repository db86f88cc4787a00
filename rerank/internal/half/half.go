// Package half widens the two 16-bit floating-point formats to float32; every
// value of both has an exact float32.
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
