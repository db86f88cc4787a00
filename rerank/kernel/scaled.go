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

// LargestInt8 writes to out, for each lane, off plus the largest of the numbers factor·c·scale of
// some blocks. Block b has the given number of rows, which begin at c[b·step], and the scales
// scales[b·Lanes:], as float32 bits: a tile of int8 begins with them. The factor is not negative.
// LargestInt8 rounds four times. If a scaled number is not finite, its lane becomes NaN.
func (s *Set) LargestInt8(out *[Lanes]float32, c []int32, step, rows int, scales []uint32, blocks int, factor, off float32) {
	_, _ = c[(blocks-1)*step+rows*Lanes-1], scales[blocks*Lanes-1] // the assembly does not check bounds
	s.isa.largestInt8(out, c, step, rows, scales, blocks, factor, off)
}

func largestInt8Go(out *[Lanes]float32, c []int32, step, rows int, scales []uint32, blocks int, factor, off float32) {
	for l := range out {
		top, check := float32(math.Inf(-1)), float32(0)
		for b := range blocks {
			largest := c[b*step+l]
			for r := 1; r < rows; r++ {
				largest = max(largest, c[b*step+r*Lanes+l])
			}
			x := float32(float32(largest) * factor * math.Float32frombits(scales[b*Lanes+l])) // rounded, so that x - x is 0
			top, check = max(top, x), check+(x-x)
		}
		out[l] = top + check + off
	}
}

func addScaledGo(dst, c []float32, step int, factor float32, n int) {
	for t := range n {
		out, in := dst[t*Lanes:][:Lanes], c[t*step:][:Lanes]
		for l := range out {
			x := float32(in[l] * factor)
			out[l] += x + (x - x)
		}
	}
}

func addInt8Go(dst []float32, c []int32, step int, scales []uint32, scaleStep int, factor float32, n int) {
	for t := range n {
		out, in, scale := dst[t*Lanes:][:Lanes], c[t*step:][:Lanes], scales[t*scaleStep:][:Lanes]
		for l := range out {
			x := float32(float32(in[l]) * factor * math.Float32frombits(scale[l]))
			out[l] += x + (x - x)
		}
	}
}
