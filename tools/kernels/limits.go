package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// chains is the number of sums that do not wait for each other: more than the
// latency of a multiply-add times the units that compute it.
const chains = 12

// fma: the processor's peak.
func (s isa) fma() {
	TEXT("fma"+s.name, NOSPLIT, "func(out *float32, n int)")
	Pragma("noescape")
	Doc("fma" + s.name + " computes n rounds of multiply-adds that do not wait for each other, and writes something of the result to out.")
	out, n := Load(Param("out"), GP64()), Load(Param("n"), GP64())
	x := s.broadcast(constants[clamp])
	acc := make([]reg.Register, chains)
	for i := range acc {
		acc[i] = s.vec()
		s.zero(tile{acc[i]})
	}
	label := "fma" + s.name + "loop"
	Label(label)
	for _, a := range acc {
		VFMADD231PS(x, x, a)
	}
	DECQ(n)
	JNZ(LabelRef(label))
	for _, a := range acc[1:] {
		VADDPS(a, acc[0], acc[0])
	}
	sum := s.horizontal(acc[0])
	VMOVSS(sum, Mem{Base: out})
	VZEROUPPER()
	RET()
}

// read: the memory's speed.
func (s isa) read() {
	TEXT("read"+s.name, NOSPLIT, "func(out, v *float32, n int)")
	Pragma("noescape")
	Doc("read" + s.name + " writes the sum of the n·128 numbers v to out.")
	out, v, n := Load(Param("out"), GP64()), Load(Param("v"), GP64()), Load(Param("n"), GP64())
	acc := make([]reg.Register, 8)
	for i := range acc {
		acc[i] = s.vec()
		s.zero(tile{acc[i]})
	}
	label := "read" + s.name + "loop"
	Label(label)
	for i := range 8 * s.parts {
		VADDPS(Mem{Base: v, Disp: i * s.bytes}, acc[i%8], acc[i%8])
	}
	ADDQ(U32(512), v)
	DECQ(n)
	JNZ(LabelRef(label))
	for _, a := range acc[1:] {
		VADDPS(a, acc[0], acc[0])
	}
	sum := s.horizontal(acc[0])
	VMOVSS(sum, Mem{Base: out})
	VZEROUPPER()
	RET()
}
