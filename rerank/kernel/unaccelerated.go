//go:build !amd64 || noasm

package kernel

// Operations that only amd64 has in assembly.

import "github.com/likenessdb/likeness/rerank"

func (isa) widen(f rerank.Format, dst []float32, words, scales []uint32, n int) {
	widenGo(f, dst, words, scales, n)
}

func (isa) exps(x []float32)                                                    { Exps(x) }
func (isa) fold(dst, c []float32, rows int)                                     { foldGo(dst, c, rows) }
func (isa) spread([]float32, int, []float32, int, int, int) (rows, columns int) { return 0, 0 }
func (isa) divide(v []float32, by float32)                                      { divideGo(v, by) }
func (isa) addScaled(dst, c []float32, step int, factor float32, n int) {
	addScaledGo(dst, c, step, factor, n)
}
func (isa) addInt8(dst []float32, c []int32, step int, scales []uint32, scaleStep int, factor float32, n int) {
	addInt8Go(dst, c, step, scales, scaleStep, factor, n)
}
func (isa) largestInt8(out *[Lanes]float32, c []int32, step, rows int, scales []uint32, blocks int, factor, off float32) {
	largestInt8Go(out, c, step, rows, scales, blocks, factor, off)
}
func (isa) hasCached(rerank.Matrix) bool { return false }
func (isa) fma(out *float32, rounds int) int {
	fmaGo(out, rounds)
	return 1
}

// The methods below are never called: only sets with hasAllAssembly use them.
func (isa) product(*productArgs)                                {}
func (isa) productBFloat16(*productArgs, bool)                  {}
func (isa) productMatrix(*productArgs)                          {}
func (isa) productInt8(*productArgs, bool)                      {}
func (isa) read(*float32, []float32, int)                       {}
func (isa) cached([]float32, int, rerank.Matrix, rerank.Matrix) {}
func (isa) crossTiles(int) int                                  { return 1 }
func (isa) cross(*crossArgs, int)                               {}
func (isa) narrow([]uint32, *[Lanes]float32, []float32)         {}

func (isa) gather(dst []float32, m rerank.Matrix, rows *[Lanes]int32, from int) {
	gatherGo(dst, m, rows, from, 0)
}
func (isa) tile(dst []float32, rows *[Lanes][]float32)            { tileGo(dst, rows) }
func (isa) extent(out *[3][Lanes]float32, x []float32)            { extentGo(out, x) }
func (isa) weigh(out *[2][Lanes]float32, logits, gates []float32) { weighGo(out, logits, gates) }
func (isa) bound(out *[Lanes]float32, weighed *[2][Lanes]float32, squares *[4]*[Lanes]float32, errors *GateErrors, reach float32) {
	boundGo(out, weighed, squares, errors, reach)
}
