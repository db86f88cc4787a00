package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weight is the operand of row r of the panels at pa, word w of its step.
func (p *product) weight(r, w int) Mem {
	m := Mem{Base: p.pa, Disp: (r%4)*p.stepBytes()/4 + w*4}
	if r >= 4 {
		m.Index, m.Scale = p.panel, 1
	}
	return m
}

// value is the operand of part i of the step of tile t.
func (p *product) value(t, i int) Mem {
	m := Mem{Base: p.pb, Disp: i * p.bytes}
	if t > 0 {
		m.Index, m.Scale = p.bt, 1
	}
	return m
}

// multiply adds one step to the accumulators.
func (p *product) multiply(acc accumulators) {
	switch p.format {
	case float32s:
		p.multiplyFloat32(acc)
	case bfloat16dot, int8dot:
		p.multiplyDot(acc)
	case bfloat16wide, int8wide:
		p.multiplyWide(acc)
	}
}

func (p *product) multiplyFloat32(acc accumulators) {
	var x [][]reg.VecPhysical
	for t := range acc[0] {
		x = append(x, p.takeTile())
		for i, v := range x[t] {
			VMOVUPS(p.value(t, i), v)
		}
	}
	if len(x) == 1 && p.parts == 1 {
		for r := range acc {
			VFMADD231PS_BCST(p.weight(r, 0), x[0][0], acc[r][0][0])
		}
		return
	}
	w := p.take()
	for r := range acc {
		VBROADCASTSS(p.weight(r, 0), w)
		for t := range x {
			for i, v := range x[t] {
				VFMADD231PS(v, w, acc[r][t][i])
			}
		}
	}
}

func (p *product) multiplyDot(acc accumulators) {
	var x []reg.VecPhysical
	for t := range acc[0] {
		x = append(x, p.take())
		if p.format == int8dot { // to unsigned: x + 128
			VPXORD(p.value(t, 0), p.consts[0], x[t])
		} else {
			VMOVDQU32(p.value(t, 0), x[t])
		}
	}
	w := p.take()
	for r := range acc {
		VPBROADCASTD(p.weight(r, 0), w)
		for t := range x {
			if p.format == int8dot {
				VPDPBUSD(w, x[t], acc[r][t][0])
			} else {
				vdpbf16ps(w, x[t], acc[r][t][0])
			}
		}
	}
}

// multiplyWide splits the words of x: odd then even values of bfloat16, which is
// the order of VDPBF16PS; values 1 and 3, then 0 and 2, of int8.
func (p *product) multiplyWide(acc accumulators) {
	odd, even := make([][]reg.VecPhysical, len(acc[0])), make([][]reg.VecPhysical, len(acc[0]))
	for t := range acc[0] {
		odd[t], even[t] = p.takeTile(), p.takeTile()
		for i := range odd[t] {
			p.split(p.value(t, i), odd[t][i], even[t][i])
		}
	}
	w := p.take()
	for r := range acc {
		for word, x := range [][][]reg.VecPhysical{odd, even} {
			if p.format == bfloat16wide {
				VBROADCASTSS(p.weight(r, word), w)
			} else {
				VPBROADCASTD(p.weight(r, word), w)
			}
			for t := range x {
				for i, v := range x[t] {
					if p.format == bfloat16wide {
						VFMADD231PS(v, w, acc[r][t][i])
						continue
					}
					product := p.take()
					VPMADDWD(w, v, product)
					VPADDD(product, acc[r][t][i], acc[r][t][i])
					p.next--
				}
			}
		}
	}
}

func (p *product) split(m Mem, odd, even reg.VecPhysical) {
	if p.format == bfloat16wide {
		if p.parts == 1 {
			VPANDD(m, p.consts[0], odd)
			VPSLLD(Imm(16), m, even)
			return
		}
		VPAND(m, p.consts[0], odd)
		VMOVDQU(m, even)
		VPSLLD(Imm(16), even, even)
		return
	}
	VMOVDQU(m, even)
	VPSRAW(Imm(8), even, odd)
	VPSLLW(Imm(8), even, even)
	VPSRAW(Imm(8), even, even)
}

// vdpbf16ps writes VDPBF16PS z, y, x as bytes (EVEX.512.F3.0F38.W0 52 /r): x += y·z.
func vdpbf16ps(z, y, x reg.VecPhysical) { evex("VDPBF16PS", 2, 0x52, z, y, x) }

// vcvtne2ps2bf16 writes VCVTNE2PS2BF16 z, y, x as bytes (EVEX.512.F2.0F38.W0 72 /r): z rounded,
// and behind it y.
func vcvtne2ps2bf16(z, y, x reg.VecPhysical) { evex("VCVTNE2PS2BF16", 3, 0x72, z, y, x) }

// evex writes an instruction of three registers of 512 bits, of the map 0F38 with W0.
func evex(name string, prefix, opcode uint64, z, y, x reg.VecPhysical) {
	rm, v, r := uint64(z.PhysicalIndex()), uint64(y.PhysicalIndex()), uint64(x.PhysicalIndex())
	bit := func(n, i uint64) uint64 { return ^n >> i & 1 } // inverted
	p0 := bit(r, 3)<<7 | bit(rm, 4)<<6 | bit(rm, 3)<<5 | bit(r, 4)<<4 | 2
	p1 := (^v&15)<<3 | 1<<2 | prefix
	p2 := uint64(2<<5) | bit(v, 4)<<3
	modrm := 3<<6 | (r&7)<<3 | rm&7
	Comment(fmt.Sprintf("%s Z%d, Z%d, Z%d", name, rm, v, r))
	for _, b := range []uint64{0x62, p0, p1, p2, opcode, modrm} {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(b)}})
	}
}
