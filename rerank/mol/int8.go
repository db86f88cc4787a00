package mol

import (
	"math"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// int8Parts is the query's side for rows of int8: f_i/τ as a sum of two int8 matrices, each with
// one scale.
type int8Parts struct {
	once sync.Once
	approximation
	values [2][]int8
	scales [2]float32
	both   kernel.WeightsInt8 // the rows of the first matrix, then of the second
}

// leastScale is the least scale of an int8 matrix, so that no product with it becomes subnormal.
// Smaller numbers are left out.
const leastScale = 1e-30

func (e *encoded) int8Parts() *int8Parts {
	p := &e.int8
	p.once.Do(func() {
		p.measure(e.components, e.c.maxScore())
		left := make([]float64, len(p.scaled.Data))
		for k, v := range p.scaled.Data {
			left[k] = float64(v)
		}
		rest := rerank.NewMatrix(p.scaled.Rows, p.scaled.Cols)
		copy(rest.Data, p.scaled.Data)
		for part := range p.values {
			p.values[part] = make([]int8, len(left))
			scale := kernel.Quantize(p.values[part], rest.Data)
			if !(scale >= leastScale) && scale == scale {
				clear(p.values[part])
				scale = 0
			}
			for k, n := range p.values[part] {
				left[k] -= float64(scale) * float64(n)
				rest.Data[k] = float32(left[k])
			}
			p.scales[part] = scale
			p.leave(part, rest)
		}
		p.both, _ = kernel.PackInt8(2*rest.Rows, rest.Cols, slices.Concat(p.values[0], p.values[1])) // no longer than inInt8 permits
	})
	return p
}

// inInt8 reports whether the logits can be computed from the packed rows without unpacking
// them, by products of int8.
func (c *Config) inInt8(p *rerank.Packed) bool {
	return p != nil && p.Format == rerank.FormatInt8 && p.Block == c.Dim && c.Dim <= kernel.MaxInt8
}

// panel is the first int8 matrices of some queries, packed to be multiplied with tiles.
type panel struct {
	queries []*encoded
	teams   []kernel.WeightsInt8 // of `each` queries, the last of fewer
	each    int
}

// panelProducts is about how many products of a tile are computed before they are read. They stay
// in a first-level cache.
const panelProducts = 4096

// pack makes the panel of some queries, unless it is that already: the same queries screen one
// piece of a table after another.
func (p *panel) pack(s *Similarity, queries []*encoded) {
	if slices.Equal(p.queries, queries) {
		return
	}
	p.queries, p.teams = append(p.queries[:0], queries...), p.teams[:0]
	p.each = max(1, panelProducts/(s.c.pairs()*kernel.Lanes))
	for team := range slices.Chunk(queries, p.each) {
		var rows []int8
		for _, e := range team {
			rows = append(rows, e.int8Parts().values[0]...)
		}
		w, _ := kernel.PackInt8(len(team)*s.c.PairsQuery, s.c.Dim, rows)
		p.teams = append(p.teams, w)
	}
}

// screenInt8 writes the bounds of items in int8, one query after the other. It bounds every item by
// its largest logit, computed with the query's first int8 matrix. For level byGates, it computes
// the items that may reach again: the logits with both matrices, and the gates.
func (s *Similarity) screenInt8(sc *scratch, level int, dst []float32, queries []*encoded, items rerank.Items, loss rerank.Loss, reach []float32) {
	s.boundByInt8(sc, dst, queries, items, loss)
	if level < byGates {
		return
	}
	n := items.Len()
	for q, e := range queries {
		sc.bounds[q].begin(e, level, items, loss, reach[q])
		sc.bounds[q].tighten(sc, dst[q*n:][:n], items)
	}
}

// boundByInt8 writes the bounds by the largest logit.
func (s *Similarity) boundByInt8(sc *scratch, dst []float32, queries []*encoded, items rerank.Items, loss rerank.Loss) {
	c, n := &s.c, items.Len()
	sc.panel.pack(s, queries)
	off := grow(&sc.off, len(queries))
	for q, e := range queries {
		off[q] = e.largestLogitError(items, loss)
	}
	first, _ := items.Packed.Packing.Words(0)
	var out [kernel.Lanes]float32
	for from := 0; from < n; from += kernel.Lanes {
		to := min(from+kernel.Lanes, n)
		_, tile := s.tilesOf(sc, items, from, to)
		sc.ahead.Hurry() // few steps
		for i, w := range sc.panel.teams {
			team := queries[i*sc.panel.each : min((i+1)*sc.panel.each, len(queries))]
			step := kernel.Padded(len(team)*c.PairsQuery) * kernel.Lanes
			products := grow(&sc.products, c.PairsItem*step)
			s.kernels.MultiplyInt8(w, tile[first*kernel.Lanes:], s.c.int8Product(sc, products, step))
			for member, e := range team {
				q := i*sc.panel.each + member
				s.kernels.LargestInt8(&out, products[member*c.PairsQuery*kernel.Lanes:], step, c.PairsQuery, tile, c.PairsItem, e.int8Parts().scales[0], off[q])
				copy(dst[q*n+from:q*n+to], out[:])
			}
		}
	}
}

// int8Product describes a product with the components of one tile, each of which is a tile of the product.
func (c *Config) int8Product(sc *scratch, products []int32, step int) *kernel.ProductInt8 {
	return &kernel.ProductInt8{Tiles: c.PairsItem, C: products, CTile: step, BTile: (c.Dim + 3) / 4 * kernel.Lanes, Ahead: &sc.ahead}
}

// largestLogitError bounds how far the largest logit that boundByInt8 computes can lie below φ and
// Score: the errors of a logit, and of the arithmetic of Score and of the bound, relative to the
// norm of all logits.
func (e *encoded) largestLogitError(items rerank.Items, loss rerank.Loss) float32 {
	greatest, all := e.logitError(items, loss, true)
	norm := e.logitNorm(items, loss) + all
	if !(norm < mostSquared) {
		return float32(math.Inf(1))
	}
	return above(greatest + (2*mixError(inFloat32, e.c.pairs())+0x1p-20)*norm)
}

// mostSquared is a norm whose square is far below the greatest float32. A logit beyond it may
// overflow in Score.
const mostSquared = 1e18

// logitNorm bounds the norm of an item's logits over τ.
func (e *encoded) logitNorm(items rerank.Items, loss rerank.Loss) float64 {
	var squares float64
	for j := range e.c.PairsItem {
		length := e.c.length(loss, j)
		squares += length * length
	}
	return e.approximation(items).all * math.Sqrt(squares)
}

// tighten replaces the bounds in dst that may reach b.reach by bounds from gates. Where those are
// few, it gathers their items into tiles.
func (b *bounds) tighten(sc *scratch, dst []float32, items rerank.Items) {
	sc.near, sc.nearRows = sc.near[:0], sc.nearRows[:0]
	for i, bound := range dst {
		if !(bound < b.reach) {
			sc.near, sc.nearRows = append(sc.near, int32(i)), append(sc.nearRows, rowNumber(items, i))
		}
	}
	if len(sc.near) > len(dst)/gatherShare {
		b.tiles(sc, dst, items)
		return
	}
	near := grow(&sc.nearBounds, len(sc.near))
	for i, at := range sc.near {
		near[i] = dst[at]
	}
	b.tiles(sc, near, rerank.Items{Packed: items.Packed, Rows: sc.nearRows})
	for i, at := range sc.near {
		dst[at] = near[i]
	}
}

// gatherShare: gathering an item from a tile costs less than computing this many others beside it.
const gatherShare = 3

// tiles bounds items one group of tiles after another.
func (b *bounds) tiles(sc *scratch, dst []float32, items rerank.Items) {
	size := b.e.s.kernels.Batch() * kernel.Lanes
	for from := 0; from < len(dst); from += size {
		to := min(from+size, len(dst))
		g, words := b.e.s.tilesOf(sc, items, from, to)
		b.computeLogits(sc, &g, words)
		b.group(sc, &g, sc.logits, b.e.c.logitTile(), dst[from:to], words)
	}
}

// logitsFromInt8 leaves the query's logits over τ in the scratch, computed from the words of tiles
// in int8.
func (b *bounds) logitsFromInt8(sc *scratch, g *group, words []uint32) {
	s, parts := b.e.s, b.e.int8Parts()
	c, size := &s.c, len(words)/g.tiles
	step := kernel.Padded(2*c.PairsQuery) * kernel.Lanes
	products := grow(&sc.products, c.PairsItem*step)
	first, _ := b.packing.Words(0)
	for t := range g.tiles {
		tile := words[t*size:][:size]
		s.kernels.MultiplyInt8(parts.both, tile[first*kernel.Lanes:], s.c.int8Product(sc, products, step))
		logits := sc.logits[t*s.c.logitTile():][:c.pairs()*kernel.Lanes]
		clear(logits)
		for row := range 2 * c.PairsQuery {
			i := row % c.PairsQuery
			s.kernels.AddInt8(logits[i*c.PairsItem*kernel.Lanes:][:c.PairsItem*kernel.Lanes], products[row*kernel.Lanes:], step, tile, kernel.Lanes, parts.scales[row/c.PairsQuery])
		}
	}
}
