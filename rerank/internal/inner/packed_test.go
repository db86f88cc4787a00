package inner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// pack packs rows, as they come or in tiles, and returns what is left of them.
func pack(p rerank.Packing, m rerank.Matrix, tiled bool) (*rerank.Packed, rerank.Matrix) {
	q, back, n := &rerank.Packed{Packing: p, Rows: m.Rows, Tiled: tiled}, rerank.NewMatrix(m.Rows, m.Cols), p.RowWords()
	q.Words = make([]uint32, q.Tiles()*kernel.Lanes*n)
	row := make([]uint32, n)
	for i := range m.Rows {
		p.Pack(row, m.Row(i))
		p.Unpack(back.Row(i), row, 1)
		for w, word := range row {
			at := i*n + w
			if tiled {
				at = (i/kernel.Lanes*n+w)*kernel.Lanes + i%kernel.Lanes
			}
			q.Words[at] = word
		}
	}
	if !tiled {
		q.Words = q.Words[:m.Rows*n]
	}
	return q, back
}

// maxSimQuery encodes a vector for max-sim.
func maxSimQuery(t *testing.T, k *kernel.Set, v []float32) rerank.Encoded {
	t.Helper()
	s, err := maxsim.New(maxsim.Config{Dim: len(v)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.WithKernels(k).Encode(rerank.Query{Vector: v})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Packed rows score what the same numbers do in float32, to the bit: whole or gathered, each an item
// or several of one, and however many there are.
func TestPacked(t *testing.T) {
	const cols, rows = 37, 700
	r := rand.New(rand.NewPCG(3, 9))
	m := random(r, rows, cols)
	m.Row(5)[7] = float32(math.Inf(1))
	starts := map[string][]int32{
		"one row each": nil, "groups": {0, 0, 1, 4, 9, 9, 14, 300, 301, 306, 562, 699}, "groups from the second row on": {1, 5, 6, 22},
	}
	for _, k := range kernel.Sets() {
		q := maxSimQuery(t, k, random(r, 1, cols).Data)
		for _, format := range rerank.Formats()[1:] {
			for _, tiled := range []bool{false, true} {
				packed, back := pack(rerank.Packing{Format: format, Cols: cols, Block: 10}, m, tiled)
				for name, of := range starts {
					for _, n := range []int{rows, 1, 5, 16, 35} {
						t.Run(fmt.Sprintf("%s %s tiled=%v %s %d", k.Name(), format, tiled, name, n), func(t *testing.T) {
							plain, narrow := rerank.Items{Features: back, Starts: of}, rerank.Items{Packed: packed, Starts: of}
							if n < rows { // gathered
								some := make([]int32, n)
								for i := range some {
									some[i] = r.Int32N(rows)
								}
								plain.Rows, narrow.Rows = some, some
								if of != nil {
									plain.Starts = []int32{0, int32(n / 3), int32(n)}
									narrow.Starts = plain.Starts
								}
							}
							same(t, q, plain, narrow)
						})
					}
				}
			}
		}
	}
}

func same(t *testing.T, q rerank.Encoded, plain, narrow rerank.Items) {
	t.Helper()
	want, got := make([]float32, plain.Len()), make([]float32, plain.Len())
	if err := q.Score(want, plain); err != nil {
		t.Fatal(err)
	}
	if err := q.Score(got, narrow); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("item %d: %v packed, %v in float32", i, got[i], want[i])
		}
	}
}

// What is screened lies above the score, of items with several rows too.
func TestScreenGroups(t *testing.T) {
	const cols, rows = 48, 300
	r := rand.New(rand.NewPCG(4, 9))
	m := random(r, rows, cols)
	packing := rerank.Packing{Format: rerank.FormatBFloat16, Cols: cols}
	loss := rerank.NewLoss(packing)
	for i := range rows {
		words, back := make([]uint32, packing.RowWords()), make([]float32, cols)
		packing.Pack(words, m.Row(i))
		packing.Unpack(back, words, 1)
		loss.Add(packing, m.Row(i), back)
	}
	starts := []int32{0, 4, 8, 9, 9, 280, 281, 300}
	for _, k := range kernel.Sets() {
		q := maxSimQuery(t, k, random(r, 1, cols).Data)
		for _, tiled := range []bool{false, true} {
			packed, _ := pack(packing, m, tiled)
			scores, bounds := make([]float32, len(starts)-1), make([]float32, len(starts)-1)
			if err := q.Score(scores, rerank.Items{Features: m, Starts: starts}); err != nil {
				t.Fatal(err)
			}
			if err := q.(rerank.Screener).Screen(0, bounds, rerank.Items{Packed: packed, Starts: starts}, loss, 0); err != nil {
				t.Fatal(err)
			}
			for i, bound := range bounds {
				if !(bound >= scores[i]) {
					t.Errorf("%s tiled=%v, item %d: bound %v, score %v", k.Name(), tiled, i, bound, scores[i])
				}
			}
		}
	}
}
