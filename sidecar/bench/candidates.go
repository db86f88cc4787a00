package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/likenessdb/likeness/internal/largepages"
	"github.com/likenessdb/likeness/rerank"
)

// candidates holds the items of a measurement: a table, and the rows that each query picks
// from it.
type candidates struct {
	table  rerank.Items
	picked [][]int32 // nil: query b scores count items from b·count on
	count  int
	group  int // rows per item
	rows   int
}

// makeItems generates the table.
func (s Scoring) makeItems(sub subject) (*candidates, error) {
	spec := sub.similarity.Spec()
	c := &candidates{count: s.Candidates, group: sub.rows}
	sets := s.Batch
	if s.Shared {
		sets = 1
	}
	packing := rerank.Packing{Format: s.Format, Cols: spec.Features, Block: spec.Block}
	if err := packing.Check(); err != nil {
		return nil, err
	}
	tile := rerank.Lanes / sub.rows * sub.rows
	c.rows = sets * s.Candidates * sub.rows
	if s.Gather {
		c.rows = max(min(s.Rows, s.TableBytes/4/packing.RowWords()), 1) / sub.rows * sub.rows
		if c.rows == 0 {
			return nil, fmt.Errorf("%w: %d rows of %d bytes are less than one item", ErrShape, s.Rows, packing.RowWords()*4)
		}
		r := rand.New(rand.NewPCG(5, 6))
		for range sets {
			picked := make([]int32, 0, s.Candidates*sub.rows)
			for range s.Candidates {
				first := r.IntN(c.rows/sub.rows) * sub.rows
				for v := range sub.rows {
					picked = append(picked, int32(first+v))
				}
			}
			c.picked = append(c.picked, picked)
		}
	} else if s.Candidates%tile != 0 { // each query begins at a whole tile
		c.rows += sets * rerank.Lanes * sub.rows
	}
	c.fill(s, packing, spec)
	return c, nil
}

// fill generates the rows, with blocks of norm about 1. Kinds that score in tiles get
// tiles, others get rows.
func (c *candidates) fill(s Scoring, packing rerank.Packing, spec rerank.Spec) {
	tiled := !s.Gather && !spec.SingleInnerProduct
	size, rows := packing.RowWords(), c.rows
	if tiled {
		rows = (rows + rerank.Lanes - 1) / rerank.Lanes * rerank.Lanes
	}
	state := uint32(1)
	scale := float32(math.Sqrt(3/float64(max(spec.Block, 1)))) / (1 << 31)
	if spec.Block == 0 {
		scale = float32(math.Sqrt(3/float64(spec.Features))) / (1 << 31)
	}
	next := func() float32 { // uniform and fast; the quality is sufficient for timing
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		return float32(int32(state)) * scale
	}
	words := make([]uint32, rows*size)
	largepages.Advise(bytesOf(words)) // as for a table that was opened from a file
	if s.Format == rerank.FormatFloat32 {
		for i := range words {
			words[i] = math.Float32bits(next())
		}
	} else {
		c.pack(words, packing, tiled, next)
	}
	if s.Format == rerank.FormatFloat32 && !tiled {
		data := unsafe.Slice((*float32)(unsafe.Pointer(&words[0])), len(words))
		c.table = rerank.Items{Features: rerank.Matrix{Rows: rows, Cols: packing.Cols, Data: data}}
		return
	}
	c.table = rerank.Items{Packed: &rerank.Packed{Packing: packing, Rows: rows, Tiled: tiled, Words: words}}
}

// bytesOf reinterprets numbers as the bytes that they occupy in memory.
func bytesOf[T uint32 | float32](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// pack fills words with packed rows. It repeats a few different rows.
func (c *candidates) pack(words []uint32, packing rerank.Packing, tiled bool, next func() float32) {
	const different = 64
	size := packing.RowWords()
	rows := make([][]uint32, different)
	row := make([]float32, packing.Cols)
	for i := range rows {
		for j := range row {
			row[j] = next()
		}
		rows[i] = make([]uint32, size)
		packing.Pack(rows[i], row)
	}
	for r := range len(words) / size {
		if !tiled {
			copy(words[r*size:], rows[r%different])
			continue
		}
		for w, v := range rows[r%different] {
			words[(r/rerank.Lanes*size+w)*rerank.Lanes+r%rerank.Lanes] = v
		}
	}
}

// of returns the candidates [from, to) of query b as feature rows.
func (c *candidates) of(b, from, to int) rerank.Items {
	items := c.table
	switch {
	case c.picked != nil:
		items.Rows = c.picked[b%len(c.picked)][from*c.group : to*c.group]
	case items.Packed != nil:
		p := *items.Packed
		first := b * ((c.count + rerank.Lanes - 1) / rerank.Lanes * rerank.Lanes) * c.group
		size := p.RowWords()
		p.Rows = (to - from) * c.group
		p.Words = p.Words[(first+from*c.group)*size:]
		items.Packed = &p
	default:
		first := b * c.count * c.group
		items.Features = items.Features.Slice(first+from*c.group, first+to*c.group)
	}
	if c.group > 1 {
		items.Starts = make([]int32, to-from+1)
		for i := range items.Starts {
			items.Starts[i] = int32(i * c.group)
		}
	}
	return items
}
