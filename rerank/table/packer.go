package table

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// packer packs rows, one at a time, and records their rounding errors.
type packer struct {
	packing rerank.Packing
	tiled   bool
	loss    rerank.Loss
	row     []uint32
	back    []float32 // the packed row, unpacked again
	tile    []uint32  // LayoutTiles: rows that do not fill a tile yet
	held    int       // number of rows in tile
}

func newPacker(m Meta) *packer {
	p := &packer{packing: m.packing(), tiled: m.Layout == LayoutTiles}
	p.loss = rerank.NewLoss(p.packing)
	p.row, p.back = make([]uint32, p.packing.RowWords()), make([]float32, m.Features)
	if p.tiled {
		p.tile = make([]uint32, len(p.row)*rerank.Lanes)
	}
	return p
}

// add packs a row and returns the words that are complete, valid until the next call. It
// reports false if a number is too large for the format.
func (p *packer) add(row []float32) ([]uint32, bool) {
	if !p.packing.Pack(p.row, row) {
		return nil, false
	}
	p.packing.Unpack(p.back, p.row, 1)
	p.loss.Add(p.packing, row, p.back)
	if !p.tiled {
		return p.row, true
	}
	if p.held == rerank.Lanes {
		p.held = 0
		clear(p.tile)
	}
	for w, v := range p.row {
		p.tile[w*rerank.Lanes+p.held] = v
	}
	if p.held++; p.held < rerank.Lanes {
		return nil, true
	}
	return p.tile, true
}

// rest returns the last tile if it is not full.
func (p *packer) rest() []uint32 {
	if p.held == rerank.Lanes {
		return nil
	}
	return p.tile[:min(p.held, 1)*len(p.tile)]
}

// tooLarge returns the error for a row that add could not pack.
func (p *packer) tooLarge() error {
	return fmt.Errorf("a number too large for %s; use %s or %s", p.packing.Format, rerank.FormatInt8, rerank.FormatFloat32)
}

// encodeLoss returns the loss section: Lost and Norm of the whole row, then of each block.
func encodeLoss(l rerank.Loss) []byte {
	var b []byte
	for _, e := range append([]rerank.Extent{l.Row}, l.Blocks...) {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(e.Lost))
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(e.Norm))
	}
	return b
}

// decodeLoss decodes the loss section. For a file of version 1, which is not rounded, the
// loss is 0 and the norms are unknown.
func decodeLoss(h fileHeader, b []byte) (rerank.Loss, error) {
	l := rerank.NewLoss(h.Meta.packing())
	all := make([]rerank.Extent, 1+len(l.Blocks))
	for i := range all {
		all[i].Norm = float32(math.Inf(1))
		if h.version == 1 {
			continue
		}
		all[i].Lost = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i:]))
		all[i].Norm = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i+4:]))
		if !(all[i].Lost >= 0) || !(all[i].Norm >= 0) {
			return l, fmt.Errorf("section loss has %v and %v, want numbers that are not negative", all[i].Lost, all[i].Norm)
		}
	}
	l.Row = all[0]
	copy(l.Blocks, all[1:])
	return l, nil
}

// words reinterprets numbers as words with the same bits, or copies them if the machine
// cannot.
func words(v []float32) []uint32 {
	b := floatBytes(v)
	if w, ok := mmap.View[uint32](b); ok {
		return w
	}
	w := make([]uint32, len(v))
	for i, x := range v {
		w[i] = math.Float32bits(x)
	}
	return w
}
