package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// divide: v /= by, over n tiles of 16.
func (s isa) divide() {
	TEXT("divide"+s.name, NOSPLIT, "func(v *float32, by float32, n int)")
	Pragma("noescape")
	Doc("divide" + s.name + " divides each of the n·16 numbers v, n > 0.")
	v, n, divisor := Load(Param("v"), GP64()), GP64(), s.vec()
	VBROADCASTSS(NewParamAddr("by", 8), divisor)
	Load(Param("n"), n)
	loop := "divide" + s.name + "loop"
	Label(loop)
	x := s.load(v, 0)
	for _, r := range x {
		VDIVPS(divisor, r, r)
	}
	s.store(x, v, 0)
	ADDQ(Imm(lanes*4), v)
	DECQ(n)
	JNZ(LabelRef(loop))
	VZEROUPPER()
	RET()
}
