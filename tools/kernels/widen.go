package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// widen: words of 16 lanes become the values that they hold, a tile each.
func (s isa) widen() {
	s.widenLoop("BFloat16", 2, "two bfloat16", func(word, value reg.Register, part, i int) {
		switch {
		case i == 0:
			VPSLLD(Imm(16), word, value)
		case s.parts == 1:
			VPANDD_BCST(upper, word, value)
		default:
			VPSRLD(Imm(16), word, value)
			VPSLLD(Imm(16), value, value)
		}
	})
	// Every processor with AVX2 has F16C.
	s.widenLoop("Float16", 2, "two float16", func(word, value reg.Register, part, i int) {
		if s.parts == 1 {
			half := YMM()
			if i == 1 {
				VPSRLD(Imm(16), word, value)
				word = value
			}
			VPMOVDW(word, half)
			VCVTPH2PS(half, value)
			return
		}
		if i == 0 {
			VPSLLD(Imm(16), word, value)
			word = value
		}
		VPSRLD(Imm(16), word, value)
		VPACKUSDW(value, value, value) // of each half twice
		VPERMQ(Imm(8), value, value)
		VCVTPH2PS(value.(reg.Vec).AsX(), value)
	})
	scales := make(tile, s.parts)
	s.widenLoop("Int8", 4, "four int8, each times the lane's scale", func(word, value reg.Register, part, i int) {
		if i < 3 {
			VPSLLD(Imm(uint64(24-8*i)), word, value)
			VPSRAD(Imm(24), value, value)
		} else {
			VPSRAD(Imm(24), word, value)
		}
		VCVTDQ2PS(value, value)
		VMULPS(scales[part], value, value)
	}, scales)
}

// widenLoop iterates over n words of 16 lanes and turns each word into values tiles.
// one computes value i from a register of words.
func (s isa) widenLoop(name string, values int, what string, one func(word, value reg.Register, part, i int), scales ...tile) {
	params, doc := "dst *float32, src *uint32, n int", ""
	if scales != nil {
		params, doc = "dst *float32, src, scales *uint32, n int", " scales are float32 bits."
	}
	TEXT("widen"+name+s.name, NOSPLIT, "func("+params+")")
	Pragma("noescape")
	Doc("widen" + name + s.name + " writes the values of n words of 16 lanes, " + what + ", to dst." + doc)
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	if scales != nil {
		base := Load(Param("scales"), GP64())
		copy(scales[0], s.load(base, 0))
	}
	loop, end := "widen"+name+s.name+"loop", "widen"+name+s.name+"end"
	Label(loop)
	TESTQ(n, n)
	JZ(LabelRef(end))
	for part, word := range s.load(src, 0) {
		for i := range values {
			value := s.vec()
			one(word, value, part, i)
			VMOVUPS(value, Mem{Base: dst, Disp: i*lanes*4 + part*s.bytes})
		}
	}
	ADDQ(I32(int32(values*lanes*4)), dst)
	ADDQ(Imm(lanes*4), src)
	DECQ(n)
	JMP(LabelRef(loop))
	Label(end)
	VZEROUPPER()
	RET()
}
