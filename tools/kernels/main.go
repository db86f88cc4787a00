// Command kernels generates the assembly of rerank/kernel. Every function exists
// for AVX-512 and for AVX2 with FMA; the loops are written once, over tiles that
// are one 512-bit register or two 256-bit ones.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanes is the number of candidates in a tile.
const lanes = 16

// tile is one value for each lane: one ZMM register or two YMM registers.
type tile []reg.Register

type isa struct {
	name  string
	parts int // registers a tile
	bytes int // bytes a register
	rows  int // rows of a matrix that gemm keeps in registers
	vec   func() reg.Register
}

var (
	avx512 = isa{name: "AVX512", parts: 1, bytes: 64, rows: 8, vec: func() reg.Register { return ZMM() }}
	avx2   = isa{name: "AVX2", parts: 2, bytes: 32, rows: 4, vec: func() reg.Register { return YMM() }}
)

func (s isa) tile() tile {
	t := make(tile, s.parts)
	for i := range t {
		t[i] = s.vec()
	}
	return t
}

func (s isa) load(base reg.Register, disp int) tile {
	t := s.tile()
	s.loadTo(t, base, disp)
	return t
}

func (s isa) loadTo(t tile, base reg.Register, disp int) {
	for i, r := range t {
		VMOVUPS(Mem{Base: base, Disp: disp + i*s.bytes}, r)
	}
}

func (s isa) store(t tile, base reg.Register, disp int) {
	for i, r := range t {
		VMOVUPS(r, Mem{Base: base, Disp: disp + i*s.bytes})
	}
}

func (s isa) zero(t tile) {
	for _, r := range t {
		if s.parts == 1 {
			VPXORD(r, r, r)
		} else {
			VXORPS(r, r, r)
		}
	}
}

func (s isa) broadcast(m Op) reg.Register {
	r := s.vec()
	VBROADCASTSS(m, r)
	return r
}

// constants are the float32 numbers in the data section; exponentBias is an integer.
var (
	constants    = map[float32]Mem{}
	exponentBias Mem
)

// constant broadcasts a float32 that lies in the data section.
func (s isa) constant(v float32) reg.Register { return s.broadcast(constants[v]) }

// Coefficients of exp(r) on |r| ≤ ln 2 / 2 (Cephes, expf): the relative error of the whole is below 2e-7.
var poly = []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

const (
	expLow, expHigh = -87.33654, 88.02969
	log2e           = 1.44269504088896341
	ln2Hi, ln2Lo    = 0.693359375, -2.12194440e-4
)

func data() {
	for i, v := range append([]float32{expLow, expHigh, log2e, ln2Hi, ln2Lo, 1}, poly...) {
		constants[v] = GLOBL("k"+string(rune('a'+i)), RODATA|NOPTR)
		DATA(0, F32(v))
	}
	exponentBias = GLOBL("kbias", RODATA|NOPTR)
	DATA(0, U32(127))
}

// exp replaces every x of a register by e^x, x clamped to [expLow, expHigh]: x =
// n·ln 2 + r, a polynomial in r, times 2ⁿ. A NaN stays one: it is the operand
// that min and max return.
func (s isa) exp(x reg.Register) {
	n, square, p := s.vec(), s.vec(), s.vec()
	VMAXPS(x, s.constant(expLow), x)
	VMINPS(x, s.constant(expHigh), x)
	VMULPS(s.constant(log2e), x, n)
	if s.parts == 1 {
		VRNDSCALEPS(Imm(0), n, n)
	} else {
		VROUNDPS(Imm(0), n, n)
	}
	VFNMADD231PS(s.constant(ln2Hi), n, x)
	VFNMADD231PS(s.constant(ln2Lo), n, x)
	VMOVUPS(s.constant(poly[0]), p)
	for _, a := range poly[1:] {
		VFMADD213PS(s.constant(a), x, p)
	}
	VMULPS(x, x, square)
	VFMADD213PS(x, square, p) // p·r² + r
	VADDPS(s.constant(1), p, p)
	VCVTPS2DQ(n, n)
	bias := s.vec()
	VPBROADCASTD(exponentBias, bias)
	VPADDD(bias, n, n)
	VPSLLD(Imm(23), n, n)
	VMULPS(n, p, x)
}

// gemm: c[m][16] += a·b, a packed in panels of four rows, [m/4][k][4], b is [k][16].
func (s isa) gemm() {
	TEXT("gemm"+s.name, NOSPLIT, "func(c, a, b *float32, m, k int)")
	Pragma("noescape")
	Doc("gemm" + s.name + " adds a·b to c: c is m×16, a is m×k packed in panels of four rows, b is k×16; m is a multiple of 4.")
	c, a, b := Load(Param("c"), GP64()), Load(Param("a"), GP64()), Load(Param("b"), GP64())
	m, k := Load(Param("m"), GP64()), Load(Param("k"), GP64())
	panel := GP64()
	MOVQ(k, panel)
	SHLQ(Imm(4), panel) // bytes of a panel
	for rows := s.rows; rows >= 4; rows /= 2 {
		loop, done := s.name+"rows"+string(rune('0'+rows)), s.name+"done"+string(rune('0'+rows))
		Label(loop)
		CMPQ(m, Imm(uint64(rows)))
		JL(LabelRef(done))
		s.block(rows, c, a, b, k, panel)
		ADDQ(I32(rows*lanes*4), c)
		for range rows / 4 {
			ADDQ(panel, a)
		}
		SUBQ(Imm(uint64(rows)), m)
		JMP(LabelRef(loop))
		Label(done)
	}
	VZEROUPPER()
	RET()
}

func (s isa) block(rows int, c, a, b, k, panel reg.Register) {
	acc := make([]tile, rows)
	for i := range acc {
		acc[i] = s.load(c, i*lanes*4)
	}
	pa, pb, n := GP64(), GP64(), GP64()
	MOVQ(a, pa)
	MOVQ(b, pb)
	MOVQ(k, n)
	loop := s.name + "k" + string(rune('0'+rows))
	end := loop + "end"
	TESTQ(n, n)
	JZ(LabelRef(end))
	Label(loop)
	x := s.load(pb, 0)
	for i := range acc {
		m := Mem{Base: pa, Disp: (i % 4) * 4}
		if i >= 4 {
			m.Index, m.Scale = panel, 1
		}
		if s.parts == 1 {
			VFMADD231PS_BCST(m, x[0], acc[i][0])
			continue
		}
		w := s.broadcast(m)
		for p := range x {
			VFMADD231PS(x[p], w, acc[i][p])
		}
	}
	ADDQ(Imm(16), pa)
	ADDQ(Imm(lanes*4), pb)
	DECQ(n)
	JNZ(LabelRef(loop))
	Label(end)
	for i := range acc {
		s.store(acc[i], c, i*lanes*4)
	}
}

// silu: x ← x / (1 + e^−x), over n tiles of 16.
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
		v := s.load(x, i*s.bytes)[:1]
		e := s.vec()
		z := s.vec()
		s.zero(tile{z})
		VSUBPS(v[0], z, e) // −x
		s.exp(e)
		VADDPS(s.constant(1), e, e)
		VDIVPS(e, v[0], v[0])
		VMOVUPS(v[0], Mem{Base: x, Disp: i * s.bytes})
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
		loop := "mix" + s.name + string(rune('a'+i))
		g, l, cnt := GP64(), GP64(), GP64()
		top := s.vec()
		VMOVUPS(Mem{Base: gates, Disp: i * s.bytes}, top)
		LEAQ(Mem{Base: gates, Disp: i * s.bytes}, g)
		MOVQ(n, cnt)
		Label(loop + "max")
		VMAXPS(Mem{Base: g}, top, top)
		ADDQ(Imm(lanes*4), g)
		DECQ(cnt)
		JNZ(LabelRef(loop + "max"))
		sum, acc, zero := s.vec(), s.vec(), s.vec()
		s.zero(tile{sum})
		s.zero(tile{acc})
		s.zero(tile{zero})
		LEAQ(Mem{Base: gates, Disp: i * s.bytes}, g)
		LEAQ(Mem{Base: logits, Disp: i * s.bytes}, l)
		MOVQ(n, cnt)
		Label(loop + "sum")
		e := s.vec()
		VMOVUPS(Mem{Base: g}, e)
		VSUBPS(top, e, e)
		VFMADD231PS(zero, e, sum) // NaN from what is not finite: exp clamps −Inf
		s.exp(e)
		VADDPS(e, sum, sum)
		VFMADD231PS(Mem{Base: l}, e, acc)
		ADDQ(Imm(lanes*4), g)
		ADDQ(Imm(lanes*4), l)
		DECQ(cnt)
		JNZ(LabelRef(loop + "sum"))
		VDIVPS(sum, acc, acc)
		VMOVUPS(acc, Mem{Base: out, Disp: i * s.bytes})
	}
	VZEROUPPER()
	RET()
}

// madd: c += a·b, element by element, over n tiles of 16.
func (s isa) madd() {
	TEXT("madd"+s.name, NOSPLIT, "func(c, a, b *float32, n int)")
	Pragma("noescape")
	Doc("madd" + s.name + " adds a·b to each of the n·16 numbers c.")
	c, a, b := Load(Param("c"), GP64()), Load(Param("a"), GP64()), Load(Param("b"), GP64())
	n := Load(Param("n"), GP64())
	loop, end := "madd"+s.name+"loop", "madd"+s.name+"end"
	Label(loop)
	TESTQ(n, n)
	JZ(LabelRef(end))
	x, y := s.load(a, 0), s.load(c, 0)
	for i := range x {
		VFMADD231PS(Mem{Base: b, Disp: i * s.bytes}, x[i], y[i])
	}
	s.store(y, c, 0)
	for _, p := range []reg.Register{a, b, c} {
		ADDQ(Imm(lanes*4), p)
	}
	DECQ(n)
	JMP(LabelRef(loop))
	Label(end)
	VZEROUPPER()
	RET()
}

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
	n := Load(Param("n"), GP64())
	at := GP64()
	XORQ(at, at)
	Label("tloop")
	CMPQ(n, Imm(8))
	JL(LabelRef("tend"))
	// Load halves so that after unpack and shuffle no lane crossing is left.
	v := make([]reg.VecVirtual, 8)
	for i := range 4 {
		v[i] = YMM()
		VMOVUPS(Mem{Base: rows[i], Index: at, Scale: 1}, v[i].AsX())
		VINSERTF128(Imm(1), Mem{Base: rows[i+4], Index: at, Scale: 1}, v[i], v[i])
		v[i+4] = YMM()
		VMOVUPS(Mem{Base: rows[i], Index: at, Scale: 1, Disp: 16}, v[i+4].AsX())
		VINSERTF128(Imm(1), Mem{Base: rows[i+4], Index: at, Scale: 1, Disp: 16}, v[i+4], v[i+4])
	}
	for h := range 2 {
		a, b, c, d := v[4*h], v[4*h+1], v[4*h+2], v[4*h+3]
		lo0, hi0, lo1, hi1 := YMM(), YMM(), YMM(), YMM()
		VUNPCKLPS(b, a, lo0)
		VUNPCKHPS(b, a, hi0)
		VUNPCKLPS(d, c, lo1)
		VUNPCKHPS(d, c, hi1)
		for q, pair := range [][2]reg.VecVirtual{{lo0, lo1}, {hi0, hi1}} {
			for j, imm := range []uint64{0x44, 0xee} {
				o := YMM()
				VSHUFPS(Imm(imm), pair[1], pair[0], o)
				VMOVUPS(o, Mem{Base: dst, Disp: (4*h + 2*q + j) * lanes * 4})
			}
		}
	}
	ADDQ(Imm(32), at)
	ADDQ(I32(8*lanes*4), dst)
	SUBQ(Imm(8), n)
	JMP(LabelRef("tloop"))
	Label("tend")
	VZEROUPPER()
	RET()
}

func main() {
	ConstraintExpr("amd64,!noasm")
	data()
	for _, s := range []isa{avx512, avx2} {
		s.gemm()
		s.silu()
		s.mix()
		s.madd()
		s.dot4()
	}
	transpose()
	Generate()
}
