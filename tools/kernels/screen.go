package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// extent: the greatest and the least value of each lane, and its sum of squares.
func (s isa) extent() {
	TEXT("extent"+s.name, NOSPLIT, "func(out, x *float32, n int)")
	Pragma("noescape")
	Doc("extent" + s.name + " writes the maximum, the minimum and the sum of squares of each of 16 lanes of x, n×16, to out; n > 0.")
	out, x, n := Load(Param("out"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	for i := range s.parts {
		loop := "extent" + s.name + string(rune('a'+i))
		at, count := GP64(), GP64()
		LEAQ(Mem{Base: x, Disp: i * s.bytes}, at)
		MOVQ(n, count)
		top, low, sum, odd := s.vec(), s.vec(), s.vec(), s.vec()
		VMOVUPS(Mem{Base: at}, top)
		VMOVUPS(Mem{Base: at}, low)
		s.zero(tile{sum})
		s.zero(tile{odd})
		step := func(disp int, sum reg.Register) {
			v := s.vec()
			VMOVUPS(Mem{Base: at, Disp: disp}, v)
			VMAXPS(v, top, top)
			VMINPS(v, low, low)
			VFMADD231PS(v, v, sum)
		}
		Comment("two sums, which do not wait for each other; the second begins with an odd value")
		SHRQ(Imm(1), count)
		JCC(LabelRef(loop + "even"))
		step(0, odd)
		ADDQ(Imm(lanes*4), at)
		Label(loop + "even")
		TESTQ(count, count)
		JZ(LabelRef(loop + "end"))
		Label(loop)
		step(0, sum)
		step(lanes*4, odd)
		ADDQ(Imm(2*lanes*4), at)
		DECQ(count)
		JNZ(LabelRef(loop))
		Label(loop + "end")
		VADDPS(odd, sum, sum)
		for j, r := range []reg.Register{top, low, sum} {
			VMOVUPS(r, Mem{Base: out, Disp: j*lanes*4 + i*s.bytes})
		}
	}
	VZEROUPPER()
	RET()
}

// weigh is mix that also tells how far the gates lie apart: it replaces the gates
// by exp(gate − max gate), sums them with the logits, and then the squares.
func (s isa) weigh() {
	TEXT("weigh"+s.name, NOSPLIT, "func(out, logits, gates *float32, n int)")
	Pragma("noescape")
	Doc("weigh" + s.name + " writes the mean φ = Σ_l π_l · logits_l, π = softmax(gates), and Σ_l (π_l · (logits_l − φ))² of each of 16 lanes to out; it overwrites the gates. n > 0.")
	out, logits, gates := Load(Param("out"), GP64()), Load(Param("logits"), GP64()), Load(Param("gates"), GP64())
	n := Load(Param("n"), GP64())
	for i := range s.parts {
		s.weighPart("weigh"+s.name+string(rune('a'+i)), out, logits, gates, n, i*s.bytes)
	}
	VZEROUPPER()
	RET()
}

func (s isa) weighPart(loop string, out, logits, gates, n reg.Register, disp int) {
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
	sum, acc, zero, check := s.vec(), s.vec(), s.vec(), s.vec()
	for _, r := range []reg.Register{sum, acc, zero, check} {
		s.zero(tile{r})
	}
	begin := func() {
		LEAQ(Mem{Base: gates, Disp: disp}, g)
		LEAQ(Mem{Base: logits, Disp: disp}, l)
		MOVQ(n, count)
	}
	step := func(label string) {
		ADDQ(Imm(lanes*4), g)
		ADDQ(Imm(lanes*4), l)
		DECQ(count)
		JNZ(LabelRef(label))
	}
	begin()
	Label(loop + "sum")
	e := s.vec()
	VMOVUPS(Mem{Base: g}, e)
	VSUBPS(top, e, e)
	VFMADD231PS(zero, e, check) // NaN from what is not finite: 2^−Inf is 0
	s.withConstant(math.Log2E, VMULPS, VMULPS_BCST, e, e)
	if s.parts == 2 {
		VMAXPS(constants[-clamp], e, e)
	}
	s.exp2(e, s.vec(), s.vec())
	VMOVUPS(e, Mem{Base: g})
	VADDPS(e, sum, sum)
	VFMADD231PS(Mem{Base: l}, e, acc)
	step(loop + "sum")
	VADDPS(check, sum, sum)
	VDIVPS(sum, acc, acc)
	VMOVUPS(acc, Mem{Base: out, Disp: disp})
	squares := s.vec()
	s.zero(tile{squares})
	begin()
	Label(loop + "squares")
	d := s.vec()
	VMOVUPS(Mem{Base: l}, d)
	VSUBPS(acc, d, d)
	VMULPS(Mem{Base: g}, d, d)
	VFMADD231PS(d, d, squares)
	step(loop + "squares")
	VDIVPS(sum, squares, squares)
	VDIVPS(sum, squares, squares)
	VMOVUPS(squares, Mem{Base: out, Disp: lanes*4 + disp})
}
