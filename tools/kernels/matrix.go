package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products by the processor's unit for matrices (AMX). One of its registers has up to 16 rows of 64 bytes: sixteen
// rows of weights, or of sixteen lanes, of up to 32 values; or the sums of sixteen rows and lanes.
const (
	matrixRows  = 16
	matrixBytes = matrixRows * 64
	// sumsBytes are the sums of roomPanels for one tile: while they are finished, the unit goes on with the next tiles.
	roomPanels = 8
	sumsBytes  = roomPanels * matrixBytes
)

// Registers of matrices: sums [panel][tile], weights [panel], values [tile].
var (
	sumsOf    = [2][2]uint64{{0, 1}, {2, 3}}
	weightsOf = [2]uint64{4, 5}
	valuesOf  = [2]uint64{6, 7}
)

// Registers that instructions written as bytes have for addresses; rows are 64 bytes apart in all memory.
var (
	apart     = reg.RDX
	weightsAt = [2]reg.GPPhysical{reg.RSI, reg.RDI}
	valuesAt  = [2]reg.GPPhysical{reg.RAX, reg.RBX}
)

// matrixProduct writes the product of bfloat16 that sums in the unit, 32 rows and two tiles at once, and then goes
// over the sums, in memory, as the others do over those in registers.
func matrixProduct() {
	p := &product{isa: avx512, format: bfloat16dot, name: "productAMX", matrix: true}
	TEXT(p.name, 0, "func(args *byte)")
	Pragma("noescape")
	Doc(p.name + " multiplies tiles of bfloat16. It needs AMX_BF16 and AVX512_BF16.")
	local := AllocLocal(2*sumsBytes + 64)
	p.args = Load(Param("args"), GP64())
	for _, r := range []*reg.Register{&p.pa, &p.n, &p.c, &p.panel, &p.bt, &p.crow, &p.pb} {
		*r = GP64()
	}
	LEAQ(p.arg(argConfig), weightsAt[0])
	memoryOp("LDTILECFG", 0, 0x49, 0, weightsAt[0])
	MOVQ(p.arg(argSteps), p.panel)
	SHLQ(Imm(10), p.panel)
	MOVQ(p.arg(argBTile), p.bt)
	MOVQ(p.arg(argCRow), p.crow)
	Label("groups")
	t := GP64()
	for _, f := range [][2]int{{argC, argGroupC}, {argB, argGroupB}, {argTiles, argGroupTiles}} {
		MOVQ(p.arg(f[0]), t)
		MOVQ(t, p.arg(f[1]))
	}
	for tiles := 2; tiles >= 1; tiles-- {
		p.tilesLoop(tiles, func() { p.panels(tiles, local) })
	}
	for _, f := range [][3]int{{argGroupC, argCGroup, argC}, {argGroupB, argBGroup, argB}} {
		MOVQ(p.arg(f[0]), t)
		ADDQ(p.arg(f[1]), t)
		MOVQ(t, p.arg(f[2]))
	}
	MOVQ(p.arg(argGroupTiles), t)
	MOVQ(t, p.arg(argTiles))
	DECQ(p.arg(argGroups))
	JNZ(LabelRef("groups"))
	matrixOp("TILERELEASE", 0, 0x49, 0, []uint64{0xc0})
	VZEROUPPER()
	RET()
}

// panels goes over all rows, as many at a time as there is room for sums.
func (p *product) panels(tiles int, local Mem) {
	loop := fmt.Sprintf("tiles%dpanels", tiles)
	Label(loop)
	CMPQ(p.arg(argRowsLeft), Imm(0))
	JLE(LabelRef(loop + "end"))
	p.aligned(local, p.pb)
	MOVQ(p.arg(argRowsLeft), p.c)
	TESTQ(U32(flagSums), p.arg(argFlags))
	JNZ(LabelRef(loop + "some"))
	CMPQ(p.c, U32(roomPanels*matrixRows))
	JLE(LabelRef(loop + "some"))
	MOVQ(U32(roomPanels*matrixRows), p.c)
	Label(loop + "some")
	for panels := 2; panels >= 1; panels-- {
		label := fmt.Sprintf("%ssum%d", loop, panels)
		Label(label)
		CMPQ(p.c, Imm(uint64((panels-1)*matrixRows)))
		JLE(LabelRef(label + "end"))
		p.sum(label, tiles, panels)
		SUBQ(Imm(uint64(panels*matrixRows)), p.c)
		JMP(LabelRef(label))
		Label(label + "end")
	}
	TESTQ(U32(flagSums), p.arg(argFlags))
	JNZ(LabelRef(loop + "end")) // the sums are where they belong, and all
	p.aligned(local, p.pb)
	for _, rows := range []int{8, 4} {
		p.summedRows(loop, tiles, rows, local)
	}
	JMP(LabelRef(loop))
	Label(loop + "end")
}

// aligned is the room for sums, in whole lines.
func (p *product) aligned(local Mem, to reg.Register) {
	LEAQ(local, to)
	ADDQ(Imm(63), to)
	ANDQ(I32(-64), to)
}

// sum multiplies panels with tiles into the room at p.pb, and goes on there.
func (p *product) sum(label string, tiles, panels int) {
	for i := range panels {
		MOVQ(p.pa, weightsAt[i])
		ADDQ(p.panel, p.pa)
	}
	MOVQ(p.arg(argB), valuesAt[0])
	if tiles > 1 {
		LEAQ(Mem{Base: valuesAt[0], Index: p.bt, Scale: 1}, valuesAt[1])
	}
	MOVQ(U32(64), apart)
	for i := range panels {
		for t := range tiles {
			matrixOp("TILEZERO", 3, 0x49, 0, []uint64{0xc0 | sumsOf[i][t]<<3})
		}
	}
	MOVQ(p.arg(argSteps), p.n)
	Label(label + "k")
	for t := range tiles {
		memoryOp("TILELOADD", 3, 0x4b, valuesOf[t], valuesAt[t], apart)
	}
	for i := range panels {
		memoryOp("TILELOADD", 3, 0x4b, weightsOf[i], weightsAt[i], apart)
		for t := range tiles {
			matrixOp("TDPBF16PS", 2, 0x5c, valuesOf[t], []uint64{0xc0 | sumsOf[i][t]<<3 | weightsOf[i]})
		}
		ADDQ(U32(matrixBytes), weightsAt[i])
	}
	for t := range tiles {
		ADDQ(p.arg(argBStep), valuesAt[t])
	}
	DECQ(p.n)
	JNZ(LabelRef(label + "k"))
	TESTQ(U32(flagSums), p.arg(argFlags))
	JNZ(LabelRef(label + "final"))
	for t := range tiles {
		for i := range panels {
			LEAQ(Mem{Base: p.pb, Disp: t*sumsBytes + i*matrixBytes}, weightsAt[0])
			memoryOp("TILESTORED", 2, 0x4b, sumsOf[i][t], weightsAt[0], apart)
		}
	}
	ADDQ(U32(panels*matrixBytes), p.pb)
	JMP(LabelRef(label + "kept"))
	Label(label + "final")
	MOVQ(p.crow, apart)
	MOVQ(p.arg(argRowC), weightsAt[0])
	for i := range panels {
		MOVQ(weightsAt[0], valuesAt[0])
		for t := range tiles {
			memoryOp("TILESTORED", 2, 0x4b, sumsOf[i][t], valuesAt[0], apart)
			if t+1 < tiles {
				ADDQ(p.arg(argCTile), valuesAt[0])
			}
		}
		MOVQ(p.crow, p.n)
		SHLQ(Imm(4), p.n)
		ADDQ(p.n, weightsAt[0])
	}
	MOVQ(weightsAt[0], p.arg(argRowC))
	Label(label + "kept")
}

// summedRows finishes rows of the sums, as many as there are; p.pb goes along.
func (p *product) summedRows(label string, tiles, rows int, local Mem) {
	label = fmt.Sprintf("%srows%d", label, rows)
	Label(label)
	end := GP64()
	p.aligned(local, end)
	ADDQ(U32(sumsBytes), end)
	CMPQ(p.pb, end)
	JGE(LabelRef(label + "end"))
	CMPQ(p.arg(argRowsLeft), Imm(uint64(rows)))
	JL(LabelRef(label + "end"))
	saved := p.next
	acc := p.accumulators(tiles, rows)
	p.start(label, acc)
	for r := range acc {
		for t, a := range acc[r] {
			VADDPS(Mem{Base: p.pb, Disp: t*sumsBytes + r*lanes*4}, a[0], a[0])
		}
	}
	p.finish(label, acc)
	p.next = saved
	p.prefetches(label+"ahead", tiles*rows)
	ADDQ(U32(rows*lanes*4), p.pb)
	p.advance(rows)
	JMP(LabelRef(label))
	Label(label + "end")
}

// prefetches does some of what other products do a step at a time.
func (p *product) prefetches(label string, count int) {
	p.at, p.left, p.step = GP64(), GP64(), GP64()
	n := GP64()
	p.loadAhead(label)
	MOVQ(U32(uint32(count)), n)
	Label(label)
	p.prefetch(label)
	DECQ(n)
	JNZ(LabelRef(label))
	p.storeAhead(label)
}

// memoryOp writes an instruction of a matrix register and memory at a base, with rows an index apart where there is one.
func memoryOp(name string, prefix, opcode, matrix uint64, base reg.GPPhysical, index ...reg.GPPhysical) {
	at := uint64(base.PhysicalIndex())
	rest, reads := []uint64{matrix<<3 | at}, []Op{base}
	for _, r := range index {
		rest, reads = []uint64{matrix<<3 | 4, uint64(r.PhysicalIndex())<<3 | at}, append(reads, r)
	}
	matrixOp(name, prefix, opcode, 0, rest, reads...)
}

// matrixOp writes an instruction of the map 0F38 with W0 as bytes; reads are the registers that it does not name to the assembler.
func matrixOp(name string, prefix, opcode, second uint64, rest []uint64, reads ...Op) {
	Comment(name)
	for _, b := range append([]uint64{0xc4, 0xe2, (^second&15)<<3 | prefix, opcode}, rest...) {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(b)}, Inputs: reads})
	}
}
