package kernel

import (
	"encoding/binary"
	"unsafe"
)

// The matrix unit (AMX) multiplies blocks of weights with blocks of tiles. A block has up
// to sixteen rows of up to 32 values for weights, and up to 32 values of sixteen lanes for
// tiles. A row takes 64 bytes in memory.
const (
	matrixRows  = 16
	matrixPairs = 16
	matrixWords = matrixRows * 64 / 4
)

// blockPairs returns the greatest number of pairs per block that divides the columns
// evenly.
func (w *WeightsBFloat16) blockPairs() int {
	n := min(w.cols/2, matrixPairs)
	for n > 1 && w.cols/2%n > 0 {
		n--
	}
	return n
}

// packBlocks copies the weights from panels to blocks for the matrix unit.
func (w *WeightsBFloat16) packBlocks() {
	if w.cols == 0 {
		return
	}
	pairs := w.blockPairs()
	steps := w.cols / 2 / pairs
	w.blocks = make([]uint32, (w.rows+2*matrixRows-1)/(2*matrixRows)*2*steps*matrixWords)
	for r := range w.rows {
		for k := range w.cols / 2 {
			at := (r/matrixRows*steps+k/pairs)*matrixWords + r%matrixRows*matrixPairs + k%pairs
			w.blocks[at] = w.panels[r/4*4*w.cols/2+k*4+r%4]
		}
	}
}

// inBlocks sets the arguments with which the assembly reads blocks, and the sizes of the
// blocks.
func (w *WeightsBFloat16) inBlocks(a *productArgs, p *Product, rows int) {
	pairs := w.blockPairs()
	a.w, a.steps, a.bStep = unsafe.Pointer(unsafe.SliceData(w.blocks)), w.cols/2/pairs, pairs*Lanes*4
	a.groups, a.cGroup, a.bGroup = p.Groups, p.CGroup*4, p.BGroup*4
	a.config[0] = 1
	shape := func(from, to, rows, bytes int) {
		for i := from; i < to; i++ {
			binary.LittleEndian.PutUint16(a.config[16+2*i:], uint16(bytes))
			a.config[48+i] = byte(rows)
		}
	}
	if a.flags == 0 && a.bias == nil && a.plus == nil && (rows <= matrixRows || rows%matrixRows == 0) {
		a.flags = flagSums
	}
	rows = min(rows, matrixRows)
	shape(0, 4, rows, Lanes*4)  // sums
	shape(4, 6, rows, pairs*4)  // weights
	shape(6, 8, pairs, Lanes*4) // tiles
}
