// Command neon generates the arm64 assembly of rerank/kernel. avo does not know
// the architecture, and Go's assembler lacks most of its vector instructions on
// float32: those are written as words, with their names beside them.
package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// lanes is the number of candidates in a tile: four registers of four.
const (
	lanes = 16
	parts = 4
)

// The exponential is the same as in tools/kernels: 2^t = 2ⁿ·(1 + r·poly(r)).
var poly = []float32{0.001326472731307149, 0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653, 1}

var out strings.Builder

func line(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }

func op(format string, args ...any) { line("\t"+format, args...) }

// Opcodes of three registers of four float32 or int32.
const (
	fadd  = 0x4e20d400
	fsub  = 0x4ea0d400
	fmul  = 0x6e20dc00
	fdiv  = 0x6e20fc00
	fmax  = 0x4e20f400
	fmin  = 0x4ea0f400
	fmla  = 0x4e20cc00
	faddp = 0x6e20d400
	add   = 0x4ea08400
	eor   = 0x6e201c00
	orr   = 0x4ea01c00
)

var names = map[uint32]string{
	fadd: "FADD", fsub: "FSUB", fmul: "FMUL", fdiv: "FDIV", fmax: "FMAX", fmin: "FMIN", fmla: "FMLA", faddp: "FADDP", add: "ADD", eor: "EOR", orr: "ORR",
}

// three is d = n op m.
func three(code uint32, d, n, m uint32) {
	op("WORD $0x%08x // %s V%d, V%d, V%d", code|m<<16|n<<5|d, names[code], d, n, m)
}

// two is d = op n.
func two(name string, code uint32, d, n uint32) {
	op("WORD $0x%08x // %s V%d, V%d", code|n<<5|d, name, d, n)
}

func move(d, n uint32) { three(orr, d, n, n) }
func zero(d uint32)    { three(eor, d, d, d) }

// fmlaElement is d += n·m[i].
func fmlaElement(d, n, m, i uint32) {
	op("WORD $0x%08x // FMLA V%d.S4, V%d.S4, V%d.S[%d]", 0x4f801000|(i&1)<<21|m<<16|(i>>1)<<11|n<<5|d, d, n, m, i)
}

func registers(first uint32) string {
	return fmt.Sprintf("[V%d.S4, V%d.S4, V%d.S4, V%d.S4]", first, first+1, first+2, first+3)
}

// Constants stay in registers from V20 on.
const (
	negLog2e = 20 + iota
	posLog2e
	high
	low
	first // of poly; the last is one
	one   = first + 5
)

func constants() {
	values := append([]float32{-math.Log2E, math.Log2E, 125, -125}, poly...)
	for i, v := range values {
		for j := range 4 {
			line("DATA neonConstants<>+%d(SB)/4, $0x%08x // %g", i*16+j*4, math.Float32bits(v), v)
		}
	}
	line("GLOBL neonConstants<>(SB), RODATA|NOPTR, $%d\n", len(values)*16)
}

func loadConstants() {
	op("MOVD $neonConstants<>(SB), R9")
	for i := range 4 + len(poly) {
		op("VLD1.P 16(R9), [V%d.S4]", negLog2e+i)
	}
}

// exp2 replaces t, |t| ≤ 125, by 2^t; it changes r, p and q.
func exp2(t, r, p, q uint32) {
	three(fmin, t, t, high)
	three(fmax, t, t, low)
	two("FRINTN", 0x4e218800, r, t)
	two("FCVTNS", 0x4e21a800, q, r)
	three(fsub, t, t, r)
	two("SHL $23,", 0x4f375400, q, q)
	move(p, first)
	for i := 1; i < len(poly); i++ {
		move(r, first+uint32(i))
		three(fmla, r, p, t)
		p, r = r, p
	}
	three(add, t, p, q)
}

func text(name, args string, size int, doc string) {
	line("// func %s(%s)\n// %s\nTEXT ·%s(SB), NOSPLIT, $0-%d", name, args, doc, name, size)
}

func gemm() {
	text("gemmNEON", "c *float32, stride int, a, b *float32, k int", 40, "adds a panel of four rows times a tile to c, whose rows are stride bytes apart; k > 0.")
	op("MOVD c+0(FP), R0\n\tMOVD stride+8(FP), R1\n\tMOVD a+16(FP), R2\n\tMOVD b+24(FP), R3\n\tMOVD k+32(FP), R4")
	op("MOVD R0, R5")
	for r := range uint32(4) {
		op("VLD1 (R5), %s", registers(4*r))
		op("ADD R1, R5")
	}
	line("gemmloop:")
	op("VLD1.P 16(R2), [V20.S4]")
	op("VLD1.P 64(R3), %s", registers(16))
	for r := range uint32(4) {
		for i := range uint32(parts) {
			fmlaElement(4*r+i, 16+i, 20, r)
		}
	}
	op("SUBS $1, R4\n\tBNE gemmloop")
	for r := range uint32(4) {
		op("VST1 %s, (R0)", registers(4*r))
		op("ADD R1, R0")
	}
	op("RET\n")
}

func silu() {
	text("siluNEON", "x *float32, n int", 16, "replaces every one of the n·16 numbers x by x·sigmoid(x); n > 0.")
	op("MOVD x+0(FP), R0\n\tMOVD n+8(FP), R1")
	loadConstants()
	line("siluloop:")
	op("VLD1 (R0), %s", registers(0))
	for i := range uint32(parts) {
		three(fmul, 4, i, negLog2e)
		exp2(4, 5, 6, 7)
		three(fadd, 4, 4, one)
		three(fdiv, i, i, 4)
	}
	op("VST1.P %s, 64(R0)", registers(0))
	op("SUBS $1, R1\n\tBNE siluloop\n\tRET\n")
}

func mix() {
	text("mixNEON", "out, logits, gates *float32, n int", 32, "writes Σ_l softmax(gates)_l · logits_l of each of 16 lanes to out; both are n×16, n > 0.")
	op("MOVD out+0(FP), R0\n\tMOVD logits+8(FP), R1\n\tMOVD gates+16(FP), R2\n\tMOVD n+24(FP), R3")
	loadConstants()
	op("MOVD $%d, R4", parts)
	line("mixpart:")
	op("MOVD R2, R5\n\tMOVD R3, R6\n\tMOVD $%d, R8", lanes*4)
	op("VLD1 (R5), [V16.S4]") // the greatest
	line("mixmax:")
	op("VLD1.P (R5)(R8), [V17.S4]")
	three(fmax, 16, 16, 17)
	op("SUBS $1, R6\n\tBNE mixmax")
	zero(17) // sum
	zero(18) // weighted
	zero(19)
	op("MOVD R2, R5\n\tMOVD R1, R7\n\tMOVD R3, R6")
	line("mixsum:")
	op("VLD1.P (R5)(R8), [V0.S4]")
	op("VLD1.P (R7)(R8), [V1.S4]")
	three(fsub, 0, 0, 16)
	three(fmla, 17, 0, 19) // NaN for a value that is not finite
	three(fmul, 0, 0, posLog2e)
	exp2(0, 5, 6, 7)
	three(fadd, 17, 17, 0)
	three(fmla, 18, 0, 1)
	op("SUBS $1, R6\n\tBNE mixsum")
	three(fdiv, 18, 18, 17)
	op("VST1.P [V18.S4], 16(R0)")
	op("ADD $16, R1\n\tADD $16, R2\n\tSUBS $1, R4\n\tBNE mixpart\n\tRET\n")
}

func madd() {
	text("maddNEON", "c, a, b *float32, n int", 32, "adds a·b to each of the n·16 numbers c; n > 0.")
	op("MOVD c+0(FP), R0\n\tMOVD a+8(FP), R1\n\tMOVD b+16(FP), R2\n\tMOVD n+24(FP), R3")
	line("maddloop:")
	op("VLD1 (R0), %s", registers(0))
	op("VLD1.P 64(R1), %s", registers(4))
	op("VLD1.P 64(R2), %s", registers(8))
	for i := range uint32(parts) {
		three(fmla, i, 4+i, 8+i)
	}
	op("VST1.P %s, 64(R0)", registers(0))
	op("SUBS $1, R3\n\tBNE maddloop\n\tRET\n")
}

func rows() {
	text("rowsNEON", "dst, v, r0, r1, r2, r3 *float32, n int", 56, "writes the inner products of v with four rows of n·8 numbers to dst; n > 0.")
	op("MOVD dst+0(FP), R0\n\tMOVD v+8(FP), R1\n\tMOVD r0+16(FP), R2\n\tMOVD r1+24(FP), R3\n\tMOVD r2+32(FP), R4\n\tMOVD r3+40(FP), R5\n\tMOVD n+48(FP), R6")
	for i := range uint32(8) {
		zero(i)
	}
	line("rowsloop:")
	op("VLD1.P 32(R1), [V8.S4, V9.S4]")
	for r := range uint32(4) {
		op("VLD1.P 32(R%d), [V%d.S4, V%d.S4]", 2+r, 10+2*r, 11+2*r)
	}
	for r := range uint32(4) {
		three(fmla, 2*r, 10+2*r, 8)
		three(fmla, 2*r+1, 11+2*r, 9)
	}
	op("SUBS $1, R6\n\tBNE rowsloop")
	for r := range uint32(4) {
		three(fadd, 2*r, 2*r, 2*r+1)
	}
	three(faddp, 0, 0, 2)
	three(faddp, 4, 4, 6)
	three(faddp, 0, 0, 4)
	op("VST1 [V0.S4], (R0)\n\tRET")
}

func main() {
	line("// Code generated by tools/kernels/neon. DO NOT EDIT.\n\n//go:build arm64 && !noasm\n\n#include \"textflag.h\"\n")
	constants()
	gemm()
	silu()
	mix()
	madd()
	rows()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "neon: want the file to write")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(out.String()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "neon:", err)
		os.Exit(1)
	}
}
