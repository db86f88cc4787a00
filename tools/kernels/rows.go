package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dot4: inner products of u with four rows.
func (s isa) dot4() {
	TEXT("dot4"+s.name, NOSPLIT, "func(dst, u, r0, r1, r2, r3 *float32, n int)")
	Pragma("noescape")
	Doc("dot4" + s.name + " writes the inner products of u with four rows of n numbers to dst.")
	u := Load(Param("u"), GP64())
	rows := make([]reg.Register, 4)
	for i := range rows {
		rows[i] = Load(Param("r"+string(rune('0'+i))), GP64())
	}
	n := Load(Param("n"), GP64())
	acc := make([][2]reg.Register, 4)
	for i := range acc {
		for j := range acc[i] {
			acc[i][j] = s.vec()
			s.zero(tile{acc[i][j]})
		}
	}
	step := s.bytes / 4
	at := GP64()
	XORQ(at, at)
	two, one, tail := "dot4"+s.name+"two", "dot4"+s.name+"one", "dot4"+s.name+"tail"
	Label(two)
	CMPQ(n, Imm(uint64(2*step)))
	JL(LabelRef(one))
	for j := range 2 {
		x := s.vec()
		VMOVUPS(Mem{Base: u, Index: at, Scale: 1, Disp: j * s.bytes}, x)
		for i, r := range rows {
			VFMADD231PS(Mem{Base: r, Index: at, Scale: 1, Disp: j * s.bytes}, x, acc[i][j])
		}
	}
	ADDQ(I32(2*s.bytes), at)
	SUBQ(Imm(uint64(2*step)), n)
	JMP(LabelRef(two))
	Label(one)
	CMPQ(n, Imm(uint64(step)))
	JL(LabelRef(tail))
	x := s.vec()
	VMOVUPS(Mem{Base: u, Index: at, Scale: 1}, x)
	for i, r := range rows {
		VFMADD231PS(Mem{Base: r, Index: at, Scale: 1}, x, acc[i][0])
	}
	ADDQ(Imm(uint64(s.bytes)), at)
	SUBQ(Imm(uint64(step)), n)
	JMP(LabelRef(one))
	Label(tail)
	sums := make([]reg.VecVirtual, 4)
	for i := range acc {
		VADDPS(acc[i][1], acc[i][0], acc[i][0])
		sums[i] = s.horizontal(acc[i][0])
	}
	tl, end := "dot4"+s.name+"tloop", "dot4"+s.name+"end"
	Label(tl)
	TESTQ(n, n)
	JZ(LabelRef(end))
	v := XMM()
	VMOVSS(Mem{Base: u, Index: at, Scale: 1}, v)
	for i, r := range rows {
		VFMADD231SS(Mem{Base: r, Index: at, Scale: 1}, v, sums[i])
	}
	ADDQ(Imm(4), at)
	DECQ(n)
	JMP(LabelRef(tl))
	Label(end)
	dst := Load(Param("dst"), GP64())
	for i, x := range sums {
		VMOVSS(x, Mem{Base: dst, Disp: i * 4})
	}
	VZEROUPPER()
	RET()
}

func (s isa) horizontal(r reg.Register) reg.VecVirtual {
	x, t := XMM(), XMM()
	if s.parts == 1 {
		y := YMM()
		VEXTRACTF64X4(Imm(1), r, y)
		VADDPS(y, r.(reg.VecVirtual).AsY(), y)
		VEXTRACTF128(Imm(1), y, x)
		VADDPS(x, y.AsX(), x)
	} else {
		VEXTRACTF128(Imm(1), r, x)
		VADDPS(x, r.(reg.VecVirtual).AsX(), x)
	}
	VMOVHLPS(x, x, t)
	VADDPS(t, x, x)
	VMOVSHDUP(x, t)
	VADDSS(t, x, x)
	return x
}
