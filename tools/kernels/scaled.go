package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addScaled: products of tiles are added to scores, as float32 or as int32 that each lane's scale makes a number of.
func (s isa) addScaled(ints bool) {
	name, params, place := "addScaled"+s.name, "func(dst, c *float32, step int, factor float32, n int)", 24
	doc := " adds factor·c to dst for each of 16 lanes of n tiles, whose products lie step bytes apart; NaN if what it adds is not finite."
	if ints {
		name, params, place = "addInt8"+s.name, "func(dst *float32, c *int32, step int, scales *uint32, scaleStep int, factor float32, n int)", 40
		doc = " adds factor·c·scale to dst for each of 16 lanes of n tiles, whose products lie step bytes apart and their scales scaleStep; NaN if what it adds is not finite."
	}
	TEXT(name, NOSPLIT, params)
	Pragma("noescape")
	Doc(name + doc)
	dst, c, step := Load(Param("dst"), GP64()), Load(Param("c"), GP64()), Load(Param("step"), GP64())
	var scales, scaleStep reg.Register
	if ints {
		scales, scaleStep = Load(Param("scales"), GP64()), Load(Param("scaleStep"), GP64())
	}
	factor, n := s.broadcast(NewParamAddr("factor", place)), Load(Param("n"), GP64())
	loop, end := name+"loop", name+"end"
	Label(loop)
	TESTQ(n, n)
	JZ(LabelRef(end))
	for i := range s.parts {
		x, rest := s.vec(), s.vec()
		at := func(base reg.Register) Mem { return Mem{Base: base, Disp: i * s.bytes} }
		if ints {
			VCVTDQ2PS(at(c), x)
			VMULPS(factor, x, x)
			VMULPS(at(scales), x, x)
		} else {
			VMULPS(at(c), factor, x)
		}
		VSUBPS(x, x, rest)
		VADDPS(rest, x, x)
		VADDPS(at(dst), x, x)
		VMOVUPS(x, at(dst))
	}
	ADDQ(Imm(lanes*4), dst)
	ADDQ(step, c)
	if ints {
		ADDQ(scaleStep, scales)
	}
	DECQ(n)
	JMP(LabelRef(loop))
	Label(end)
	VZEROUPPER()
	RET()
}

// largestInt8: the largest of int32 products of some blocks, each a float32 once its block's scale is known.
func (s isa) largestInt8() {
	const params = "func(out *float32, c *int32, step, rows int, scales *uint32, blocks int, factor, off float32)"
	name := "largestInt8" + s.name
	TEXT(name, NOSPLIT, params)
	Pragma("noescape")
	Doc(name+" writes off plus the largest factor·c·scale of each of 16 lanes to out; NaN if one is not finite. A block has so many rows of c,",
		"and its scales; blocks of c lie step bytes apart. rows and blocks are positive.")
	out, step, rows := Load(Param("out"), GP64()), Load(Param("step"), GP64()), Load(Param("rows"), GP64())
	factor, off := s.broadcast(NewParamAddr("factor", 48)), s.broadcast(NewParamAddr("off", 52))
	for i := range s.parts {
		label := name + string(rune('a'+i))
		c, scales, blocks := Load(Param("c"), GP64()), Load(Param("scales"), GP64()), Load(Param("blocks"), GP64())
		at := func(base reg.Register) Mem { return Mem{Base: base, Disp: i * s.bytes} }
		top, check := s.broadcast(lowest), s.zeros(1)[0]
		Label(label + "block")
		largest, row, left := s.vec(), GP64(), GP64()
		VMOVUPS(at(c), largest)
		MOVQ(c, row)
		MOVQ(rows, left)
		Label(label + "row")
		VPMAXSD(at(row), largest, largest)
		ADDQ(Imm(lanes*4), row)
		DECQ(left)
		JNZ(LabelRef(label + "row"))
		x, rest := s.vec(), s.vec()
		VCVTDQ2PS(largest, x)
		VMULPS(factor, x, x)
		VMULPS(at(scales), x, x)
		VSUBPS(x, x, rest)
		VADDPS(rest, check, check)
		VMAXPS(x, top, top)
		ADDQ(step, c)
		ADDQ(Imm(lanes*4), scales)
		DECQ(blocks)
		JNZ(LabelRef(label + "block"))
		VADDPS(check, top, top)
		VADDPS(off, top, top)
		VMOVUPS(top, at(out))
	}
	VZEROUPPER()
	RET()
}
