//go:build amd64 && !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/likenessdb/likeness/rerank"
)

// accelerated returns the sets of assembly kernels that this processor can run, the fastest
// last.
func accelerated() []*Set {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return nil
	}
	sets := []*Set{{name: "avx2", isa: avx2}}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512BW {
		bf16 := cpu.X86.HasAVX512BF16
		sets = append(sets, &Set{name: "avx512", isa: avx512, bf16: bf16, vnni: cpu.X86.HasAVX512VNNI, amx: bf16 && hasMatrixUnit()})
	}
	return sets
}

// The callers of the methods below have made sure that slices are not empty and lengths
// match. The methods call the assembly by name, not through variables, so that their
// arguments do not escape to the heap.

// gemm is only used by the plain set. The other sets have assembly for whole products.
func (isa) gemm(c []float32, stride int, a, b []float32, m, k int) { gemmGo(c, stride, a, b, m, k) }

func (i isa) product(args *productArgs) {
	if i == avx512 {
		productAVX512((*byte)(unsafe.Pointer(args)))
	} else {
		productAVX2((*byte)(unsafe.Pointer(args)))
	}
}

func (i isa) productBFloat16(args *productArgs, native bool) {
	switch {
	case native:
		productBF16((*byte)(unsafe.Pointer(args)))
	case i == avx512:
		productBFloat16AVX512((*byte)(unsafe.Pointer(args)))
	default:
		productBFloat16AVX2((*byte)(unsafe.Pointer(args)))
	}
}

func (isa) productMatrix(args *productArgs) { productAMX((*byte)(unsafe.Pointer(args))) }

func (i isa) productInt8(args *productArgs, native bool) {
	if native {
		productVNNI((*byte)(unsafe.Pointer(args)))
	} else {
		productInt8AVX2((*byte)(unsafe.Pointer(args)))
	}
}

func (isa) narrow(dst []uint32, lost *[Lanes]float32, tile []float32) {
	narrowAVX512(&dst[0], &lost[0], &tile[0], len(dst)/Lanes)
}

// fma computes rounds of multiply-adds and returns how many numbers each instruction
// handles.
func (i isa) fma(out *float32, rounds int) int {
	switch i {
	case avx512:
		fmaAVX512(out, rounds)
		return 16
	case avx2:
		fmaAVX2(out, rounds)
		return 8
	default:
		fmaGo(out, rounds)
		return 1
	}
}

func (i isa) read(out *float32, v []float32, steps int) {
	if i == avx512 {
		readAVX512(out, &v[0], steps)
	} else {
		readAVX2(out, &v[0], steps)
	}
}

// widen converts n words of 16 lanes.
func (i isa) widen(f rerank.Format, dst []float32, words, scales []uint32, n int) {
	switch {
	case i == plain || n == 0:
		widenGo(f, dst, words, scales, n)
	case f == rerank.FormatInt8 && i == avx512:
		widenInt8AVX512(&dst[0], &words[0], &scales[0], n)
	case f == rerank.FormatInt8:
		widenInt8AVX2(&dst[0], &words[0], &scales[0], n)
	case f == rerank.FormatBFloat16 && i == avx512:
		widenBFloat16AVX512(&dst[0], &words[0], n)
	case f == rerank.FormatBFloat16:
		widenBFloat16AVX2(&dst[0], &words[0], n)
	case i == avx512:
		widenFloat16AVX512(&dst[0], &words[0], n)
	default:
		widenFloat16AVX2(&dst[0], &words[0], n)
	}
}

func (i isa) silu(x []float32) {
	whole := len(x) / Lanes
	switch {
	case i == plain || whole == 0:
		whole = 0
	case i == avx512:
		siluAVX512(&x[0], whole)
	default:
		siluAVX2(&x[0], whole)
	}
	SiLU(x[whole*Lanes:])
}

func (i isa) exps(x []float32) {
	whole := len(x) / Lanes
	switch {
	case i == plain || whole == 0:
		whole = 0
	case i == avx512:
		expAVX512(&x[0], whole)
	default:
		expAVX2(&x[0], whole)
	}
	Exps(x[whole*Lanes:])
}

func (i isa) mix(out *[Lanes]float32, logits, gates []float32) {
	switch i {
	case avx512:
		mixAVX512(&out[0], &logits[0], &gates[0], len(logits)/Lanes)
	case avx2:
		mixAVX2(&out[0], &logits[0], &gates[0], len(logits)/Lanes)
	default:
		mixGo(out, logits, gates)
	}
}

func (i isa) extent(out *[3][Lanes]float32, x []float32) {
	switch i {
	case avx512:
		extentAVX512(&out[0][0], &x[0], len(x)/Lanes)
	case avx2:
		extentAVX2(&out[0][0], &x[0], len(x)/Lanes)
	default:
		extentGo(out, x)
	}
}

func (i isa) weigh(out *[2][Lanes]float32, logits, gates []float32) {
	switch i {
	case avx512:
		weighAVX512(&out[0][0], &logits[0], &gates[0], len(logits)/Lanes)
	case avx2:
		weighAVX2(&out[0][0], &logits[0], &gates[0], len(logits)/Lanes)
	default:
		weighGo(out, logits, gates)
	}
}

func (i isa) bound(out *[Lanes]float32, weighed *[2][Lanes]float32, squares *[4]*[Lanes]float32, errors *GateErrors, reach float32) {
	switch i {
	case avx512:
		boundAVX512(&out[0], &weighed[0][0], &squares[0][0], &squares[1][0], &squares[2][0], &squares[3][0], &errors.All[0])
	case avx2:
		boundAVX2(&out[0], &weighed[0][0], &squares[0][0], &squares[1][0], &squares[2][0], &squares[3][0], &errors.All[0])
	default:
		boundGo(out, weighed, squares, errors, reach)
	}
}

func (i isa) madd(c, a, b []float32) {
	switch i {
	case avx512:
		maddAVX512(&c[0], &a[0], &b[0], len(c)/Lanes)
	case avx2:
		maddAVX2(&c[0], &a[0], &b[0], len(c)/Lanes)
	default:
		maddGo(c, a, b)
	}
}

func (i isa) tile(dst []float32, rows *[Lanes][]float32) {
	if i == plain {
		tileGo(dst, rows)
		return
	}
	n := len(rows[0])
	whole := n &^ 7
	for half := 0; half < Lanes && whole > 0; half += 8 {
		r := (*[8][]float32)(rows[half:])
		transpose8(&dst[half], &r[0][0], &r[1][0], &r[2][0], &r[3][0], &r[4][0], &r[5][0], &r[6][0], &r[7][0], whole)
	}
	for c := whole; c < n; c++ {
		for l, row := range rows {
			dst[c*Lanes+l] = row[c]
		}
	}
}

func (i isa) gather(dst []float32, m rerank.Matrix, rows *[Lanes]int32, from int) {
	whole := 0
	if i != plain {
		whole = len(dst) / Lanes &^ 7
	}
	if whole > 0 {
		gather16(&dst[0], &m.Data[from], &rows[0], m.Cols*4, whole)
	}
	if whole*Lanes < len(dst) {
		gatherGo(dst, m, rows, from, whole)
	}
}

func (i isa) divide(v []float32, by float32) {
	whole := len(v) / Lanes
	switch {
	case i == plain || whole == 0:
		whole = 0
	case i == avx512:
		divideAVX512(&v[0], by, whole)
	default:
		divideAVX2(&v[0], by, whole)
	}
	divideGo(v[whole*Lanes:], by)
}

func (i isa) addScaled(dst, c []float32, step int, factor float32, n int) {
	switch i {
	case avx512:
		addScaledAVX512(&dst[0], &c[0], step*4, factor, n)
	case avx2:
		addScaledAVX2(&dst[0], &c[0], step*4, factor, n)
	default:
		addScaledGo(dst, c, step, factor, n)
	}
}

func (i isa) addInt8(dst []float32, c []int32, step int, scales []uint32, scaleStep int, factor float32, n int) {
	switch i {
	case avx512:
		addInt8AVX512(&dst[0], &c[0], step*4, &scales[0], scaleStep*4, factor, n)
	case avx2:
		addInt8AVX2(&dst[0], &c[0], step*4, &scales[0], scaleStep*4, factor, n)
	default:
		addInt8Go(dst, c, step, scales, scaleStep, factor, n)
	}
}

func (i isa) largestInt8(out *[Lanes]float32, c []int32, step, rows int, scales []uint32, blocks int, factor, off float32) {
	switch i {
	case avx512:
		largestInt8AVX512(&out[0], &c[0], step*4, rows, &scales[0], blocks, factor, off)
	case avx2:
		largestInt8AVX2(&out[0], &c[0], step*4, rows, &scales[0], blocks, factor, off)
	default:
		largestInt8Go(out, c, step, rows, scales, blocks, factor, off)
	}
}

// rows passes four rows at a time to the assembly. If fewer are left, the last row is
// repeated. If v is nil, each row is multiplied with itself.
func (i isa) rows(dst, v []float32, m rerank.Matrix, rows []int32) {
	if i == plain {
		rowsGo(dst, v, m, rows)
		return
	}
	var first *int32
	if rows == nil {
		_ = m.Data[:len(dst)*m.Cols]
	} else {
		for _, r := range rows[:len(dst)] {
			_ = m.Data[int(r)*m.Cols:][:m.Cols] // the assembly does not check bounds
		}
		first = unsafe.SliceData(rows)
	}
	whole := len(dst) &^ 3
	if whole > 0 {
		i.rows4(&dst[0], v, m, first, whole)
	}
	if whole == len(dst) {
		return
	}
	var numbers [4]int32
	var out [4]float32
	for j := range numbers {
		r := min(whole+j, len(dst)-1)
		numbers[j] = int32(r)
		if rows != nil {
			numbers[j] = rows[r]
		}
	}
	i.rows4(&out[0], v, m, &numbers[0], len(out))
	copy(dst[whole:], out[:])
}

// firstCache is a lower estimate of the bytes that a first-level cache holds. Within it,
// processing four rows at a time is faster.
const firstCache = 32 << 10

func (i isa) rows4(dst *float32, v []float32, m rerank.Matrix, rows *int32, count int) {
	data, stride := &m.Data[0], m.Cols*4
	inMemory := rows == nil && count*stride > firstCache
	switch {
	case v == nil && i == avx512:
		squaresAVX512(dst, data, data, rows, stride, count, m.Cols)
	case v == nil:
		squaresAVX2(dst, data, data, rows, stride, count, m.Cols)
	case inMemory && i == avx512:
		streamAVX512(dst, &v[0], data, stride, count, len(v))
	case inMemory:
		streamAVX2(dst, &v[0], data, stride, count, len(v))
	case i == avx512:
		rowsAVX512(dst, &v[0], data, rows, stride, count, len(v))
	default:
		rowsAVX2(dst, &v[0], data, rows, stride, count, len(v))
	}
}

// hasCached reports whether there is a function cached for rows of m.
func (i isa) hasCached(m rerank.Matrix) bool { return i == avx512 && m.Rows%4 == 0 && m.Cols > 0 }

// cached writes the inner products of cachedVectors vectors with the rows of m to rows of dst
// that begin stride numbers apart, as rows does for one vector.
func (isa) cached(dst []float32, stride int, vectors, m rerank.Matrix) {
	_, _ = dst[(cachedVectors-1)*stride+m.Rows-1], vectors.Data[cachedVectors*m.Cols-1]
	cachedAVX512(&dst[0], &vectors.Data[0], &m.Data[0], 4*stride, 4*m.Cols, 4*m.Cols, m.Rows, m.Cols)
}

// crossTiles returns how many of the remaining tiles the next call of cross should process.
func (i isa) crossTiles(left int) int {
	switch {
	case i == avx512 && left > 3:
		return 4
	case i == avx512 && left > 1:
		return 2
	}
	return 1
}

func (i isa) cross(args *crossArgs, tiles int) {
	switch {
	case tiles == 4:
		cross4AVX512((*byte)(unsafe.Pointer(args)))
	case tiles == 2:
		cross2AVX512((*byte)(unsafe.Pointer(args)))
	case i == avx512:
		cross1AVX512((*byte)(unsafe.Pointer(args)))
	default:
		cross1AVX2((*byte)(unsafe.Pointer(args)))
	}
}

func (i isa) fold(dst, c []float32, rows int) {
	switch i {
	case avx512:
		foldAVX512(&dst[0], &c[0], len(dst)*4, rows, len(dst)/Lanes)
	case avx2:
		foldAVX2(&dst[0], &c[0], len(dst)*4, rows, len(dst)/Lanes)
	default:
		foldGo(dst, c, rows)
	}
}

// spread processes multiples of eight rows and columns, or of sixteen rows, and returns how
// many rows and columns it has done.
func (i isa) spread(dst []float32, stride int, c []float32, width, rows, count int) (doneRows, doneColumns int) {
	doneRows, doneColumns = rows&^7, count&^7
	if i == plain || doneRows == 0 || doneColumns == 0 {
		return 0, 0
	}
	r := 0
	if i == avx512 && rows >= Lanes {
		r = rows / Lanes * Lanes
		for at := 0; at < doneColumns; at += 4 {
			spread16(&dst[at*stride], stride*4, &c[at], width*4, r)
		}
	}
	for ; r < doneRows; r += 8 {
		spread8(&dst[r], stride*4, &c[r*width], width*4, doneColumns)
	}
	return doneRows, doneColumns
}
