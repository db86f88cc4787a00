package scan_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// tight is an Encoded whose screen is as tight as a bound can be: the score itself.
// What a scan does with ties then decides the answer.
type tight struct {
	rerank.Encoded
	screened, scored atomic.Int64
	below            float32 // a screen may say this much less: it is wrong then
}

func (e *tight) Screens(rerank.Items) int { return 1 }

func (e *tight) Screen(_ int, dst []float32, items rerank.Items, _ rerank.Loss, _ float32) error {
	e.screened.Add(int64(len(dst)))
	err := e.Encoded.Score(dst, items)
	for i := range dst {
		dst[i] -= e.below
	}
	return err
}

func (e *tight) Score(dst []float32, items rerank.Items) error {
	e.scored.Add(int64(len(dst)))
	return e.Encoded.Score(dst, items)
}

// steps is a table of one number an item, of few values, so that most items tie,
// with ids that descend: of items that tie the last ones are the answer.
func steps(t testing.TB, n, values int) *world {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 1}, nil)
	must(t, err)
	w := &world{sim: sim, features: rerank.NewMatrix(n, 1)}
	for i := range n {
		w.features.Data[i] = float32(i % values)
	}
	w.build(t, table.Meta{})
	e, err := sim.Encode(rerank.Query{Vector: []float32{1}})
	must(t, err)
	w.encoded = []rerank.Encoded{e}
	return w
}

// TestTies: of items that tie with the K-th score the first by id are the answer,
// wherever in the table they lie, whatever the screen rules out, however many
// processors work, and under filters.
func TestTies(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, n := range []int{1, 15, 16, 17, 64, 1000, 9001} {
		for _, values := range []int{1, 2, 5} {
			w := steps(t, n, values)
			for _, k := range []int{1, 7, n/values + 3, n} {
				for _, processors := range []int{1, 4} {
					for _, filtered := range []bool{false, true} {
						e := &tight{Encoded: w.encoded[0]}
						s := scan.NewShared(w.table, w.sim.Spec(), turns.New(processors))
						q, within := scan.Query{Encoded: e, K: k}, []int32(nil)
						if filtered {
							within = subset(rng, n)
							q.Within = scan.NewBitmap(n)
							q.Within.Add(within...)
						}
						want := firstOf(w, k, within)
						got, err := s.Scan(context.Background(), q, nil)
						must(t, err)
						if !same(got.Top, want) {
							t.Fatalf("%d items of %d values, K %d, %d processors, filtered %t: %d rows, want %d; the last is %+v",
								n, values, k, processors, filtered, len(got.Top), len(want), got.Top[len(got.Top)-1])
						}
						if n > 9000 && k == 1 && processors == 1 && e.screened.Load() == 0 {
							t.Fatal("no item was screened, so that this proves nothing")
						}
					}
				}
			}
		}
	}
}

// firstOf is the answer by sorting every item.
func firstOf(w *world, k int, within []int32) []rerank.Scored {
	var all []rerank.Scored
	for i := range w.features.Rows {
		if within == nil || slices.Contains(within, int32(i)) {
			all = append(all, rerank.Scored{ID: w.table.ID(i), Score: w.features.Data[i], Index: i})
		}
	}
	slices.SortFunc(all, func(a, b rerank.Scored) int {
		if rerank.Better(a, b) {
			return -1
		}
		return 1
	})
	return all[:min(k, len(all))]
}

// ladder makes rows that lead a scan astray where its bounds are too small. The
// packed rows of the first half score more than they should, so that K of them set a
// high score to reach; the rows of the second half are better, and packed they score
// less by all that packing can take. Bounds of half the loss rule the better ones out.
func ladder(rng *rand.Rand, p rerank.Packing, u []float32, rows int) rerank.Matrix {
	m := rerank.NewMatrix(rows, p.Cols)
	exact := adversary.ExactlyPacked(rng, p, 0x1p-6)
	better := adversary.RoundedDown(rng, p, u, 0x1p-6)
	for i := range better { // beside the grid points of one row
		better[i] = exact[i] + (better[i] - unpacked(p, better)[i])
	}
	lost := adversary.Dot(u, better) - adversary.Dot(u, exact)
	for r := range rows {
		row := m.Row(r)
		if copy(row, better); r < rows/2 {
			copy(row, exact)
			at := rng.IntN(p.Cols) // what decides between better and worse
			row[at] += float32(math.Copysign(0.6*lost/math.Abs(float64(u[at])), float64(u[at])))
		}
	}
	return m
}

func unpacked(p rerank.Packing, row []float32) []float32 {
	words, back := make([]uint32, p.RowWords()), make([]float32, p.Cols)
	p.Pack(words, row)
	p.Unpack(back, words, 1)
	return back
}

// TestScreensMissNothing: over tables of every format and layout, grouped or not,
// built, live, patched and compacted, and similarities of every kind that one inner
// product is, an item that a scan left out never scores more than the K-th by more
// than rounding, on rows that lie on their bounds.
func TestScreensMissNothing(t *testing.T) {
	const dim, rows = 32, 6000
	rng := rand.New(rand.NewPCG(31, 32))
	for name, sim := range products(t, rng, dim) {
		for _, format := range rerank.Formats() {
			meta := table.Meta{Model: "m", ModelVersion: "v", Collection: "c", Format: format, Features: sim.Spec().Features, Block: sim.Spec().Block, Full: true}
			packing := rerank.Packing{Format: format, Cols: meta.Features, Block: meta.Block}
			v := make([]float32, sim.Spec().QueryDim)
			for i := range v {
				v[i] = float32(math.Copysign(1+rng.Float64()/8, rng.Float64()-0.5))
			}
			e, err := sim.Encode(rerank.Query{Vector: v})
			must(t, err)
			o := e.(rerank.Operator).Operands()
			features := ladder(rng, packing, o.Vectors.Data, rows)
			for way, tab := range tables(t, meta, sim.Spec().GroupedRows, features) {
				t.Run(fmt.Sprintf("%s %s %s", name, format, way), func(t *testing.T) {
					missesNothing(t, tab, sim, e, o)
				})
			}
		}
	}
}

// products are similarities that are one inner product.
func products(t testing.TB, rng *rand.Rand, dim int) map[string]rerank.Similarity {
	t.Helper()
	plain, err := dot.New(dot.Config{Dim: dim}, nil)
	must(t, err)
	unit, err := dot.New(dot.Config{Dim: dim, Normalise: true}, nil)
	must(t, err)
	best, err := maxsim.New(maxsim.Config{Dim: dim}, nil)
	must(t, err)
	w := adversary.Mix(rng, dim, dim, adversary.Plain)
	full, err := bilinear.New(bilinear.Config{QueryDim: dim, ItemDim: dim}, tensor.Set{"W": {Shape: []int{dim, dim}, Data: w.Data}})
	must(t, err)
	return map[string]rerank.Similarity{"dot": plain, "cosine": unit, "maxsim": best, "bilinear": full}
}

// tables are the ways in which a table comes about, of the same items.
func tables(t testing.TB, meta table.Meta, grouped bool, features rerank.Matrix) map[string]*table.Table {
	t.Helper()
	const each = 3
	items, starts := features.Rows, []int32(nil)
	if grouped {
		items = features.Rows / each
		for i := range items + 1 {
			starts = append(starts, int32(each*i))
		}
	}
	ids := make([]rerank.ID, items)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(10*items - i))
	}
	all := map[string]*table.Table{}
	for _, layout := range []table.Layout{table.LayoutRows, table.LayoutTiles} {
		for _, full := range []bool{true, false} {
			m := meta
			m.Layout, m.Full = layout, full
			tab, err := table.FromMemory(m, ids, features, starts)
			must(t, err)
			all[fmt.Sprintf("in memory, %s, full %t", layout, full)] = tab
		}
	}
	// The rows that packing takes most of are written while the table is live.
	path := filepath.Join(t.TempDir(), "t.table")
	w, err := table.NewWriter(path, meta)
	must(t, err)
	rowsOf := func(from, to int) (rerank.Matrix, []int32) {
		if !grouped {
			return features.Slice(from, to), nil
		}
		part := make([]int32, 0, to-from+1)
		for i := range to - from + 1 {
			part = append(part, int32(each*i))
		}
		return features.Slice(each*from, each*to), part
	}
	half := items / 2
	for i := range half {
		rows, _ := rowsOf(i, i+1)
		must(t, w.AppendGroup(ids[i], rows))
	}
	must(t, w.Close())
	l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true, CompactShare: -1})
	must(t, err)
	show := func(way string) {
		s := l.Snapshot()
		t.Cleanup(s.Release)
		all[way] = s
	}
	rows, part := rowsOf(half, items)
	must(t, l.Upsert(ids[half:], rows, part))
	show("live")
	rows, part = rowsOf(items-40, items)
	must(t, l.Upsert(ids[10:50], rows, part)) // some become better
	must(t, l.Delete(ids[items-9:items-3]))
	show("patched")
	must(t, l.Compact())
	show("compacted")
	must(t, l.Close())
	again, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true})
	must(t, err)
	t.Cleanup(func() { must(t, again.Close()) })
	s := again.Snapshot()
	t.Cleanup(s.Release)
	all["opened again"] = s
	return all
}

// missesNothing compares a scan with float64: φ of the rows that count, those in
// full precision where the table has them. It allows what Bound says of a score, on
// both sides of a comparison, and nothing else.
func missesNothing(t *testing.T, tab *table.Table, sim rerank.Similarity, e rerank.Encoded, o rerank.Operands) {
	full, ok := tab.Full()
	buf := make([]float32, tab.Meta().Features)
	phi := map[rerank.ID]float64{}
	for i := range tab.Len() {
		if !tab.Alive(i) {
			continue
		}
		best := math.Inf(-1)
		for from, to := tab.Rows(i); from < to; from++ {
			row := buf
			if tab.Row32(buf, from); ok {
				row = full.Row(from)
			}
			best = max(best, float64(o.Scale)*adversary.Dot(o.Vectors.Data, row))
		}
		phi[tab.ID(i)] = best
	}
	for _, k := range []int{1, 10, 300} {
		for _, processors := range []int{1, 3} {
			got, err := scan.NewShared(tab, sim.Spec(), turns.New(processors)).Scan(context.Background(), scan.Query{Encoded: e, K: k}, nil)
			must(t, err)
			epsilon := float64(e.Bound(nil, nil).Epsilon)
			found := map[rerank.ID]bool{}
			for _, row := range got.Top {
				want, there := phi[row.ID]
				if !there || found[row.ID] || !(math.Abs(float64(row.Score)-want) <= epsilon) {
					t.Fatalf("K %d: item %s scores %v, in float64 %v; alive %t, twice %t; ε %v", k, row.ID, row.Score, want, there, found[row.ID], epsilon)
				}
				found[row.ID] = true
			}
			kth := float64(got.Top[len(got.Top)-1].Score)
			for id, x := range phi {
				if !found[id] && x > kth+2*epsilon || len(got.Top) != k {
					t.Fatalf("K %d: %d rows, item %s is missing and scores %v, above the last by %v, ε %v", k, len(got.Top), id, x, x-kth, epsilon)
				}
			}
		}
	}
}
