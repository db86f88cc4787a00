package main

import (
	"math"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The exponential is 2^t = 2ⁿ·2^r. Of AVX2, n is the nearest integer to t and |r| ≤ ½, where
// nearPoly(r) is 2^r within a relative error of 9.2e-8 (fitted for the least
// greatest error, the constant term held at 1). Of AVX-512, n is the integer below, which
// VSCALEFPS finds by itself, and 0 ≤ r ≤ 1, where floorPoly(r) is 2^r within 9.1e-8.
var (
	nearPoly  = []float32{0.001326472731307149, 0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653, 1}
	floorPoly = []float32{0.0018775769276544452, 0.008989340625703335, 0.05582631751894951, 0.24015361070632935, 0.6931530833244324, 0.9999999403953552}
)

func (s isa) expPoly() []float32 {
	if s.parts == 1 {
		return floorPoly
	}
	return nearPoly
}

// clamp keeps 2^t and its reciprocal normal numbers.
const clamp = 125

// constants are float32 numbers in the data section, eight times each: an
// operand for AVX2 whole, for AVX-512 broadcast from the first.
var constants = map[float32]Mem{}

// signs and upper are patterns of bits: of four bytes the signs, of a pair of
// bfloat16 the second. interleave is an order of words: of two halves, in turns. lowest is −Inf.
var signs, upper, interleave, lowest Mem

func data() {
	for i, v := range slices.Concat([]float32{1, clamp, -clamp, math.Log2E, -math.Log2E}, nearPoly[:len(nearPoly)-1], floorPoly, []float32{tableEnd, tableSteps}) {
		constants[v] = GLOBL("k"+string(rune('a'+i)), RODATA|NOPTR)
		for j := range 8 {
			DATA(4*j, F32(v))
		}
	}
	signs = GLOBL("ksigns", RODATA|NOPTR)
	DATA(0, U32(0x80808080))
	tailMask = GLOBL("ktail", RODATA|NOPTR)
	for i := range 32 {
		DATA(4*i, U32(^uint32(0)*uint32(1-i/16)))
	}
	upper = GLOBL("kupper", RODATA|NOPTR)
	DATA(0, U32(0xffff0000))
	lowest = GLOBL("klowest", RODATA|NOPTR)
	DATA(0, U32(0xff800000))
	sigmoidTable()
	interleave = GLOBL("kinterleave", RODATA|NOPTR)
	for l := range lanes {
		DATA(4*l, U32(uint32(l)|uint32(l+lanes)<<16))
	}
}

// withConstant applies an instruction whose first operand is a constant: one that
// is held in a register, or the data section's.
func (s isa) withConstant(v float32, whole, broadcast func(ops ...Op), ops ...Op) {
	if r, ok := s.held[v]; ok {
		whole(append([]Op{r}, ops...)...)
		return
	}
	all := append([]Op{constants[v]}, ops...)
	if s.parts == 1 {
		broadcast(all...)
	} else {
		whole(all...)
	}
}

// constant sets a register to a constant.
func (s isa) constant(v float32, to reg.Register) {
	r, ok := s.held[v]
	switch {
	case ok:
		VMOVAPS(r, to)
	case s.parts == 1:
		VBROADCASTSS(constants[v], to)
	default:
		VMOVUPS(constants[v], to)
	}
}

// hold keeps constants in registers.
func (s isa) hold(take func() reg.Register, values ...float32) isa {
	held := map[float32]reg.Register{}
	for _, v := range values {
		r := take()
		s.constant(v, r)
		held[v] = r
	}
	s.held = held
	return s
}

// work is an exponential under way: its argument, which becomes the result, and two
// more registers. Those of several are computed in step: each alone is a chain in
// which every instruction waits for the one before.
type work struct{ t, r, p reg.Register }

// exp2 replaces every t by 2^t, by a polynomial. AVX-512 takes any t up to clamp, and −Inf; AVX2
// needs |t| ≤ clamp.
func (s isa) exp2(poly []float32, ws ...work) {
	each := func(f func(w work)) {
		for _, w := range ws {
			f(w)
		}
	}
	if s.parts == 1 {
		each(func(w work) { VREDUCEPS(Imm(9), w.t, w.r) }) // t less the integer below
	} else {
		each(func(w work) { VMOVUPS(w.t, w.r) })
		each(func(w work) { VROUNDPS(Imm(0), w.t, w.t) })
		each(func(w work) { VSUBPS(w.t, w.r, w.r) })
	}
	each(func(w work) { s.constant(poly[0], w.p) })
	for _, a := range poly[1:] {
		each(func(w work) { s.withConstant(a, VFMADD213PS, VFMADD213PS_BCST, w.r, w.p) })
	}
	if s.parts == 1 {
		each(func(w work) { VSCALEFPS(w.t, w.p, w.t) }) // by 2 to the integer below
		return
	}
	each(func(w work) { VCVTPS2DQ(w.t, w.t) })
	each(func(w work) { VPSLLD(Imm(23), w.t, w.t) })
	each(func(w work) { VPADDD(w.p, w.t, w.t) })
}

// siluOf replaces every x by x / (1 + e^−x), as many as there are registers to work
// with. NaN stays, by the last multiplication or division.
func (s isa) siluOf(xs []reg.Register, ws []work) {
	ws = ws[:len(xs)]
	each := func(f func(x reg.Register, w work)) {
		for i, w := range ws {
			f(xs[i], w)
		}
	}
	each(func(x reg.Register, w work) { s.withConstant(-math.Log2E, VMULPS, VMULPS_BCST, x, w.t) })
	each(func(_ reg.Register, w work) { s.withConstant(clamp, VMINPS, VMINPS_BCST, w.t, w.t) })
	if s.parts == 2 {
		each(func(_ reg.Register, w work) { VMAXPS(constants[-clamp], w.t, w.t) })
	}
	s.exp2(s.expPoly(), ws...)
	each(func(_ reg.Register, w work) { s.withConstant(1, VADDPS, VADDPS_BCST, w.t, w.t) })
	if s.parts == 2 {
		each(func(x reg.Register, w work) { VDIVPS(w.t, x, x) })
		return
	}
	each(func(_ reg.Register, w work) { VRCP14PS(w.t, w.r) }) // 14 bits, and a step of Newton's: r += r·(1 − t·r)
	each(func(_ reg.Register, w work) { s.withConstant(1, VFNMADD213PS, VFNMADD213PS_BCST, w.r, w.t) })
	each(func(_ reg.Register, w work) { VFMADD231PS(w.t, w.r, w.r) })
	each(func(x reg.Register, w work) { VMULPS(w.r, x, x) })
}

// silu: over n tiles of 16.
func (s isa) silu() {
	TEXT("silu"+s.name, NOSPLIT, "func(x *float32, n int)")
	Pragma("noescape")
	Doc("silu" + s.name + " replaces every one of the n·16 numbers x by x·sigmoid(x).")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	loop, end := "silu"+s.name+"loop", "silu"+s.name+"end"
	Label(loop)
	TESTQ(n, n)
	JZ(LabelRef(end))
	for i := range s.parts {
		v := s.load(x, i*s.bytes)[0]
		s.siluOf([]reg.Register{v}, []work{{s.vec(), s.vec(), s.vec()}})
		VMOVUPS(v, Mem{Base: x, Disp: i * s.bytes})
	}
	ADDQ(Imm(lanes*4), x)
	DECQ(n)
	JMP(LabelRef(loop))
	Label(end)
	VZEROUPPER()
	RET()
}

// exp: over n tiles of 16. NaN stays, because VMAXPS returns its second source where one is NaN.
func (s isa) exp() {
	TEXT("exp"+s.name, NOSPLIT, "func(x *float32, n int)")
	Pragma("noescape")
	Doc("exp" + s.name + " replaces every one of the n·16 numbers x ≤ 0 by eˣ; n > 0.")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	s = s.hold(func() reg.Register { return s.vec() }, math.Log2E, -clamp)
	loop := "exp" + s.name + "loop"
	Label(loop)
	for i := range s.parts {
		w := work{s.vec(), s.vec(), s.vec()}
		VMULPS(Mem{Base: x, Disp: i * s.bytes}, s.held[math.Log2E], w.t)
		if s.parts == 2 {
			VMAXPS(w.t, s.held[-clamp], w.t)
		}
		s.exp2(s.expPoly(), w)
		VMOVUPS(w.t, Mem{Base: x, Disp: i * s.bytes})
	}
	ADDQ(Imm(lanes*4), x)
	DECQ(n)
	JNZ(LabelRef(loop))
	VZEROUPPER()
	RET()
}

// mix: out = Σ softmax(gate)·logit, lane by lane.
func (s isa) mix() {
	TEXT("mix"+s.name, NOSPLIT, "func(out, logits, gates *float32, n int)")
	Pragma("noescape")
	Doc("mix" + s.name + " writes Σ_l softmax(gates)_l · logits_l of each of 16 lanes to out; both are n×16, n > 0.")
	out, logits, gates := Load(Param("out"), GP64()), Load(Param("logits"), GP64()), Load(Param("gates"), GP64())
	n := Load(Param("n"), GP64())
	for i := range s.parts {
		s.mixPart("mix"+s.name+string(rune('a'+i)), out, logits, gates, n, i*s.bytes)
	}
	VZEROUPPER()
	RET()
}

func (s isa) mixPart(label string, out, logits, gates, n reg.Register, disp int) {
	s.mean(label, out, logits, gates, n, disp, false)
}

// mean writes the mean of the logits by the exponentials of the gates, and returns it and
// the exponentials' sum; they take the gates' place if they are to be kept.
func (s isa) mean(label string, out, logits, gates, n reg.Register, disp int, keep bool) (mean, total reg.Register) {
	ways := s.ways()
	top := s.greatest(label+"max", gates, n, disp)
	sum, acc, check, zero := s.zeros(ways), s.zeros(ways), s.zeros(ways), s.zeros(1)[0]
	s.inSteps(label+"sum", ways, n, disp, []reg.Register{gates, logits}, func(at []reg.Register, ways int) {
		s.weights(at[0], ways, top, zero, check, func(i int, e reg.Register) {
			if keep {
				VMOVUPS(e, Mem{Base: at[0], Disp: i * lanes * 4})
			}
			VADDPS(e, sum[i], sum[i])
			VFMADD231PS(Mem{Base: at[1], Disp: i * lanes * 4}, e, acc[i])
		})
	})
	for _, v := range append(check, sum[1:]...) {
		VADDPS(v, sum[0], sum[0])
	}
	for _, v := range acc[1:] {
		VADDPS(v, acc[0], acc[0])
	}
	VDIVPS(sum[0], acc[0], acc[0])
	VMOVUPS(acc[0], Mem{Base: out, Disp: disp})
	return acc[0], sum[0]
}

// zeros are n registers of zeros.
func (s isa) zeros(n int) []reg.Register {
	v := make([]reg.Register, n)
	for i := range v {
		v[i] = s.vec()
		s.zero(tile{v[i]})
	}
	return v
}

// greatest is the maximum of each lane.
func (s isa) greatest(label string, x, n reg.Register, disp int) reg.Register {
	top := make([]reg.Register, s.ways())
	for i := range top {
		top[i] = s.vec()
		VMOVUPS(Mem{Base: x, Disp: disp}, top[i])
	}
	s.inSteps(label, len(top), n, disp, []reg.Register{x}, func(at []reg.Register, ways int) {
		for i := range ways {
			VMAXPS(Mem{Base: at[0], Disp: i * lanes * 4}, top[i], top[i])
		}
	})
	for _, t := range top[1:] {
		VMAXPS(t, top[0], top[0])
	}
	return top[0]
}

// ways are the sums that do not wait for each other, where AVX2 has few registers.
func (s isa) ways() int { return 4 / s.parts }

// weights computes exp(gate − top) of some gates and passes each on. check becomes NaN
// if a gate is not finite, because for such a gate 2^−Inf would give 0.
func (s isa) weights(gates reg.Register, ways int, top, zero reg.Register, check []reg.Register, use func(i int, e reg.Register)) {
	ws := make([]work, ways)
	for i := range ws {
		ws[i] = work{s.vec(), s.vec(), s.vec()}
		VMOVUPS(Mem{Base: gates, Disp: i * lanes * 4}, ws[i].t)
		VSUBPS(top, ws[i].t, ws[i].t)
		VFMADD231PS(zero, ws[i].t, check[i])
		s.withConstant(math.Log2E, VMULPS, VMULPS_BCST, ws[i].t, ws[i].t)
		if s.parts == 2 {
			VMAXPS(constants[-clamp], ws[i].t, ws[i].t)
		}
	}
	s.exp2(s.expPoly(), ws...)
	for i, w := range ws {
		use(i, w.t)
	}
}

// inSteps emits a loop over n vectors of 16 lanes. It calls step for one vector at a time until the rest of n is a
// multiple of ways (2 or 4), and then for that many at a time. at holds copies of the pointers in from, moved by disp
// bytes, that advance with the loop; from stays as it is.
func (s isa) inSteps(label string, ways int, n reg.Register, disp int, from []reg.Register, step func(at []reg.Register, ways int)) {
	at, count := make([]reg.Register, len(from)), GP64()
	for i, p := range from {
		at[i] = GP64()
		LEAQ(Mem{Base: p, Disp: disp}, at[i])
	}
	loop := func(label string, ways int) {
		JZ(LabelRef(label + "end"))
		Label(label)
		step(at, ways)
		for _, p := range at {
			ADDQ(U32(ways*lanes*4), p)
		}
		DECQ(count)
		JNZ(LabelRef(label))
		Label(label + "end")
	}
	MOVQ(n, count)
	ANDQ(Imm(uint64(ways-1)), count)
	loop(label+"one", 1)
	MOVQ(n, count)
	SHRQ(Imm(map[int]uint64{2: 1, 4: 2}[ways]), count)
	loop(label, ways)
}
