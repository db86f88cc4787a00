package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose: eight rows become eight lanes of a tile.
func transpose() {
	TEXT("transpose8", NOSPLIT, "func(dst, r0, r1, r2, r3, r4, r5, r6, r7 *float32, n int)")
	Pragma("noescape")
	Doc("transpose8 writes column c of eight rows of n numbers to dst[c·16 : c·16+8]; n is a multiple of 8. It needs AVX.")
	dst := Load(Param("dst"), GP64())
	rows := make([]reg.Register, 8)
	for i := range rows {
		rows[i] = Load(Param("r"+string(rune('0'+i))), GP64())
	}
	transposeLoop("t", dst, rows, Load(Param("n"), GP64()))
	VZEROUPPER()
	RET()
}

// gather: sixteen rows of a matrix become the lanes of a tile.
func gather() {
	TEXT("gather16", NOSPLIT, "func(dst, m *float32, rows *int32, stride, n int)")
	Pragma("noescape")
	Doc("gather16 writes column c of the sixteen rows, stride bytes apart in m, to dst[c·16 : c·16+16]; n is a multiple of 8. It needs AVX.")
	for half := range 2 {
		numbers, m, stride := Load(Param("rows"), GP64()), Load(Param("m"), GP64()), Load(Param("stride"), GP64())
		rows := make([]reg.Register, 8)
		for i := range rows {
			r := GP64()
			MOVLQSX(Mem{Base: numbers, Disp: (8*half + i) * 4}, r)
			IMULQ(stride, r)
			ADDQ(m, r)
			rows[i] = r
		}
		dst, n := Load(Param("dst"), GP64()), Load(Param("n"), GP64())
		ADDQ(Imm(uint64(32*half)), dst)
		transposeLoop("g"+string(rune('0'+half)), dst, rows, n)
	}
	VZEROUPPER()
	RET()
}

// spread: eight rows become eight numbers of each column, columns far apart.
func spread() {
	TEXT("spread8", NOSPLIT, "func(dst *float32, stride int, src *float32, rowStride, n int)")
	Pragma("noescape")
	Doc("spread8 writes column c of eight rows, rowStride bytes apart in src, to eight numbers at dst, columns stride bytes apart;",
		"n, the columns, is a multiple of 8. It needs AVX.")
	dst, src, between := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("rowStride"), GP64())
	rows := []reg.Register{src}
	for i := range 7 {
		rows = append(rows, GP64())
		LEAQ(Mem{Base: rows[i], Index: between, Scale: 1}, rows[i+1])
	}
	stride := Load(Param("stride"), GP64())
	transposeTo("s", rows, Load(Param("n"), GP64()), func(_ int, o reg.Register) {
		VMOVUPS(o, Mem{Base: dst})
		ADDQ(stride, dst)
	}, func() {})
	VZEROUPPER()
	RET()
}

func transposeLoop(label string, dst reg.Register, rows []reg.Register, n reg.Register) {
	transposeTo(label, rows, n, func(c int, o reg.Register) {
		VMOVUPS(o, Mem{Base: dst, Disp: c * lanes * 4})
	}, func() { ADDQ(I32(8*lanes*4), dst) })
}

// transposeTo has store store one column after the other; step follows on eight.
func transposeTo(label string, rows []reg.Register, n reg.Register, store func(c int, o reg.Register), step func()) {
	at := GP64()
	XORQ(at, at)
	Label(label + "loop")
	CMPQ(n, Imm(8))
	JL(LabelRef(label + "end"))
	// Load halves so that after unpack and shuffle no lane crossing is left.
	v := []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7} // the first sixteen, as AVX has no more
	for i := range 4 {
		VMOVUPS(Mem{Base: rows[i], Index: at, Scale: 1}, v[i].AsX())
		VINSERTF128(Imm(1), Mem{Base: rows[i+4], Index: at, Scale: 1}, v[i], v[i])
		VMOVUPS(Mem{Base: rows[i], Index: at, Scale: 1, Disp: 16}, v[i+4].AsX())
		VINSERTF128(Imm(1), Mem{Base: rows[i+4], Index: at, Scale: 1, Disp: 16}, v[i+4], v[i+4])
	}
	for h := range 2 {
		a, b, c, d := v[4*h], v[4*h+1], v[4*h+2], v[4*h+3]
		lo0, hi0, lo1, hi1 := reg.Y8, reg.Y9, reg.Y10, reg.Y11
		VUNPCKLPS(b, a, lo0)
		VUNPCKHPS(b, a, hi0)
		VUNPCKLPS(d, c, lo1)
		VUNPCKHPS(d, c, hi1)
		for q, pair := range [][2]reg.VecPhysical{{lo0, lo1}, {hi0, hi1}} {
			for j, imm := range []uint64{0x44, 0xee} {
				o := reg.Y12
				VSHUFPS(Imm(imm), pair[1], pair[0], o)
				store(4*h+2*q+j, o)
			}
		}
	}
	ADDQ(Imm(32), at)
	step()
	SUBQ(Imm(8), n)
	JMP(LabelRef(label + "loop"))
	Label(label + "end")
}

// spread16 works like spread8 on whole cache lines and only four columns. More
// columns, which lie a power of two apart, would evict each other from the cache.
func spread16() {
	TEXT("spread16", NOSPLIT, "func(dst *float32, stride int, src *float32, rowStride, n int)")
	Pragma("noescape")
	Doc("spread16 writes four columns of n rows, rowStride bytes apart in src, to n numbers each at dst, stride bytes apart;",
		"n is a positive multiple of 16. It needs AVX-512.")
	dst, src, between := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("rowStride"), GP64())
	stride, n := Load(Param("stride"), GP64()), Load(Param("n"), GP64())
	thrice, sixteen, last := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: between, Index: between, Scale: 2}, thrice)
	MOVQ(between, sixteen)
	SHLQ(Imm(4), sixteen)
	fours := []reg.Register{src}
	for i := range 3 {
		fours = append(fours, GP64())
		LEAQ(Mem{Base: fours[i], Index: between, Scale: 4}, fours[i+1])
	}
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, last)
	ADDQ(dst, last)
	to := []Mem{{Base: dst}, {Base: dst, Index: stride, Scale: 1}, {Base: dst, Index: stride, Scale: 2}, {Base: last}}
	Label("s16loop")
	var v [4]reg.VecVirtual // rows i, 4+i, 8+i and 12+i of the columns, so that nothing has to cross
	for i, m := range []Mem{{}, {Index: between, Scale: 1}, {Index: between, Scale: 2}, {Index: thrice, Scale: 1}} {
		v[i] = ZMM()
		for q, base := range fours {
			m.Base = base
			if q == 0 {
				VMOVUPS(m, v[i].AsX())
			} else {
				VINSERTF32X4(Imm(uint64(q)), m, v[i], v[i])
			}
		}
	}
	low, high := [2]reg.VecVirtual{ZMM(), ZMM()}, [2]reg.VecVirtual{ZMM(), ZMM()}
	for i := range low {
		VUNPCKLPS(v[2*i+1], v[2*i], low[i])
		VUNPCKHPS(v[2*i+1], v[2*i], high[i])
	}
	for i, pair := range [][2]reg.VecVirtual{low, high} {
		first, second := ZMM(), ZMM()
		VUNPCKLPD(pair[1], pair[0], first)
		VUNPCKHPD(pair[1], pair[0], second)
		VMOVUPS(first, to[2*i])
		VMOVUPS(second, to[2*i+1])
	}
	for _, base := range fours {
		ADDQ(sixteen, base)
	}
	ADDQ(Imm(lanes*4), dst)
	ADDQ(Imm(lanes*4), last)
	SUBQ(Imm(lanes), n)
	JNZ(LabelRef("s16loop"))
	VZEROUPPER()
	RET()
}
