package mol

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Scores do not depend on how candidates lie, or on how many queries are scored
// at once: to the bit, in every set.
func TestBatchesAndLayouts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	shapes := map[string]shape{
		"8x4x24": fullGate(8, 4, 24, 20), "5x3x10": fullGate(5, 3, 10, 6), "2x2x300": fullGate(2, 2, 300, 8), "query only": queryGate(4, 2, 16, 8),
	}
	for name, sh := range shapes {
		plain := sh.build(t, r)
		features := normal(r, 90, plain.Spec().Features)
		rows := make([]int32, 71)
		for i := range rows {
			rows[i] = r.Int32N(90)
		}
		for _, k := range kernel.Sets() {
			s := plain.WithKernels(k)
			queries := []rerank.Encoded{}
			for range 3 {
				queries = append(queries, encode(t, s, rerank.Query{Vector: normal(r, 1, 384).Data}))
			}
			want := make([]float32, 90)
			scoreInto(t, queries[1], want, rerank.Items{Features: features})
			for layout, items := range floatLayouts(features, rows) {
				got := make([]float32, items.Len())
				scoreInto(t, queries[1], got, items)
				batch := make([]float32, 3*items.Len())
				if err := s.(rerank.BatchScorer).ScoreBatch(batch, queries, items); err != nil {
					t.Fatal(err)
				}
				for i, v := range got {
					row := int(rowNumber(items, i))
					if v != want[row] {
						t.Fatalf("%s, %s, %s: item %d scores %v, in order %v", name, k.Name(), layout, i, v, want[row])
					}
					if !plain.queryOnly() && batch[len(got)+i] != v {
						t.Fatalf("%s, %s, %s: item %d scores %v in a batch, %v alone", name, k.Name(), layout, i, batch[len(got)+i], v)
					}
				}
			}
		}
	}
}

func floatLayouts(features rerank.Matrix, rows []int32) map[string]rerank.Items {
	packing := rerank.Packing{Format: rerank.FormatFloat32, Cols: features.Cols}
	tiles := (features.Rows + kernel.Lanes - 1) / kernel.Lanes
	flat, tiled := make([]uint32, len(features.Data)), make([]uint32, tiles*kernel.Lanes*features.Cols)
	for r := range features.Rows {
		words := flat[r*features.Cols:][:features.Cols]
		packing.Pack(words, features.Row(r))
		for c, w := range words {
			tiled[(r/kernel.Lanes*features.Cols+c)*kernel.Lanes+r%kernel.Lanes] = w
		}
	}
	packed := &rerank.Packed{Packing: packing, Rows: features.Rows, Words: flat}
	inTiles := &rerank.Packed{Packing: packing, Rows: features.Rows, Tiled: true, Words: tiled}
	return map[string]rerank.Items{
		"gathered": {Features: features, Rows: rows}, "one": {Features: features, Rows: rows[:1]}, "seventeen": {Features: features, Rows: rows[5:22]},
		"packed": {Packed: packed}, "packed, gathered": {Packed: packed, Rows: rows},
		"tiles": {Packed: inTiles}, "tiles, gathered": {Packed: inTiles, Rows: rows},
	}
}

func scoreInto(t *testing.T, e rerank.Encoded, dst []float32, items rerank.Items) {
	t.Helper()
	if err := e.Score(dst, items); err != nil {
		t.Fatal(err)
	}
}

func TestScoreBatchRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	a, b := fullGate(2, 2, 8, 4).build(t, r), fullGate(2, 2, 8, 4).build(t, r)
	items := rerank.Items{Features: normal(r, 2, a.Spec().Features)}
	e := encode(t, b, rerank.Query{Vector: normal(r, 1, 384).Data})
	if err := a.ScoreBatch(make([]float32, 2), []rerank.Encoded{e}, items); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of another similarity: %v, want ErrQuery", err)
	}
	if err := b.ScoreBatch(make([]float32, 3), []rerank.Encoded{e}, items); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("places for other items: %v, want ErrItems", err)
	}
	screen := func(s *Similarity, places int, reach ...float32) error {
		return s.ScreenBatch(0, make([]float32, places), []rerank.Encoded{e}, items, rerank.Loss{}, reach)
	}
	if err := screen(a, 2, 0); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a screen of another similarity's query: %v, want ErrQuery", err)
	}
	if err := errors.Join(screen(b, 3, 0), screen(b, 2)); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("a screen with places for other items: %v, want ErrItems", err)
	}
}
