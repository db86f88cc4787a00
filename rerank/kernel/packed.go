package kernel

import (
	"math"
	"unsafe"

	"github.com/likenessdb/likeness/internal/half"
	"github.com/likenessdb/likeness/rerank"
)

// Gather copies sixteen packed rows into lanes: dst[w·Lanes+l] is word w of row rows[l].
// dst has p.RowWords·Lanes words.
func (s *Set) Gather(dst []uint32, p *rerank.Packed, rows *[Lanes]int32) {
	n := p.RowWords()
	dst = dst[:n*Lanes]
	if p.Tiled {
		gatherTiled(dst, p, rows)
		return
	}
	m := rerank.Matrix{Rows: p.Rows, Cols: n, Data: floats(p.Words)} // the words are copied unchanged, whatever number they would be
	s.GatherColumns(floats(dst), m, rows, 0, n)
}

// gatherTiled copies from tiled rows: a whole tile at once if the rows are one tile in
// order.
func gatherTiled(dst []uint32, p *rerank.Packed, rows *[Lanes]int32) {
	first, whole := int(rows[0]), rows[0]%Lanes == 0
	for l, r := range rows {
		whole = whole && int(r) == first+l
	}
	if whole {
		copy(dst, p.Tile(first/Lanes))
		return
	}
	for l, r := range rows {
		lane := p.Tile(int(r) / Lanes)[int(r)%Lanes:]
		for at := 0; at < len(dst); at += Lanes {
			dst[at+l] = lane[at]
		}
	}
}

// Widen converts a tile of packed words to a tile of float32, dst, which has p.Cols·Lanes
// numbers.
func (s *Set) Widen(dst []float32, p rerank.Packing, tile []uint32) {
	for b := range p.Blocks() {
		first, _ := p.Values(b)
		s.WidenBlock(dst[first*Lanes:], p, b, tile)
	}
}

// WidenBlock converts block b of a tile of packed words to float32.
func (s *Set) WidenBlock(dst []float32, p rerank.Packing, b int, tile []uint32) {
	first, last := p.Values(b)
	from, to := p.Words(b)
	values, words := dst[:(last-first)*Lanes], tile[from*Lanes:to*Lanes]
	switch p.Format {
	case rerank.FormatFloat32:
		copy(values, floats(words))
	case rerank.FormatInt8:
		done := len(values) / (4 * Lanes) * 4 // values that fill whole words
		s.isa.widen(p.Format, values, words, tile[b*Lanes:], done/4)
		widenInt8(values[done*Lanes:], words[done/4*Lanes:], (*[Lanes]uint32)(tile[b*Lanes:]))
	default:
		done := len(values) / (2 * Lanes) * 2
		s.isa.widen(p.Format, values, words, nil, done/2)
		widenHalves(p.Format, values[done*Lanes:], words[done/2*Lanes:])
	}
}

// widenGo converts n words of 16 lanes. scales is only used for FormatInt8.
func widenGo(f rerank.Format, dst []float32, words, scales []uint32, n int) {
	if f == rerank.FormatInt8 {
		widenInt8(dst[:4*n*Lanes], words, (*[Lanes]uint32)(scales))
		return
	}
	widenHalves(f, dst[:2*n*Lanes], words)
}

func widenInt8(dst []float32, words []uint32, scales *[Lanes]uint32) {
	var scale [Lanes]float32
	for l, bits := range scales {
		scale[l] = math.Float32frombits(bits)
	}
	for v := 0; v*Lanes < len(dst); v++ {
		out, in, shift := (*[Lanes]float32)(dst[v*Lanes:]), (*[Lanes]uint32)(words[v/4*Lanes:]), 8*(v&3)
		for l := range Lanes {
			out[l] = float32(int8(in[l]>>shift)) * scale[l]
		}
	}
}

func widenHalves(f rerank.Format, dst []float32, words []uint32) {
	for v := 0; v*Lanes < len(dst); v++ {
		out, in, shift := (*[Lanes]float32)(dst[v*Lanes:]), (*[Lanes]uint32)(words[v/2*Lanes:]), 16*(v&1)
		if f == rerank.FormatBFloat16 {
			for l := range Lanes {
				out[l] = half.BFloat16(uint16(in[l] >> shift))
			}
			continue
		}
		for l := range Lanes {
			out[l] = half.Float16(uint16(in[l] >> shift))
		}
	}
}

// floats reinterprets words as float32 with the same bits.
func floats(words []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(words))), len(words))
}
