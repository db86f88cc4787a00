package mol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/table"
)

// screened is a table of some format, and the rows that Score gets.
func screened(t testing.TB, s *Similarity, features rerank.Matrix, meta table.Meta) (tab *table.Table, exact rerank.Items, loss rerank.Loss) {
	t.Helper()
	ids := make([]rerank.ID, features.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	meta.Block = s.spec.Block
	tab, err := table.FromMemory(meta, ids, features, nil)
	if err != nil {
		t.Fatal(err)
	}
	loss = tab.Loss()
	if full, ok := tab.Full(); ok {
		return tab, rerank.Items{Features: full}, loss
	}
	loss.Blocks = append([]rerank.Extent(nil), loss.Blocks...)
	for i := range loss.Blocks {
		loss.Blocks[i].Lost = 0
	}
	return tab, tab.All(), loss
}

// metas are the formats that a table can have.
func metas() []table.Meta {
	return []table.Meta{
		{}, {Layout: table.LayoutTiles},
		{Format: rerank.FormatBFloat16}, {Format: rerank.FormatBFloat16, Layout: table.LayoutTiles},
		{Format: rerank.FormatBFloat16, Layout: table.LayoutTiles, Full: true},
		{Format: rerank.FormatInt8, Full: true}, {Format: rerank.FormatFloat16, Layout: table.LayoutTiles, Full: true},
	}
}

// wild makes some rows long, zero, equal, or not finite.
func wild(rng *rand.Rand, m rerank.Matrix) {
	for r := range m.Rows {
		row := m.Row(r)
		switch rng.IntN(12) {
		case 0:
			clear(row)
		case 1:
			copy(row, m.Row(0))
		case 2:
			row[rng.IntN(len(row))] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[rng.IntN(3)])
		case 3:
			for i := range row {
				row[i] *= 8
			}
		}
	}
}

// TestScreen wants no bound below the score, of any model, format and level.
func TestScreen(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	shapes := map[string]shape{"8x4x64": fullGate(8, 4, 64, 128), "3x5x7": fullGate(3, 5, 7, 11), "4x4x32": fullGate(4, 4, 32, 64), "1x1x8": fullGate(1, 1, 8, 4)}
	none := fullGate(4, 2, 16, 32)
	none.combination, none.l2 = None, false
	shapes["none, not normalised"] = none
	for name, sh := range shapes {
		sh.queryDim, sh.itemDim = 24, 24
		c, tensors := sh.random(rng)
		s, err := New(c, tensors)
		if err != nil {
			t.Fatal(err)
		}
		features := rerank.NewMatrix(133, s.spec.Features)
		base := rerank.NewMatrix(133, 24)
		for i := range base.Data {
			base.Data[i] = float32(rng.NormFloat64())
		}
		if err := s.EncodeItems(features, base); err != nil {
			t.Fatal(err)
		}
		wild(rng, features)
		for _, meta := range metas() {
			tab, exact, loss := screened(t, s, features, meta)
			for range 3 {
				q := rerank.Query{Vector: make([]float32, 24)}
				for i := range q.Vector {
					q.Vector[i] = float32(rng.NormFloat64())
				}
				for _, k := range kernel.Sets() {
					e := encode(t, s.WithKernels(k).(*Similarity), q)
					compareBounds(t, fmt.Sprintf("%s, %s %s, full %t, %s", name, meta.Format, meta.Layout, meta.Full, k.Name()), e, tab.All(), exact, loss)
				}
			}
		}
	}
}

func compareBounds(t *testing.T, name string, e rerank.Encoded, items, exact rerank.Items, loss rerank.Loss) {
	t.Helper()
	scores, bounds := score(t, e, exact), make([]float32, items.Len())
	screener := e.(rerank.Screener)
	for level := range screener.Screens(items) {
		if err := screener.Screen(level, bounds, items, loss, float32(math.Inf(-1))); err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for i, b := range bounds {
			if b < scores[i] || scores[i]-scores[i] != 0 && b-b == 0 && level == byGates {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s, level %d: %d of %d bounds lie below the score", name, level, wrong, len(bounds))
		}
	}
}
