package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of productArgs, which rerank/kernel fills in.
const (
	argC = 8 * iota
	argW
	argB
	argBias
	argFactor
	argPlus
	argAhead
	argSteps
	argRows
	argTiles
	argCTile
	argCRow
	argBTile
	argPlusTile
	argFlags
	// What follows is the kernel's own.
	argRowC
	argRowBias
	argRowFactor
	argRowPlus
	argRowsLeft
	argSquares
	argBStep
	argGroups
	argCGroup
	argBGroup
	argGroupC
	argGroupB
	argGroupTiles
	argSums
	argSummed
	argSumEnd
	argSumW
	argSumB
	argSumRows
	argSumTiles
	argConfig
)

// Bits of argFlags.
const (
	flagAdd = 1 << iota
	flagSiLU
	flagRough
	flagNarrow
	flagSums
)

// format is the number format of a product's operands.
type format int

const (
	float32s     format = iota
	bfloat16dot         // pairs, VDPBF16PS
	bfloat16wide        // pairs, widened by shifts
	int8dot             // fours, VPDPBUSD
	int8wide            // fours, widened to pairs of 16 bits
)

// stepBytes is the size of one step of a panel of four rows.
func (f format) stepBytes() int {
	if f == bfloat16wide || f == int8wide {
		return 32
	}
	return 16
}

func (f format) integer() bool { return f == int8dot || f == int8wide }

// product generates one function; its registers are numbered by hand, since the
// assembler lacks instructions that then are written as bytes.
type product struct {
	isa
	format
	name   string
	matrix bool // the matrix unit computes the sums
	next   int  // the first vector register that is not in use

	args, pa, pb, n, c, panel, bt, crow reg.Register
	at, left, step                      reg.Register // of the prefetch
	consts                              []reg.VecPhysical
}

var vectors = []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

// take returns the next vector register.
func (p *product) take() reg.VecPhysical {
	if p.parts == 1 {
		p.next++
		return vectors[p.next-1]
	}
	r := vectors[:16][p.next] // AVX2 has sixteen
	p.next++
	return r.AsY().(reg.VecPhysical)
}

func (p *product) takeTile() []reg.VecPhysical {
	t := make([]reg.VecPhysical, p.parts)
	for i := range t {
		t[i] = p.take()
	}
	return t
}

func (p *product) arg(offset int) Mem { return Mem{Base: p.args, Disp: offset} }

// generate writes the function: tiles in pairs where there are registers for
// two, then one by one; rows in blocks of eight, then four.
func (p *product) generate(doc string) {
	TEXT(p.name, NOSPLIT, "func(args *byte)")
	Pragma("noescape")
	Doc(p.name + " " + doc)
	p.args = Load(Param("args"), GP64())
	for _, r := range []*reg.Register{&p.pa, &p.pb, &p.n, &p.c, &p.panel, &p.bt, &p.crow, &p.at, &p.left, &p.step} {
		*r = GP64()
	}
	if p.format == int8dot {
		p.constant32(signs)
	}
	if p.format == bfloat16wide {
		p.constant32(upper)
	}
	MOVQ(p.arg(argSteps), p.panel)
	SHLQ(Imm(map[int]uint64{16: 4, 32: 5}[p.stepBytes()]), p.panel)
	MOVQ(p.arg(argBTile), p.bt)
	MOVQ(p.arg(argCRow), p.crow)
	p.loadAhead()
	for tiles := p.tiles; tiles >= 1; tiles /= 2 {
		p.tileLoop(tiles)
	}
	p.storeAhead("")
	VZEROUPPER()
	RET()
}

func (p *product) constant32(m Mem) {
	r := p.take()
	VPBROADCASTD(m, r)
	p.consts = append(p.consts, r)
}

func (p *product) tileLoop(tiles int) {
	p.tilesLoop(tiles, func() {
		for rows := p.rows; rows >= 4; rows /= 2 {
			p.rowLoop(tiles, rows)
		}
	})
}

// tilesLoop does all rows of some tiles while there are as many.
func (p *product) tilesLoop(tiles int, allRows func(), name ...string) {
	loop := fmt.Sprintf("tiles%d%s", tiles, strings.Join(name, ""))
	Label(loop)
	CMPQ(p.arg(argTiles), Imm(uint64(tiles)))
	JL(LabelRef(loop + "end"))
	t := GP64()
	for _, f := range [][2]int{{argC, argRowC}, {argBias, argRowBias}, {argFactor, argRowFactor}, {argPlus, argRowPlus}, {argRows, argRowsLeft}} {
		MOVQ(p.arg(f[0]), t)
		MOVQ(t, p.arg(f[1]))
	}
	MOVQ(p.arg(argW), p.pa)
	allRows()
	for _, f := range [][2]int{{argCTile, argC}, {argBTile, argB}, {argPlusTile, argPlus}} {
		MOVQ(p.arg(f[0]), t)
		for range tiles {
			ADDQ(t, p.arg(f[1]))
		}
	}
	if p.format == bfloat16dot {
		ADDQ(U32(tiles*2*lanes*4), p.arg(argSquares))
	}
	SUBQ(Imm(uint64(tiles)), p.arg(argTiles))
	JMP(LabelRef(loop))
	Label(loop + "end")
}

func (p *product) rowLoop(tiles, rows int) {
	loop := fmt.Sprintf("tiles%drows%d", tiles, rows)
	Label(loop)
	CMPQ(p.arg(argRowsLeft), Imm(uint64(rows)))
	JL(LabelRef(loop + "end"))
	saved := p.next
	p.block(loop, tiles, rows)
	p.next = saved
	for range rows/4 - 1 { // the loop over k went through the first panel
		ADDQ(p.panel, p.pa)
	}
	p.advance(rows)
	JMP(LabelRef(loop))
	Label(loop + "end")
}

// advance goes on by rows that are done.
func (p *product) advance(rows int) {
	t := GP64()
	MOVQ(p.crow, t)
	SHLQ(Imm(map[int]uint64{8: 3, 4: 2}[rows]), t)
	ADDQ(t, p.arg(argRowC))
	if !p.integer() {
		ADDQ(Imm(uint64(rows*4)), p.arg(argRowFactor))
		ADDQ(U32(rows*lanes*4), p.arg(argRowPlus))
	}
	ADDQ(Imm(uint64(rows*4)), p.arg(argRowBias))
	SUBQ(Imm(uint64(rows)), p.arg(argRowsLeft))
}

// accumulators are the registers of a block: [row][tile][part].
type accumulators [][][]reg.VecPhysical

func (p *product) accumulators(tiles, rows int) accumulators {
	acc := make(accumulators, rows)
	for r := range acc {
		for range tiles {
			acc[r] = append(acc[r], p.takeTile())
		}
	}
	return acc
}

func (p *product) block(label string, tiles, rows int) {
	acc := p.accumulators(tiles, rows)
	p.start(label, acc)
	MOVQ(p.arg(argB), p.pb)
	MOVQ(p.arg(argSteps), p.n)
	saved := p.next
	Label(label + "k")
	p.multiply(acc)
	ADDQ(Imm(uint64(p.stepBytes())), p.pa)
	ADDQ(Imm(lanes*4), p.pb)
	p.prefetch(label)
	DECQ(p.n)
	JNZ(LabelRef(label + "k"))
	p.next = saved
	p.finish(label, acc)
}

// each calls f with the place of every accumulator's part in c, c pointing at the first.
func (p *product) each(acc accumulators, first Mem, row, tile reg.Register, f func(r, t, part int, at Mem)) {
	at := GP64()
	for t := range acc[0] {
		if t == 0 {
			LEAQ(first, at)
		} else {
			base := GP64()
			LEAQ(first, base)
			ADDQ(tile, base)
			at = base
		}
		for r := range acc {
			for part := range acc[r][t] {
				f(r, t, part, Mem{Base: at, Disp: part * p.bytes})
			}
			if r < len(acc)-1 {
				ADDQ(row, at)
			}
		}
	}
}

// start sets the accumulators to c, the bias of the row, or zero.
func (p *product) start(label string, acc accumulators) {
	bias, ctile, flags := GP64(), GP64(), GP64()
	MOVQ(p.arg(argRowC), p.c)
	MOVQ(p.arg(argRowBias), bias)
	MOVQ(p.arg(argFlags), flags)
	if p.integer() {
		for r := range acc {
			for t := range acc[r] {
				for _, a := range acc[r][t] {
					VPBROADCASTD(Mem{Base: bias, Disp: r * 4}, a)
				}
			}
		}
		TESTQ(U32(flagAdd), flags)
		JZ(LabelRef(label + "started"))
		MOVQ(p.arg(argCTile), ctile)
		p.each(acc, Mem{Base: p.c}, p.crow, ctile, func(r, t, part int, at Mem) { VPADDD(at, acc[r][t][part], acc[r][t][part]) })
		Label(label + "started")
		return
	}
	TESTQ(U32(flagAdd), flags)
	JZ(LabelRef(label + "bias"))
	MOVQ(p.arg(argCTile), ctile)
	p.each(acc, Mem{Base: p.c}, p.crow, ctile, func(r, t, part int, at Mem) { VMOVUPS(at, acc[r][t][part]) })
	JMP(LabelRef(label + "started"))
	Label(label + "bias")
	CMPQ(p.arg(argBias), Imm(0))
	JE(LabelRef(label + "zero"))
	for r := range acc {
		for t := range acc[r] {
			for part := range acc[r][t] {
				VBROADCASTSS(Mem{Base: bias, Disp: r * 4}, acc[r][t][part])
			}
		}
	}
	JMP(LabelRef(label + "started"))
	Label(label + "zero")
	for r := range acc {
		for t := range acc[r] {
			for _, a := range acc[r][t] {
				p.zero(tile{a})
			}
		}
	}
	Label(label + "started")
}

// finish adds factor·plus, activates and stores.
func (p *product) finish(label string, acc accumulators) {
	MOVQ(p.arg(argRowC), p.c)
	if !p.integer() {
		p.addPlus(label, acc)
		p.activate(label, acc)
	}
	ctile := GP64()
	MOVQ(p.arg(argCTile), ctile)
	if p.format == bfloat16dot {
		p.narrow(label, acc, ctile)
	}
	p.each(acc, Mem{Base: p.c}, p.crow, ctile, func(r, t, part int, at Mem) {
		if p.integer() && p.parts == 1 {
			VMOVDQU32(acc[r][t][part], at)
		} else {
			VMOVUPS(acc[r][t][part], at)
		}
	})
	Label(label + "stored")
}

// narrow stores pairs of rows as words of two bfloat16 if requested, and adds the
// squares of the values and of their rounding errors to the tile's sums.
func (p *product) narrow(label string, acc accumulators, ctile reg.Register) {
	flags, squares := GP64(), GP64()
	MOVQ(p.arg(argFlags), flags)
	TESTQ(U32(flagNarrow), flags)
	JZ(LabelRef(label + "wide"))
	MOVQ(p.arg(argSquares), squares)
	saved := p.next
	to := newRounding([]reg.VecPhysical{p.take(), p.take(), p.take(), p.take(), p.take(), p.take()})
	sum := p.take()
	for t := range acc[0] {
		kept, lost := Mem{Base: squares, Disp: 2 * t * lanes * 4}, Mem{Base: squares, Disp: (2*t + 1) * lanes * 4}
		VMOVUPS(kept, sum)
		to.begin(lost)
		for r := 0; r < len(acc); r += 2 {
			at := Mem{Base: p.c, Disp: r / 2 * lanes * 4}
			if t > 0 {
				at.Index, at.Scale = ctile, 1
			}
			if p.matrix { // where VDPBF16PS takes as long as four multiply-adds
				VFMADD231PS(acc[r][t][0], acc[r][t][0], sum)
				VFMADD231PS(acc[r+1][t][0], acc[r+1][t][0], sum)
				to.pair(acc[r][t][0], acc[r+1][t][0], at)
				continue
			}
			to.pair(acc[r][t][0], acc[r+1][t][0], at)
			vdpbf16ps(to.word, to.word, sum)
		}
		VMOVUPS(sum, kept)
		to.end(lost)
	}
	p.next = saved
	JMP(LabelRef(label + "stored"))
	Label(label + "wide")
}

func (p *product) addPlus(label string, acc accumulators) {
	CMPQ(p.arg(argPlus), Imm(0))
	JE(LabelRef(label + "noplus"))
	factor, plus, ptile, row := GP64(), GP64(), GP64(), GP64()
	MOVQ(p.arg(argRowFactor), factor)
	MOVQ(p.arg(argRowPlus), plus)
	MOVQ(p.arg(argPlusTile), ptile)
	MOVQ(U32(lanes*4), row)
	w := p.take()
	p.each(acc, Mem{Base: plus}, row, ptile, func(r, t, part int, at Mem) {
		VBROADCASTSS(Mem{Base: factor, Disp: r * 4}, w)
		VFMADD231PS(at, w, acc[r][t][part])
	})
	p.next--
	Label(label + "noplus")
}

// activate applies SiLU; to products of bfloat16 a rough one, where that is asked for.
func (p *product) activate(label string, acc accumulators) {
	flags := GP64()
	MOVQ(p.arg(argFlags), flags)
	TESTQ(U32(flagSiLU), flags)
	JZ(LabelRef(label + "store"))
	if p.format == bfloat16dot {
		TESTQ(U32(flagRough), flags)
		JZ(LabelRef(label + "exactly"))
		p.silus(acc, true)
		JMP(LabelRef(label + "store"))
		Label(label + "exactly")
	}
	p.silus(acc, false)
	Label(label + "store")
}

// silus applies SiLU to as many sums at a time as there are registers for, beside
// the constants.
func (p *product) silus(acc accumulators, roughly bool) {
	saved := p.next
	var xs []reg.Register
	for r := range acc {
		for t := range acc[r] {
			for _, a := range acc[r][t] {
				xs = append(xs, a)
			}
		}
	}
	s, free := p.isa, 16 // AVX2 has no more
	var lines rough
	switch {
	case roughly:
		lines, free = newRough(p.take), 32
	case p.parts == 1:
		s, free = s.hold(func() reg.Register { return p.take() }, append([]float32{-math.Log2E}, p.expPoly()...)...), 32
	}
	ws := make([]work, max(1, min(2, (free-p.next)/3)))
	for i := range ws {
		ws[i] = work{p.take(), p.take(), p.take()}
	}
	for x := range slices.Chunk(xs, len(ws)) {
		if roughly {
			lines.siluOf(x, ws)
		} else {
			s.siluOf(x, ws)
		}
	}
	p.next = saved
}
