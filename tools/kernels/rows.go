package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowsOf emits inner products of one vector with the rows of a matrix, four rows at a
// time, and prefetches the next four rows. With squares set, it multiplies each row
// with itself.
func (s isa) rowsOf(squares bool) {
	name, what := "rows"+s.name, "v with count rows"
	if squares {
		name, what = "squares"+s.name, "count rows with themselves, v being one of them,"
	}
	TEXT(name, NOSPLIT, "func(dst, v, m *float32, rows *int32, stride, count, n int)")
	Pragma("noescape")
	Doc(name+" writes the inner products of "+what+" of m, stride bytes apart, to dst: those whose numbers are in rows,",
		"or the first if it is nil. count is a multiple of four, n > 0.")
	dst, v, numbers := Load(Param("dst"), GP64()), Load(Param("v"), GP64()), Load(Param("rows"), GP64())
	count := Load(Param("count"), GP64())
	row, next := make([]reg.Register, 4), make([]reg.Register, 4)
	for i := range row {
		row[i], next[i] = GP64(), GP64()
	}
	m := Load(Param("m"), GP64())
	MOVQ(m, next[0]) // the first row where rows is nil
	s.nextRows(name+"first", numbers, next)
	loop := name + "loop"
	Label(loop)
	for i := range row {
		MOVQ(next[i], row[i])
	}
	CMPQ(count, Imm(4))
	JE(LabelRef(loop + "last"))
	stride := Load(Param("stride"), GP64())
	LEAQ(Mem{Base: row[0], Index: stride, Scale: 4}, next[0])
	s.nextRows(loop, numbers, next)
	Label(loop + "last")
	acc := s.accumulators4()
	s.dots(loop, []reg.Register{v}, row, [][][2]reg.VecVirtual{acc}, squares, func(i int, at reg.Register, d int) Mem {
		return Mem{Base: next[i], Index: at, Scale: 1, Disp: d}
	})
	VMOVUPS(s.sum4(acc), Mem{Base: dst})
	ADDQ(Imm(16), dst)
	SUBQ(Imm(4), count)
	JNZ(LabelRef(loop))
	VZEROUPPER()
	RET()
}

// nextRows sets the four pointers, from the numbers, which then move on, or from
// the first of them.
func (s isa) nextRows(label string, numbers reg.Register, next []reg.Register) {
	stride := Load(Param("stride"), GP64())
	TESTQ(numbers, numbers)
	JZ(LabelRef(label + "inorder"))
	m := Load(Param("m"), GP64())
	for i, p := range next {
		MOVLQSX(Mem{Base: numbers, Disp: 4 * i}, p)
		IMULQ(stride, p)
		ADDQ(m, p)
	}
	ADDQ(Imm(16), numbers)
	JMP(LabelRef(label + "set"))
	Label(label + "inorder")
	for i := 1; i < 4; i++ {
		LEAQ(Mem{Base: next[i-1], Index: stride, Scale: 1}, next[i])
	}
	Label(label + "set")
}

// cachedVectors is how many vectors cached multiplies with each row that it loads.
const cachedVectors = 3

// cached emits inner products of several vectors with consecutive rows that the cache holds.
// Each result equals the result of rows bit for bit.
func (s isa) cached() {
	name := "cached" + s.name
	TEXT(name, NOSPLIT, "func(dst, v, m *float32, next, step, stride, count, n int)")
	Pragma("noescape")
	Doc(name+" writes the inner products of three vectors, step bytes apart from v on, with the first count rows of m, stride",
		"bytes apart, to dst; the products of the next vector begin next bytes further. count is a multiple of four, n > 0.")
	dst, count := Load(Param("dst"), GP64()), Load(Param("count"), GP64())
	v, row := []reg.Register{Load(Param("v"), GP64()), GP64(), GP64()}, []reg.Register{Load(Param("m"), GP64()), GP64(), GP64(), GP64()}
	step := Load(Param("step"), GP64())
	for k := 1; k < cachedVectors; k++ {
		LEAQ(Mem{Base: v[k-1], Index: step, Scale: 1}, v[k])
	}
	loop := name + "loop"
	Label(loop)
	stride := Load(Param("stride"), GP64())
	for i := 1; i < len(row); i++ {
		LEAQ(Mem{Base: row[i-1], Index: stride, Scale: 1}, row[i])
	}
	var acc [][][2]reg.VecVirtual
	for range cachedVectors {
		acc = append(acc, s.accumulators4())
	}
	s.dots(loop, v, row, acc, false, nil)
	next, at := Load(Param("next"), GP64()), GP64()
	MOVQ(dst, at)
	for _, a := range acc {
		VMOVUPS(s.sum4(a), Mem{Base: at})
		ADDQ(next, at)
	}
	stride = Load(Param("stride"), GP64())
	LEAQ(Mem{Base: row[3], Index: stride, Scale: 1}, row[0])
	ADDQ(Imm(16), dst)
	SUBQ(Imm(4), count)
	JNZ(LabelRef(loop))
	VZEROUPPER()
	RET()
}

// streamRows is the number of rows that stream takes at once; with more rows the
// processor's own prefetching lags behind. streamAhead is the distance in bytes at
// which stream prefetches.
const (
	streamRows  = 2
	streamAhead = 2048
)

// stream emits inner products of one vector with consecutive rows, reading memory
// nearly in order. Each result equals the result of rows bit for bit.
func (s isa) stream() {
	name := "stream" + s.name
	TEXT(name, NOSPLIT, "func(dst, v, m *float32, stride, count, n int)")
	Pragma("noescape")
	Doc(name+" writes the inner products of v with the first count rows of m, stride bytes apart, to dst. count is a multiple",
		"of four, n > 0.")
	dst, v, row := Load(Param("dst"), GP64()), Load(Param("v"), GP64()), []reg.Register{Load(Param("m"), GP64()), GP64()}
	stride, count := Load(Param("stride"), GP64()), Load(Param("count"), GP64())
	loop := name + "loop"
	Label(loop)
	acc := s.accumulators4()
	for i := 0; i < len(acc); i += streamRows {
		LEAQ(Mem{Base: row[0], Index: stride, Scale: 1}, row[1])
		s.dots(fmt.Sprintf("%s%d", loop, i), []reg.Register{v}, row, [][][2]reg.VecVirtual{acc[i : i+streamRows]}, false, func(j int, at reg.Register, d int) Mem {
			return Mem{Base: row[j], Index: at, Scale: 1, Disp: streamAhead + d}
		})
		LEAQ(Mem{Base: row[1], Index: stride, Scale: 1}, row[0])
	}
	VMOVUPS(s.sum4(acc), Mem{Base: dst})
	ADDQ(Imm(16), dst)
	SUBQ(Imm(4), count)
	JNZ(LabelRef(loop))
	VZEROUPPER()
	RET()
}

// accumulators4 are two sums, zero, of each of four rows.
func (s isa) accumulators4() [][2]reg.VecVirtual {
	acc := make([][2]reg.VecVirtual, 4)
	for i := range acc {
		for j := range acc[i] {
			acc[i][j] = s.vec().(reg.VecVirtual)
			s.zero(tile{acc[i][j]})
		}
	}
	return acc
}

// dots adds the inner products of vectors with rows to their sums, acc[vector][row]: of 2·16
// or 2·8 numbers a step, the numbers behind the last whole step to the first of them. What
// ahead says of row i, the numbers that a step is at and d bytes is brought on the way,
// unless ahead is nil.
func (s isa) dots(label string, v, row []reg.Register, acc [][][2]reg.VecVirtual, squares bool, ahead func(i int, at reg.Register, d int) Mem) {
	step := s.bytes / 4
	at, n := GP64(), GP64()
	XORQ(at, at)
	Load(Param("n"), n)
	Label(label + "two")
	CMPQ(n, Imm(uint64(2*step)))
	JL(LabelRef(label + "one"))
	for i := range row {
		for d := 0; ahead != nil && d < 2*s.bytes; d += 64 {
			PREFETCHT0(ahead(i, at, d))
		}
	}
	for j := range 2 {
		s.dotStep(v, row, at, j, acc, squares)
	}
	ADDQ(I32(2*s.bytes), at)
	SUBQ(Imm(uint64(2*step)), n)
	JMP(LabelRef(label + "two"))
	Label(label + "one")
	CMPQ(n, Imm(uint64(step)))
	JL(LabelRef(label + "tail"))
	s.dotStep(v, row, at, 0, acc, squares)
	ADDQ(Imm(uint64(s.bytes)), at)
	SUBQ(Imm(uint64(step)), n)
	Label(label + "tail")
	TESTQ(n, n)
	JZ(LabelRef(label + "sum"))
	s.dotTail(v, row, at, n, acc, squares)
	Label(label + "sum")
}

// dotStep adds the products of register j of a step to the sums with that number. With
// squares, rows are multiplied with themselves. A row is loaded once for several vectors.
func (s isa) dotStep(v, row []reg.Register, at reg.Register, j int, acc [][][2]reg.VecVirtual, squares bool) {
	x := make([]reg.Register, len(v))
	for k := range v {
		x[k] = s.vec()
		VMOVUPS(Mem{Base: v[k], Index: at, Scale: 1, Disp: j * s.bytes}, x[k])
	}
	for i, r := range row {
		m := Mem{Base: r, Index: at, Scale: 1, Disp: j * s.bytes}
		switch {
		case squares:
			VMOVUPS(m, x[0])
			VFMADD231PS(x[0], x[0], acc[0][i][j])
		case len(v) == 1:
			VFMADD231PS(m, x[0], acc[0][i][j])
		default:
			w := s.vec()
			VMOVUPS(m, w)
			for k := range v {
				VFMADD231PS(w, x[k], acc[k][i][j])
			}
		}
	}
}

func (s isa) multiplyAdd(row, x, acc reg.Register, squares bool) {
	if squares {
		x = row
	}
	VFMADD231PS(row, x, acc)
}

// dotTail adds the last n numbers, fewer than a register holds.
func (s isa) dotTail(v, row []reg.Register, at, n reg.Register, acc [][][2]reg.VecVirtual, squares bool) {
	x := make([]reg.Register, len(v))
	for k := range x {
		x[k] = s.vec()
	}
	y := s.vec()
	masks := GP64()
	LEAQ(tailMask, masks)
	SHLQ(Imm(2), n)
	SUBQ(n, masks) // the end of the ones is n numbers further
	var load func(from Mem, to reg.Register)
	if s.parts == 1 {
		ones, k := ZMM(), K()
		VMOVUPS(Mem{Base: masks, Disp: 64}, ones)
		VPMOVD2M(ones, k)
		load = func(from Mem, to reg.Register) { VMOVUPS_Z(from, k, to) }
	} else {
		mask := YMM()
		VMOVUPS(Mem{Base: masks, Disp: 64}, mask)
		load = func(from Mem, to reg.Register) { VMASKMOVPS(from, mask, to) }
	}
	for k := range v {
		load(Mem{Base: v[k], Index: at, Scale: 1}, x[k])
	}
	for i, r := range row {
		load(Mem{Base: r, Index: at, Scale: 1}, y)
		for k := range v {
			s.multiplyAdd(y, x[k], acc[k][i][0], squares)
		}
	}
}

// tailMask is sixteen words of ones and sixteen of zeros.
var tailMask Mem

// sum4 adds each of four pairs of registers up and puts the sums side by side.
func (s isa) sum4(acc [][2]reg.VecVirtual) reg.Register {
	for i := range acc {
		VADDPS(acc[i][1], acc[i][0], acc[i][0])
	}
	a, b, c, d, t := acc[0][0], acc[1][0], acc[2][0], acc[3][0], s.vec()
	VUNPCKLPS(b, a, t)
	VUNPCKHPS(b, a, a)
	VADDPS(t, a, a)
	VUNPCKLPS(d, c, t)
	VUNPCKHPS(d, c, c)
	VADDPS(t, c, c)
	VUNPCKLPD(c, a, t)
	VUNPCKHPD(c, a, a)
	VADDPS(t, a, a)
	if s.parts == 1 {
		y := YMM()
		VEXTRACTF64X4(Imm(1), a, y)
		VADDPS(y, a.AsY(), y)
		x := XMM()
		VEXTRACTF32X4(Imm(1), y, x)
		VADDPS(x, y.AsX(), x)
		return x
	}
	x := XMM()
	VEXTRACTF128(Imm(1), a, x)
	VADDPS(x, a.AsX(), x)
	return x
}

// Offsets of the fields of crossArgs.
const (
	crossRows = 8 * iota
	crossStride
	crossCount
	crossSteps
	crossQ
	crossQTile
	crossC
	crossCRow
)

// cross: products of rows, read as they lie, with vectors in the lanes of one, two or
// four tiles.
func (s isa) cross(tiles, rows int) {
	name := fmt.Sprintf("cross%d%s", tiles, s.name)
	TEXT(name, NOSPLIT, "func(args *byte)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s writes the products of rows with the vectors in the lanes of %d tile(s).", name, tiles))
	args := Load(Param("args"), GP64())
	for r := rows; r >= 1; r = map[int]int{12: 4, 6: 2, 4: 1, 2: 1}[r] {
		loop := fmt.Sprintf("%srows%d", name, r)
		Label(loop)
		CMPQ(Mem{Base: args, Disp: crossCount}, Imm(uint64(r)))
		JL(LabelRef(loop + "end"))
		s.crossBlock(loop, args, tiles, r)
		JMP(LabelRef(loop))
		Label(loop + "end")
	}
	VZEROUPPER()
	RET()
}

func (s isa) crossBlock(label string, args reg.Register, tiles, rows int) {
	p := &product{isa: s}
	acc := make(accumulators, rows)
	for r := range acc {
		for range tiles {
			t := p.takeTile()
			acc[r] = append(acc[r], t)
			for _, a := range t {
				s.zero(tile{a})
			}
		}
	}
	stride, q, qtile, n, ahead, aheadStep := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(Mem{Base: args, Disp: crossStride}, stride)
	base := make([]reg.Register, (rows+2)/3) // every third row
	for i := range base {
		base[i] = GP64()
		if i == 0 {
			MOVQ(Mem{Base: args, Disp: crossRows}, base[i])
			continue
		}
		LEAQ(Mem{Base: base[i-1], Index: stride, Scale: 2}, base[i])
		ADDQ(stride, base[i])
	}
	MOVQ(Mem{Base: args, Disp: crossQ}, q)
	MOVQ(Mem{Base: args, Disp: crossQTile}, qtile)
	var qtile3 reg.Register
	if tiles == 4 {
		qtile3 = GP64()
		LEAQ(Mem{Base: qtile, Index: qtile, Scale: 2}, qtile3)
	}
	MOVQ(Mem{Base: args, Disp: crossSteps}, n)
	MOVQ(stride, ahead) // the rows behind these are next: the loop brings rows·4 bytes a step
	IMUL3Q(U32(uint32(rows)), ahead, ahead)
	ADDQ(base[0], ahead)
	MOVQ(U32(uint32(rows*4)), aheadStep)
	Label(label + "k")
	saved := p.next
	var x [][]reg.VecPhysical
	for t := range tiles {
		x = append(x, p.takeTile())
		for i, v := range x[t] {
			m := Mem{Base: q, Disp: i * s.bytes}
			switch t {
			case 1, 2:
				m.Index, m.Scale = qtile, uint8(t)
			case 3:
				m.Index, m.Scale = qtile3, 1
			}
			VMOVUPS(m, v)
		}
	}
	w := p.take()
	for r := range acc {
		m := Mem{Base: base[r/3]}
		if r%3 > 0 {
			m.Index, m.Scale = stride, uint8(r%3)
		}
		VBROADCASTSS(m, w)
		for t := range x {
			for i, v := range x[t] {
				VFMADD231PS(v, w, acc[r][t][i])
			}
		}
	}
	p.next = saved
	for _, b := range base {
		ADDQ(Imm(4), b)
	}
	ADDQ(Imm(lanes*4), q)
	PREFETCHT0(Mem{Base: ahead})
	ADDQ(aheadStep, ahead)
	DECQ(n)
	JNZ(LabelRef(label + "k"))
	c, crow := GP64(), GP64()
	MOVQ(Mem{Base: args, Disp: crossC}, c)
	MOVQ(Mem{Base: args, Disp: crossCRow}, crow)
	for r := range acc {
		for t := range acc[r] {
			for i, a := range acc[r][t] {
				VMOVUPS(a, Mem{Base: c, Disp: t*lanes*4 + i*s.bytes})
			}
		}
		ADDQ(crow, c)
	}
	MOVQ(c, Mem{Base: args, Disp: crossC})
	IMUL3Q(U32(uint32(rows)), stride, stride)
	ADDQ(stride, Mem{Base: args, Disp: crossRows})
	SUBQ(Imm(uint64(rows)), Mem{Base: args, Disp: crossCount})
}

// foldRows generates the kernel that writes the maximum of each column of a matrix.
func (s isa) foldRows() {
	TEXT("fold"+s.name, NOSPLIT, "func(dst, c *float32, stride, rows, n int)")
	Pragma("noescape")
	Doc("fold"+s.name+" writes the greatest of each column of rows, stride bytes apart, to dst, n·16 of them; what is not finite",
		"makes the column's not finite.")
	dst, c, n := Load(Param("dst"), GP64()), Load(Param("c"), GP64()), Load(Param("n"), GP64())
	stride := Load(Param("stride"), GP64())
	loop := "fold" + s.name
	top, check, zero := s.vec(), s.vec(), s.vec()
	s.zero(tile{zero})
	if s.parts == 2 {
		SHLQ(Imm(1), n)
	}
	Label(loop + "columns")
	rows, at := Load(Param("rows"), GP64()), GP64()
	MOVQ(c, at)
	VMOVUPS(Mem{Base: c}, top)
	s.zero(tile{check})
	Label(loop + "rows")
	v := s.vec()
	VMOVUPS(Mem{Base: at}, v)
	VMAXPS(v, top, top)
	VFMADD231PS(zero, v, check)
	ADDQ(stride, at)
	DECQ(rows)
	JNZ(LabelRef(loop + "rows"))
	VADDPS(check, top, top)
	VMOVUPS(top, Mem{Base: dst})
	ADDQ(Imm(uint64(s.bytes)), dst)
	ADDQ(Imm(uint64(s.bytes)), c)
	DECQ(n)
	JNZ(LabelRef(loop + "columns"))
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
