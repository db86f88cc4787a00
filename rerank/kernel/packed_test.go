package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestGatherAndWiden puts packed rows of every format and layout into tiles, on
// every set, and compares with the rows unpacked one by one.
func TestGatherAndWiden(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		p := rerank.Packed{Packing: rerank.Packing{Format: rerank.Formats()[rng.IntN(4)], Cols: 1 + rng.IntN(70)}, Rows: 1 + rng.IntN(50)}
		p.Block, p.Tiled = rng.IntN(p.Cols+1), rng.IntN(2) == 0
		pack(t, &p, random(rng, p.Rows, p.Cols))
		var rows [kernel.Lanes]int32
		first := rng.IntN(p.Rows)
		for l := range rows {
			if rows[l] = int32(rng.IntN(p.Rows)); rng.IntN(3) == 0 {
				rows[l] = int32(min(first+l, p.Rows-1))
			}
		}
		if p.Rows >= kernel.Lanes && rng.IntN(2) == 0 { // a whole tile
			for l := range rows {
				rows[l] = int32(l)
			}
		}
		for _, s := range kernel.Sets() {
			tile, wide := make([]uint32, p.RowWords()*kernel.Lanes), guarded(p.Cols*kernel.Lanes)
			s.Gather(tile, &p, &rows)
			s.Widen(wide[4:len(wide)-4], p.Packing, tile)
			row := make([]float32, p.Cols)
			for l, r := range rows {
				p.Row32(row, int(r))
				for c, x := range row {
					if got := wide[4+c*kernel.Lanes+l]; math.Float32bits(got) != math.Float32bits(x) {
						t.Fatalf("%s %+v: value %d of row %d is %v, want %v", s.Name(), p.Packing, c, r, got, x)
					}
					wide[4+c*kernel.Lanes+l] = guard
				}
			}
			untouched(t, wide)
		}
	}
}

// pack fills p's words with rows.
func pack(t *testing.T, p *rerank.Packed, rows rerank.Matrix) {
	t.Helper()
	n := p.RowWords()
	p.Words = make([]uint32, p.Tiles()*n*kernel.Lanes)
	row := make([]uint32, n)
	for r := range rows.Rows {
		if !p.Pack(row, rows.Row(r)) {
			t.Fatal("a number is too large")
		}
		for w, v := range row {
			if p.Tiled {
				p.Words[(r/kernel.Lanes*n+w)*kernel.Lanes+r%kernel.Lanes] = v
			} else {
				p.Words[r*n+w] = v
			}
		}
	}
}
