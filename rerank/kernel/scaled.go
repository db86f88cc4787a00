package kernel

import "math"

// AddScaled adds factor·c[t·step+l] to dst[t·Lanes+l], for each lane l of the len(dst)/Lanes tiles t.
// If what it adds to a lane is not finite, the lane becomes NaN.
func (s *Set) AddScaled(dst, c []float32, step int, factor float32) {
	if n := len(dst) / Lanes; n > 0 {
		_, _ = dst[n*Lanes-1], c[(n-1)*step+Lanes-1] // the assembly does not check bounds
		s.isa.addScaled(dst, c, step, factor, n)
	}
}

// AddInt8 adds factor·c[t·step+l]·scale to dst[t·Lanes+l], for each lane l of the len(dst)/Lanes
// tiles t. The lane's scale is scales[t·scaleStep+l], as float32 bits: the scale of the lane's block
// in an int8 tile. It rounds four times. If what it adds to a lane is not finite, the lane becomes
// NaN.
func (s *Set) AddInt8(dst []float32, c []int32, step int, scales []uint32, scaleStep int, factor float32) {
	if n := len(dst) / Lanes; n > 0 {
		_, _, _ = dst[n*Lanes-1], c[(n-1)*step+Lanes-1], scales[(n-1)*scaleStep+Lanes-1]
		s.isa.addInt8(dst, c, step, scales, scaleStep, factor, n)
	}
}

func addScaledGo(dst, c []float32, step int, factor float32, n int) {
	for t := range n {
		out, in := dst[t*Lanes:][:Lanes], c[t*step:][:Lanes]
		for l := range out {
			x := in[l] * factor
			out[l] += x + (x - x)
		}
	}
}

func addInt8Go(dst []float32, c []int32, step int, scales []uint32, scaleStep int, factor float32, n int) {
	for t := range n {
		out, in, scale := dst[t*Lanes:][:Lanes], c[t*step:][:Lanes], scales[t*scaleStep:][:Lanes]
		for l := range out {
			x := float32(in[l]) * factor * math.Float32frombits(scale[l])
			out[l] += x + (x - x)
		}
	}
}
