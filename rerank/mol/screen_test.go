package mol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
		{Format: rerank.FormatInt8, Full: true}, {Format: rerank.FormatInt8}, {Format: rerank.FormatFloat16, Layout: table.LayoutTiles, Full: true},
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
			var queries []rerank.Query
			for range 3 {
				q := rerank.Query{Vector: make([]float32, 24)}
				for i := range q.Vector {
					q.Vector[i] = float32(rng.NormFloat64())
				}
				queries = append(queries, q)
				for _, k := range kernel.Sets() {
					e := encode(t, s.WithKernels(k).(*Similarity), q)
					what := fmt.Sprintf("%s, %s %s, full %t, %s", name, meta.Format, meta.Layout, meta.Full, k.Name())
					compareBounds(t, what, e, tab.All(), exact, loss)
					if meta.Format == rerank.FormatInt8 { // whose screens choose rows
						compareBounds(t, what+", reversed", e, reversed(tab.All()), reversed(exact), loss)
					}
				}
			}
			for _, k := range kernel.Sets() {
				compareBatch(t, fmt.Sprintf("%s, %s %s, %s", name, meta.Format, meta.Layout, k.Name()), s.WithKernels(k).(*Similarity), queries, tab.All(), loss)
			}
		}
	}
}

// reversed returns the items in reverse order.
func reversed(items rerank.Items) rerank.Items {
	n := items.Len()
	items.Rows = make([]int32, n)
	for i := range n {
		items.Rows[i] = int32(n - 1 - i)
	}
	return items
}

func compareBounds(t *testing.T, name string, e rerank.Encoded, items, exact rerank.Items, loss rerank.Loss) {
	t.Helper()
	scores, bounds := score(t, e, exact), make([]float32, items.Len())
	sorted := slices.DeleteFunc(slices.Clone(scores), func(x float32) bool { return !finite(x) })
	slices.Sort(sorted)
	screener := e.(rerank.Screener)
	for level := range screener.Screens(items) {
		for _, reach := range []float32{float32(math.Inf(-1)), scores[slices.IndexFunc(scores, finite)], sorted[len(sorted)-5]} {
			if err := screener.Screen(level, bounds, items, loss, reach); err != nil {
				t.Fatal(err)
			}
			wrong := 0
			for i, b := range bounds {
				if b < scores[i] || !finite(scores[i]) && finite(b) && level >= byGates && !(b < reach) {
					wrong++
				}
			}
			if wrong > 0 {
				t.Errorf("%s, level %d, reach %v: %d of %d bounds lie below the score", name, level, reach, wrong, len(bounds))
			}
		}
	}
}

// compareBatch wants the bounds of queries that are screened together to be those of each alone,
// to the bit, whatever the others must reach.
func compareBatch(t *testing.T, name string, s *Similarity, queries []rerank.Query, items rerank.Items, loss rerank.Loss) {
	t.Helper()
	var encodeds []rerank.Encoded
	for _, q := range queries {
		encodeds = append(encodeds, encode(t, s, q))
	}
	n, reach := items.Len(), []float32{float32(math.Inf(-1)), 0, float32(math.Inf(1))}
	together, alone := make([]float32, len(queries)*n), make([]float32, n)
	for level := range encodeds[0].(rerank.Screener).Screens(items) {
		if err := s.ScreenBatch(level, together, encodeds, items, loss, reach); err != nil {
			t.Fatal(err)
		}
		for q, e := range encodeds {
			if err := e.(rerank.Screener).Screen(level, alone, items, loss, reach[q]); err != nil {
				t.Fatal(err)
			}
			for i, b := range alone {
				if got := together[q*n+i]; math.Float32bits(got) != math.Float32bits(b) {
					t.Fatalf("%s, level %d, query %d: item %d has the bound %v in a batch, %v alone", name, level, q, i, got, b)
				}
			}
		}
	}
}

func finite(x float32) bool { return x-x == 0 }

// TestScreenSpares wants the bounds by gates to leave few items of a model of random
// weights, whose gates the logits decide.
func TestScreenSpares(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	c, tensors := fullGate(8, 4, 64, 128).random(rng)
	for _, tensor := range tensors { // to the variance of a usual initialisation
		scale := math.Sqrt(float64(len(tensor.Data))/float64(tensor.Shape[len(tensor.Shape)-1])) / rerank.Norm(tensor.Data)
		for i := range tensor.Data {
			tensor.Data[i] *= float32(scale)
		}
	}
	s, err := New(c, tensors)
	if err != nil {
		t.Fatal(err)
	}
	features := rerank.NewMatrix(4000, s.spec.Features)
	if err := s.EncodeItems(features, normal(rng, features.Rows, c.ItemDim)); err != nil {
		t.Fatal(err)
	}
	for _, format := range []rerank.Format{rerank.FormatFloat32, rerank.FormatBFloat16} {
		tab, exact, loss := screened(t, s, features, table.Meta{Format: format, Layout: table.LayoutTiles})
		e := encode(t, s, rerank.Query{Vector: normal(rng, 1, c.QueryDim).Data})
		scores, bounds := score(t, e, exact), make([]float32, tab.Len())
		slices.Sort(scores)
		tenth := scores[len(scores)-10]
		for level := byGates; level < e.(rerank.Screener).Screens(tab.All()); level++ {
			if err := e.(rerank.Screener).Screen(level, bounds, tab.All(), loss, tenth); err != nil {
				t.Fatal(err)
			}
			left := 0
			for _, b := range bounds {
				if !(b < tenth) {
					left++
				}
			}
			t.Logf("%s, level %d: %d of %d items are left", format, level, left, len(bounds))
			if left > len(bounds)/8 {
				t.Errorf("%s, level %d: %d of %d items are left", format, level, left, len(bounds))
			}
		}
	}
}

// TestSpectralNorm wants no less than the greatest singular value, and not much more.
func TestSpectralNorm(t *testing.T) {
	for _, shape := range [][2]int{{3, 3}, {7, 40}, {40, 7}} {
		m := rerank.NewMatrix(shape[0], shape[1])
		for i := range min(shape[0], shape[1]) {
			m.Row(i)[i] = -5 + float32(i)
		}
		if got := kernel.SpectralNorm(m); got < 5 || got > 5*1.01 {
			t.Errorf("%v: %v, want a little above 5", shape, got)
		}
	}
	if got := kernel.SpectralNorm(rerank.NewMatrix(2, 3)); got != 0 {
		t.Errorf("of zeros: %v", got)
	}
}
