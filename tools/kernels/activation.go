package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The exponential is 2^t = 2ⁿ·2^r, n the nearest integer to t and |r| ≤ ½, where
// 1 + r·poly(r) is 2^r within a relative error of 9.2e-8 (fitted for the least
// greatest error, the constant term held at 1).
var poly = []float32{0.001326472731307149, 0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653}

// clamp keeps 2^t and its reciprocal normal numbers.
const clamp = 125

// constants are float32 numbers in the data section, eight times each: an
// operand for AVX2 whole, for AVX-512 broadcast from the first.
var constants = map[float32]Mem{}

// signs and upper are patterns of bits: of four bytes the signs, of a pair of
// bfloat16 the second.
var signs, upper Mem

func data() {
	for i, v := range append([]float32{1, clamp, -clamp, math.Log2E, -math.Log2E}, poly...) {
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
}

// withConstant applies an instruction whose first operand is a constant.
func (s isa) withConstant(v float32, whole, broadcast func(ops ...Op), ops ...Op) {
	all := append([]Op{constants[v]}, ops...)
	if s.parts == 1 {
		broadcast(all...)
	} else {
		whole(all...)
	}
}

// exp2 replaces every t by 2^t; it needs two more registers. AVX-512 takes any t
// up to clamp, and −Inf; AVX2 needs |t| ≤ clamp.
func (s isa) exp2(t, r, p reg.Register) {
	if s.parts == 1 {
		VREDUCEPS(Imm(8), t, r) // t less the nearest integer
		VSUBPS(r, t, t)
	} else {
		VMOVUPS(t, r)
		VROUNDPS(Imm(0), t, t)
		VSUBPS(t, r, r)
	}
	if s.parts == 1 {
		VBROADCASTSS(constants[poly[0]], p)
	} else {
		VMOVUPS(constants[poly[0]], p)
	}
	for _, a := range append(poly[1:len(poly):len(poly)], 1) {
		s.withConstant(a, VFMADD213PS, VFMADD213PS_BCST, r, p)
	}
	if s.parts == 1 {
		VSCALEFPS(t, p, t)
		return
	}
	VCVTPS2DQ(t, t)
	VPSLLD(Imm(23), t, t)
	VPADDD(p, t, t)
}

// siluOf replaces every x by x / (1 + e^−x). NaN stays, by the last
// multiplication or division.
func (s isa) siluOf(x reg.Register, temps [3]reg.Register) {
	t, r, p := temps[0], temps[1], temps[2]
	s.withConstant(-math.Log2E, VMULPS, VMULPS_BCST, x, t)
	s.withConstant(clamp, VMINPS, VMINPS_BCST, t, t)
	if s.parts == 2 {
		VMAXPS(constants[-clamp], t, t)
	}
	s.exp2(t, r, p)
	s.withConstant(1, VADDPS, VADDPS_BCST, t, t)
	if s.parts == 2 {
		VDIVPS(t, x, x)
		return
	}
	VRCP14PS(t, r)                                           // 14 bits, and
	s.withConstant(1, VFNMADD213PS, VFNMADD213PS_BCST, r, t) // a step of Newton's: r += r·(1 − t·r)
	VFMADD231PS(t, r, r)
	VMULPS(r, x, x)
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
		s.siluOf(v, [3]reg.Register{s.vec(), s.vec(), s.vec()})
		VMOVUPS(v, Mem{Base: x, Disp: i * s.bytes})
	}
	ADDQ(Imm(lanes*4), x)
	DECQ(n)
	JMP(LabelRef(loop))
	Label(end)
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

func (s isa) mixPart(loop string, out, logits, gates, n reg.Register, disp int) {
	g, l, count := GP64(), GP64(), GP64()
	top := s.vec()
	VMOVUPS(Mem{Base: gates, Disp: disp}, top)
	LEAQ(Mem{Base: gates, Disp: disp}, g)
	MOVQ(n, count)
	Label(loop + "max")
	VMAXPS(Mem{Base: g}, top, top)
	ADDQ(Imm(lanes*4), g)
	DECQ(count)
	JNZ(LabelRef(loop + "max"))
	sum, acc, zero := s.vec(), s.vec(), s.vec()
	s.zero(tile{sum})
	s.zero(tile{acc})
	s.zero(tile{zero})
	LEAQ(Mem{Base: gates, Disp: disp}, g)
	LEAQ(Mem{Base: logits, Disp: disp}, l)
	MOVQ(n, count)
	Label(loop + "sum")
	e := s.vec()
	VMOVUPS(Mem{Base: g}, e)
	VSUBPS(top, e, e)
	VFMADD231PS(zero, e, sum) // NaN from what is not finite: 2^−Inf is 0
	s.withConstant(math.Log2E, VMULPS, VMULPS_BCST, e, e)
	if s.parts == 2 {
		VMAXPS(constants[-clamp], e, e)
	}
	s.exp2(e, s.vec(), s.vec())
	VADDPS(e, sum, sum)
	VFMADD231PS(Mem{Base: l}, e, acc)
	ADDQ(Imm(lanes*4), g)
	ADDQ(Imm(lanes*4), l)
	DECQ(count)
	JNZ(LabelRef(loop + "sum"))
	VDIVPS(sum, acc, acc)
	VMOVUPS(acc, Mem{Base: out, Disp: disp})
}
