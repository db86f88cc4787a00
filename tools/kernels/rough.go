package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A rough SiLU is x·s(x), s the sigmoid by lines: 32 of them, half a unit each, from −8 on.
// Each lies between the chord and the tangent of the same slope, which is off least; |x|·|s − sigmoid|
// is 0.0026 at most, near ±1.9. The first line ends at 0, so that what is left of it is zero,
// and the last at 1.
const (
	segments = 32
	width    = 0.5
	// tableEnd bounds |x|. It has few bits, so its product with a slope of few bits is
	// exact.
	tableEnd = 7.96875
	// tableSteps added to a number leaves the steps of width in the low bits.
	tableSteps = 1.5 * (1 << 23) * width
)

// offsets and slopes are the lines, the negative ones behind the others: a step's five low bits are its place.
var offsets, slopes Mem

func sigmoidTable() {
	var a, b [segments]float32
	for i := range a {
		a[i], b[i] = line((i+segments/2)%segments - segments/2)
	}
	table := func(name string, v [segments]float32) Mem {
		m := GLOBL(name, RODATA|NOPTR)
		for i, x := range v {
			DATA(4*i, F32(x))
		}
		return m
	}
	offsets, slopes = table("koffsets", a), table("kslopes", b)
}

// line is the line of the step from k·width on.
func line(k int) (offset, slope float32) {
	from, to := float64(k)*width, float64(k+1)*width
	switch k {
	case -segments / 2:
		b := few(sigmoid(to) / (tableEnd + to))
		return float32(b * tableEnd), float32(b)
	case segments/2 - 1:
		b := few((1 - sigmoid(from)) / (tableEnd - from))
		return float32(1 - b*tableEnd), float32(b)
	}
	b := (sigmoid(to) - sigmoid(from)) / (to - from)
	s := (1 + math.Copysign(math.Sqrt(1-4*b), from+to)) / 2 // where the slope s·(1 − s) is b
	chord, tangent := sigmoid(from)-b*from, s-b*math.Log(s/(1-s))
	return float32((chord + tangent) / 2), float32(b)
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// few keeps sixteen bits of x.
func few(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	return math.Ldexp(math.Round(math.Ldexp(fraction, 16)), exponent-16)
}

// rough holds the registers of a rough SiLU.
type rough struct {
	end, steps    reg.VecPhysical
	offset, slope [2]reg.VecPhysical // the table's halves
}

func newRough(take func() reg.VecPhysical) rough {
	r := rough{take(), take(), [2]reg.VecPhysical{take(), take()}, [2]reg.VecPhysical{take(), take()}}
	VBROADCASTSS(constants[tableEnd], r.end)
	VBROADCASTSS(constants[tableSteps], r.steps)
	for i := range 2 {
		VMOVUPS(offsets.Offset(i*lanes*4), r.offset[i])
		VMOVUPS(slopes.Offset(i*lanes*4), r.slope[i])
	}
	return r
}

// siluOf replaces every x by its rough SiLU. NaN stays, by the last multiplication.
func (r *rough) siluOf(xs []reg.Register, ws []work) {
	ws = ws[:len(xs)]
	each := func(f func(x reg.Register, w work)) {
		for i, w := range ws {
			f(xs[i], w)
		}
	}
	const nearerToZero = 2 // with the sign of x
	each(func(x reg.Register, w work) { VRANGEPS(Imm(nearerToZero), r.end, x, w.t) })
	each(func(_ reg.Register, w work) { VADDPS_RD_SAE(r.steps, w.t, w.r) })
	each(func(_ reg.Register, w work) { VMOVAPS(w.r, w.p) })
	each(func(_ reg.Register, w work) { VPERMI2PS(r.slope[1], r.slope[0], w.r) })
	each(func(_ reg.Register, w work) { VPERMI2PS(r.offset[1], r.offset[0], w.p) })
	each(func(_ reg.Register, w work) { VFMADD231PS(w.t, w.r, w.p) })
	each(func(x reg.Register, w work) { VMULPS(w.p, x, x) })
}
