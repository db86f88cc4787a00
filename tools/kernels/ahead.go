package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// Offsets of the fields of Ahead.
const (
	aheadAt = 8 * iota
	aheadLeft
	aheadStep
	aheadList
	aheadEnd
	aheadRow
)

// loadAhead loads the state of the prefetch; without one the first line of c is
// touched again and again.
func (p *product) loadAhead() {
	ahead := GP64()
	MOVQ(p.arg(argC), p.at)
	MOVQ(U32(1<<31-1), p.left)
	XORQ(p.step, p.step)
	MOVQ(p.arg(argAhead), ahead)
	TESTQ(ahead, ahead)
	JZ(LabelRef("none"))
	MOVQ(Mem{Base: ahead, Disp: aheadAt}, p.at)
	MOVQ(Mem{Base: ahead, Disp: aheadLeft}, p.left)
	MOVQ(Mem{Base: ahead, Disp: aheadStep}, p.step)
	Label("none")
}

func (p *product) storeAhead(label string) {
	ahead := GP64()
	MOVQ(p.arg(argAhead), ahead)
	TESTQ(ahead, ahead)
	JZ(LabelRef(label + "stored"))
	MOVQ(p.at, Mem{Base: ahead, Disp: aheadAt})
	MOVQ(p.left, Mem{Base: ahead, Disp: aheadLeft})
	MOVQ(p.step, Mem{Base: ahead, Disp: aheadStep})
	Label(label + "stored")
}

// prefetch touches the line that will be needed next and steps on; at the end of
// a row it goes to the next of the list, at the end of the list it stops.
func (p *product) prefetch(label string) {
	if p.matrix { // which takes so many tiles at a time that the first cache does not hold them
		PREFETCHT1(Mem{Base: p.at})
	} else {
		PREFETCHT0(Mem{Base: p.at})
	}
	ADDQ(p.step, p.at)
	DECQ(p.left)
	JNZ(LabelRef(label + "on"))
	ahead, list := GP64(), GP64()
	MOVQ(U32(1<<31-1), p.left)
	MOVQ(p.arg(argAhead), ahead)
	TESTQ(ahead, ahead)
	JZ(LabelRef(label + "on"))
	MOVQ(Mem{Base: ahead, Disp: aheadList}, list)
	CMPQ(list, Mem{Base: ahead, Disp: aheadEnd})
	JNE(LabelRef(label + "row"))
	XORQ(p.step, p.step)
	MOVQ(p.args, p.at)
	JMP(LabelRef(label + "on"))
	Label(label + "row")
	MOVQ(Mem{Base: list}, p.at)
	ADDQ(Imm(8), list)
	MOVQ(list, Mem{Base: ahead, Disp: aheadList})
	MOVQ(Mem{Base: ahead, Disp: aheadRow}, p.left)
	Label(label + "on")
}

// prefetches emits count prefetches that other products issue one step at a time.
func (p *product) prefetches(label string, count int) {
	ahead := GP64()
	p.at, p.left, p.step = GP64(), GP64(), GP64()
	MOVQ(p.arg(argAhead), ahead)
	TESTQ(ahead, ahead)
	JZ(LabelRef(label + "none"))
	MOVQ(Mem{Base: ahead, Disp: aheadAt}, p.at)
	MOVQ(Mem{Base: ahead, Disp: aheadStep}, p.step)
	SUBQ(Imm(uint64(count)), Mem{Base: ahead, Disp: aheadLeft})
	JG(LabelRef(label + "all"))
	ADDQ(Imm(uint64(count)), Mem{Base: ahead, Disp: aheadLeft})
	n := GP64()
	MOVQ(U32(uint32(count)), n)
	MOVQ(Mem{Base: ahead, Disp: aheadLeft}, p.left)
	Label(label)
	p.prefetch(label)
	DECQ(n)
	JNZ(LabelRef(label))
	p.storeAhead(label)
	JMP(LabelRef(label + "none"))
	Label(label + "all")
	for range count {
		PREFETCHT1(Mem{Base: p.at})
		ADDQ(p.step, p.at)
	}
	MOVQ(p.at, Mem{Base: ahead, Disp: aheadAt})
	Label(label + "none")
}
