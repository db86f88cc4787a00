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
	// sumsBytes are the sums of two panels for two tiles.
	sumsBytes = 4 * matrixBytes
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

// matrixProduct writes the product of bfloat16 that sums in the unit. Sums of a panel for two tiles go through memory; while
// they are finished as the others' that lie in registers are, the unit is at the next.
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
	LEAQ(local, p.pb)
	ADDQ(Imm(63), p.pb)
	ANDQ(I32(-64), p.pb) // whole lines
	MOVQ(p.pb, p.arg(argSums))
	ADDQ(U32(sumsBytes), p.pb)
	MOVQ(p.pb, p.arg(argSummed))
	p.groups(func(tiles int) {
		label := fmt.Sprintf("tiles%dpanels", tiles)
		TESTQ(U32(flagSums), p.arg(argFlags))
		JNZ(LabelRef(label + "whole"))
		p.startSums(label, tiles)
		p.tilesLoop(tiles, func() { p.panels(label, tiles) })
		JMP(LabelRef(label + "done"))
		Label(label + "whole")
		p.tilesLoop(tiles, func() { p.wholePanels(label+"w", tiles) }, "w")
		Label(label + "done")
	})
	matrixOp("TILERELEASE", 0, 0x49, 0, []uint64{0xc0})
	VZEROUPPER()
	RET()
}

// groups does all of every group, tiles in pairs and one that is left.
func (p *product) groups(f func(tiles int)) {
	Label("groups")
	p.move([2]int{argC, argGroupC}, [2]int{argB, argGroupB}, [2]int{argTiles, argGroupTiles})
	for tiles := 2; tiles >= 1; tiles-- {
		f(tiles)
	}
	p.move([2]int{argGroupC, argC}, [2]int{argGroupB, argB}, [2]int{argGroupTiles, argTiles})
	t := GP64()
	for _, f := range [][2]int{{argCGroup, argC}, {argBGroup, argB}} {
		MOVQ(p.arg(f[0]), t)
		ADDQ(t, p.arg(f[1]))
	}
	DECQ(p.arg(argGroups))
	JNZ(LabelRef("groups"))
}

// move copies arguments.
func (p *product) move(fromTo ...[2]int) {
	t := GP64()
	for _, f := range fromTo {
		MOVQ(p.arg(f[0]), t)
		MOVQ(t, p.arg(f[1]))
	}
}

// startSums has the unit begin with the first panel.
func (p *product) startSums(label string, tiles int) {
	p.move([2]int{argW, argSumW}, [2]int{argB, argSumB}, [2]int{argRows, argSumRows}, [2]int{argTiles, argSumTiles})
	p.nextSums(label+"first", tiles)
}

// nextSums has the unit multiply the next panel, if there is one, with tiles.
func (p *product) nextSums(label string, tiles int) {
	CMPQ(p.arg(argSumTiles), Imm(uint64(tiles)))
	JL(LabelRef(label + "none"))
	MOVQ(p.arg(argSumW), weightsAt[0])
	MOVQ(p.arg(argSumB), valuesAt[0])
	p.sum(label, tiles, 2)
	MOVQ(p.arg(argSums), weightsAt[0])
	MOVQ(p.arg(argSummed), weightsAt[1])
	MOVQ(weightsAt[0], p.arg(argSummed))
	MOVQ(weightsAt[1], p.arg(argSums))
	for t := range tiles {
		for i := range 2 {
			memoryOp("TILESTORED", 2, 0x4b, sumsOf[i][t], weightsAt[0], apart)
			ADDQ(U32(matrixBytes), weightsAt[0])
		}
	}
	ADDQ(p.panel, p.arg(argSumW))
	ADDQ(p.panel, p.arg(argSumW))
	SUBQ(Imm(2*matrixRows), p.arg(argSumRows))
	JG(LabelRef(label + "none"))
	p.move([2]int{argW, argSumW}, [2]int{argRows, argSumRows})
	for range tiles {
		ADDQ(p.bt, p.arg(argSumB))
	}
	SUBQ(Imm(uint64(tiles)), p.arg(argSumTiles))
	Label(label + "none")
}

// sum multiplies panels with tiles, where their registers for addresses say; they then are behind.
func (p *product) sum(label string, tiles, panels int) {
	if tiles > 1 {
		LEAQ(Mem{Base: valuesAt[0], Index: p.bt, Scale: 1}, valuesAt[1])
	}
	if panels > 1 {
		LEAQ(Mem{Base: weightsAt[0], Index: p.panel, Scale: 1}, weightsAt[1])
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
}

// panels finishes the sums of tiles, panel by panel.
func (p *product) panels(label string, tiles int) {
	Label(label)
	CMPQ(p.arg(argRowsLeft), Imm(0))
	JLE(LabelRef(label + "end"))
	MOVQ(p.arg(argSummed), p.pb)
	p.nextSums(label+"next", tiles)
	LEAQ(Mem{Base: p.pb, Disp: 2 * matrixBytes}, p.c)
	MOVQ(p.c, p.arg(argSumEnd))
	for _, rows := range []int{8, 4} {
		p.summedRows(fmt.Sprintf("%srows%d", label, rows), tiles, rows)
	}
	JMP(LabelRef(label))
	Label(label + "end")
}

// wholePanels stores sums, with which nothing is to be done, where they belong: of sixteen rows each, or of fewer in all.
func (p *product) wholePanels(label string, tiles int) {
	Label(label)
	for panels := 2; panels >= 1; panels-- {
		part := fmt.Sprintf("%ssum%d", label, panels)
		CMPQ(p.arg(argRowsLeft), Imm(uint64((panels-1)*matrixRows)))
		JLE(LabelRef(part + "end"))
		MOVQ(p.pa, weightsAt[0])
		MOVQ(p.arg(argB), valuesAt[0])
		p.sum(part, tiles, panels)
		MOVQ(p.crow, apart)
		for i := range panels {
			ADDQ(p.panel, p.pa)
			MOVQ(p.arg(argRowC), weightsAt[0])
			for t := range tiles {
				memoryOp("TILESTORED", 2, 0x4b, sumsOf[i][t], weightsAt[0], apart)
				ADDQ(p.arg(argCTile), weightsAt[0])
			}
			MOVQ(p.crow, p.n)
			SHLQ(Imm(4), p.n)
			ADDQ(p.n, p.arg(argRowC))
		}
		SUBQ(Imm(uint64(panels*matrixRows)), p.arg(argRowsLeft))
		JMP(LabelRef(label))
		Label(part + "end")
	}
}

// summedRows finishes rows of the sums, as many as there are; p.pb goes along.
func (p *product) summedRows(label string, tiles, rows int) {
	Label(label)
	CMPQ(p.pb, p.arg(argSumEnd))
	JGE(LabelRef(label + "end"))
	CMPQ(p.arg(argRowsLeft), Imm(uint64(rows)))
	JL(LabelRef(label + "end"))
	saved := p.next
	acc := p.accumulators(tiles, rows)
	p.start(label, acc)
	for r := range acc {
		for t, a := range acc[r] {
			VADDPS(Mem{Base: p.pb, Disp: 2*t*matrixBytes + r*lanes*4}, a[0], a[0])
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
