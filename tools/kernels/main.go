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
	rows  int // rows of a matrix that a product keeps in registers,
	tiles int // and tiles
	vec   func() reg.Register
	held  map[float32]reg.Register // constants that are in registers
}

var (
	avx512 = isa{name: "AVX512", parts: 1, bytes: 64, rows: 8, tiles: 2, vec: func() reg.Register { return ZMM() }}
	avx2   = isa{name: "AVX2", parts: 2, bytes: 32, rows: 4, tiles: 1, vec: func() reg.Register { return YMM() }}
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

// narrow: pairs of values of a tile become words of two bfloat16, and what they lose is
// squared and summed.
func narrow() {
	TEXT("narrowAVX512", NOSPLIT, "func(dst *uint32, lost, x *float32, n int)")
	Pragma("noescape")
	Doc("narrowAVX512 writes pairs of values of the tile x as n words of 16 lanes, and adds the squares of what each lane loses to lost. It needs AVX512_BF16.")
	dst, lost, x, n := Load(Param("dst"), GP64()), Load(Param("lost"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	rs := []rounding{newRounding([]reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5})}
	rs = append(rs, rs[0].beside(reg.Z6, reg.Z7, reg.Z8, reg.Z9)) // sums that do not wait for each other
	rs[0].begin(Mem{Base: lost})
	for ways := len(rs); ways > 0; ways-- {
		loop := "narrow" + string(rune('0'+ways))
		Label(loop)
		CMPQ(n, Imm(uint64(ways)))
		JL(LabelRef(loop + "end"))
		for i, r := range rs[:ways] {
			first, second := vectors[16+2*i], vectors[17+2*i]
			VMOVUPS(Mem{Base: x, Disp: 2 * i * lanes * 4}, first)
			VMOVUPS(Mem{Base: x, Disp: (2*i + 1) * lanes * 4}, second)
			r.pair(first, second, Mem{Base: dst, Disp: i * lanes * 4})
		}
		ADDQ(U32(ways*2*lanes*4), x)
		ADDQ(U32(ways*lanes*4), dst)
		SUBQ(Imm(uint64(ways)), n)
		JMP(LabelRef(loop))
		Label(loop + "end")
	}
	for i := range rs[0].lost {
		VADDPS(rs[1].lost[i], rs[0].lost[i], rs[0].lost[i])
	}
	rs[0].end(Mem{Base: lost})
	VZEROUPPER()
	RET()
}

// rounding holds the registers that round pairs of values to bfloat16.
type rounding struct {
	order, upper reg.VecPhysical
	lost         [2]reg.VecPhysical // sums of squares
	word, rest   reg.VecPhysical
}

// newRounding takes six registers, and loads the two constants that rounding needs into the first two.
func newRounding(v []reg.VecPhysical) rounding {
	r := rounding{v[0], v[1], [2]reg.VecPhysical{v[2], v[3]}, v[4], v[5]}
	VMOVUPS(interleave, r.order)
	VPBROADCASTD(upper, r.upper)
	return r
}

// beside returns a rounding with the same constants and other registers, whose sums begin at zero.
func (r rounding) beside(first, second, word, rest reg.VecPhysical) rounding {
	r.lost, r.word, r.rest = [2]reg.VecPhysical{first, second}, word, rest
	for _, sum := range r.lost {
		VPXORD(sum, sum, sum)
	}
	return r
}

// begin loads the sum of squares from m; end adds both sums and stores them there.
func (r rounding) begin(m Mem) {
	VMOVUPS(m, r.lost[0])
	VPXORD(r.lost[1], r.lost[1], r.lost[1])
}

func (r rounding) end(m Mem) {
	VADDPS(r.lost[1], r.lost[0], r.lost[0])
	VMOVUPS(r.lost[0], m)
}

// pair stores two values as a word, which stays, and overwrites them. VCVTNE2PS2BF16 puts the second
// value's sixteen lanes behind the first's; VPERMW interleaves them.
func (r rounding) pair(first, second reg.VecPhysical, to Mem) {
	vcvtne2ps2bf16(first, second, r.word)
	VPERMW(r.word, r.order, r.word)
	VMOVUPS(r.word, to)
	VPSLLD(Imm(16), r.word, r.rest)
	VSUBPS(r.rest, first, first)
	VPANDD(r.upper, r.word, r.rest)
	VSUBPS(r.rest, second, second)
	VFMADD231PS(first, first, r.lost[0])
	VFMADD231PS(second, second, r.lost[1])
}

func main() {
	ConstraintExpr("amd64,!noasm")
	data()
	for _, s := range []isa{avx512, avx2} {
		for _, f := range []struct {
			format
			name, doc string
		}{
			{float32s, "product", "multiplies tiles of float32."},
			{bfloat16wide, "productBFloat16", "multiplies tiles of bfloat16, widened to float32."},
		} {
			(&product{isa: s, format: f.format, name: f.name + s.name}).generate(f.doc)
		}
		s.silu()
		s.exp()
		s.mix()
		s.madd()
		s.divide()
		s.addScaled(false)
		s.addScaled(true)
		s.largestInt8()
		s.widen()
		s.extent()
		s.weigh()
		s.bound()
		s.rowsOf(false)
		s.rowsOf(true)
		s.stream()
		s.cross(1, 12/s.parts)
		s.foldRows()
		s.fma()
		s.read()
	}
	(&product{isa: avx512, format: bfloat16dot, name: "productBF16"}).generate("multiplies tiles of bfloat16. It needs AVX512_BF16.")
	matrixProduct()
	(&product{isa: avx512, format: int8dot, name: "productVNNI"}).generate("multiplies tiles of int8. It needs AVX512_VNNI.")
	(&product{isa: avx2, format: int8wide, name: "productInt8AVX2"}).generate("multiplies tiles of int8, widened to 16 bits.")
	avx512.cached()
	avx512.cross(2, 12)
	avx512.cross(4, 6)
	narrow()
	spread()
	spread16()
	transpose()
	gather()
	Generate()
}
