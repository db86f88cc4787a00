package mol

import (
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// The levels of Screen: a bound by the largest logit, then a bound by gates computed in
// bfloat16. For items in bfloat16, level byGates rounds the query to bfloat16 too, and a
// third level does not.
const (
	byLogits = iota
	byGates
)

// Screens implements rerank.Screener. φ is at most the largest logit; gates in bfloat16
// give a tighter bound if the model has a logit part of the gates.
func (e *encoded) Screens(items rerank.Items) int {
	switch {
	case e.s.reduced == nil:
		return 1
	case e.c.inBFloat16(items.Packed):
		return 3
	}
	return 2
}

// inBFloat16 reports whether the logits can be computed from the packed rows without
// unpacking them.
func (c *Config) inBFloat16(p *rerank.Packed) bool {
	return p != nil && p.Format == rerank.FormatBFloat16 && c.Dim%2 == 0 && c.pairs()%2 == 0
}

var _ rerank.Screener = (*encoded)(nil)

// Screen implements rerank.Screener.
func (e *encoded) Screen(level int, dst []float32, items rerank.Items, loss rerank.Loss, reach float32) error {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return err
	}
	one, reaches := [1]*encoded{e}, [1]float32{reach}
	e.s.screen(level, dst, one[:], items, loss, reaches[:])
	return nil
}

// ScreenBatch implements rerank.BatchScreener. Each item is read once for all queries, and
// gets the same bounds as from Screen.
func (s *Similarity) ScreenBatch(level int, dst []float32, queries []rerank.Encoded, items rerank.Items, loss rerank.Loss, reach []float32) error {
	encodeds, err := s.sameModel(queries)
	if err != nil {
		return err
	}
	if len(reach) != len(queries) {
		return fmt.Errorf("%w: %d scores to reach for %d queries", rerank.ErrItems, len(reach), len(queries))
	}
	if err := rerank.CheckBatch(len(dst), len(queries), items, s.spec); err != nil || len(queries) == 0 {
		return err
	}
	s.screen(level, dst, encodeds, items, loss, reach)
	return nil
}

// screen writes an upper bound of φ for every query and item to dst: all items of the first query, then of the
// next.
func (s *Similarity) screen(level int, dst []float32, queries []*encoded, items rerank.Items, loss rerank.Loss, reach []float32) {
	sc := s.borrow()
	defer s.scratch.Put(sc)
	for len(sc.bounds) < len(queries) {
		sc.bounds = append(sc.bounds, new(bounds))
	}
	if s.c.inInt8(items.Packed) {
		s.screenInt8(sc, level, dst, queries, items, loss, reach)
		return
	}
	for q, e := range queries {
		sc.bounds[q].begin(e, level, items, loss, reach[q])
	}
	n, tiles := items.Len(), s.kernels.Batch()
	teams := s.teams(sc, queries, tiles)
	for from := 0; from < n; from += tiles * kernel.Lanes {
		to := min(from+tiles*kernel.Lanes, n)
		g, words := s.tilesOf(sc, items, from, to)
		if words != nil {
			for q := range queries {
				b := sc.bounds[q]
				b.computeLogits(sc, &g, words)
				b.group(sc, &g, sc.logits, s.c.logitTile(), dst[q*n+from:q*n+to], words)
			}
			continue
		}
		sc.ahead.Hurry() // layers in bfloat16 have half the steps
		q := 0
		for i := range teams {
			team := &teams[i]
			team.computeLogits(sc, &g)
			for member := range team.queries {
				sc.bounds[q].group(sc, &g, sc.logits[member*s.c.logitTile():], team.logitTile(), dst[q*n+from:q*n+to], nil)
				q++
			}
		}
	}
}

// bounds holds the state of one query of a screen.
type bounds struct {
	e            *encoded
	packing      rerank.Packing // of the items, if they are packed
	gated, rough bool
	reach        float32
	// The greatest error of a logit, the norm of the errors of all logits, and the relative
	// error of two weighted means.
	logit, logits, mix float64
	error              kernel.GateErrors

	extent [kernel.MaxBatch][3][kernel.Lanes]float32
	off    [kernel.MaxBatch]float32 // error of φ apart from the gates' error, per tile
	mean   [2][kernel.Lanes]float32
	bound  [kernel.Lanes]float32
}

// begin prepares for the bounds of a query's scores.
func (b *bounds) begin(e *encoded, level int, items rerank.Items, loss rerank.Loss, reach float32) {
	b.e, b.gated, b.reach, b.mix = e, level >= byGates, reach, 2*mixError(inFloat32, e.c.pairs())
	if items.Packed != nil {
		b.packing = items.Packed.Packing
	}
	b.rough = level == byGates && e.c.inBFloat16(items.Packed)
	b.logit, b.logits = e.logitError(items, loss, b.rough)
	if b.gated {
		errors := e.gateErrors(b.logits, e.itemError(items, loss), e.inputSize(loss))
		b.error = errors.forKernel()
	}
}

// group bounds the items of a group, at most one batch of tiles. Tile t of the query's logits
// begins at logits[t*logitTile].
func (b *bounds) group(sc *scratch, g *group, logits []float32, logitTile int, dst []float32, words []uint32) {
	s := b.e.s
	reaches := false
	for t := range g.tiles {
		s.kernels.Extent(&b.extent[t], logits[t*logitTile:][:s.c.pairs()*kernel.Lanes])
		reaches = b.byLogits(dst[t*kernel.Lanes:], &b.extent[t], &b.off[t]) || reaches
	}
	if !b.gated || !reaches {
		return
	}
	if words != nil {
		b.widenItemGates(sc, g, words)
	} else if g.gates == nil {
		s.readItemGates(sc, g)
	}
	b.gates(sc, g, logits, logitTile)
	for t := range g.tiles {
		b.byGates(dst[t*kernel.Lanes:], &[4]*[kernel.Lanes]float32{&b.extent[t][2], &sc.widths[t][0], &sc.lost[t], &sc.widths[t][1]}, b.off[t], logits[t*logitTile:][:s.c.pairs()*kernel.Lanes], sc.gates[t*s.c.gateTile():])
	}
}

// byLogits bounds φ by the largest logit, and reports whether any bound reaches b.reach. It
// adds the rounding of Score's weighted mean and of a screen's, relative to the greatest norm
// of the tile's logits, and 2⁻²⁰ of it for the rounding of the bounds.
func (b *bounds) byLogits(dst []float32, extent *[3][kernel.Lanes]float32, off *float32) bool {
	squares := kernel.Greatest(&extent[2])
	norm := rootAbove(squares) + b.logit
	*off = above(b.logit+(b.mix+0x1p-20)*norm) + 0*squares // NaN stays
	dst = dst[:min(len(dst), kernel.Lanes)]
	for l := range dst {
		dst[l] = extent[0][l] + *off
	}
	for _, bound := range dst {
		if !(bound < b.reach) {
			return true
		}
	}
	return false
}

// byGates tightens the bounds in dst by gates computed in bfloat16. squares holds sums of
// squares of a tile, from which the error of the gates follows: of the logits, of the
// hidden layer, and of the rounding errors of both.
func (b *bounds) byGates(dst []float32, squares *[4]*[kernel.Lanes]float32, off float32, logits, gates []float32) {
	b.e.s.kernels.Weigh(&b.mean, logits, gates[:len(logits)])
	b.e.s.kernels.Bound(&b.bound, &b.mean, squares, &b.error, b.reach-off)
	for l := range min(len(dst), kernel.Lanes) {
		if bound := b.bound[l] + off; !(bound >= dst[l]) { // a NaN in dst is kept, because off is then NaN too
			dst[l] = bound
		}
	}
}

// rootAbove returns an upper bound of the norm whose computed square is x.
func rootAbove(x float32) float64 { return float64(float32(math.Sqrt(float64(x)))) * (1 + normError) }

// above returns a float32 that is not below x. It propagates NaN.
func above(x float64) float32 { return float32(x + math.Abs(x)*0x1p-23) }

// tilesOf describes the items [from, to). If the logits can be computed from the words of
// packed tiles, it returns those words.
func (s *Similarity) tilesOf(sc *scratch, items rerank.Items, from, to int) (group, []uint32) {
	p := items.Packed
	if !s.c.inBFloat16(p) && !s.c.inInt8(p) {
		return s.group(sc, items, from, to), nil
	}
	g := group{count: to - from, size: s.spec.Features * kernel.Lanes, rows: &sc.numbers}
	g.tiles = (g.count + kernel.Lanes - 1) / kernel.Lanes
	size := p.RowWords() * kernel.Lanes
	var words []uint32
	if p.Tiled && items.Rows == nil && from%kernel.Lanes == 0 {
		words = p.Words[from/kernel.Lanes*size:][:g.tiles*size]
	} else {
		words = grow(&sc.words, g.tiles*size)
		for l := range g.tiles * kernel.Lanes {
			g.rows[l/kernel.Lanes][l%kernel.Lanes] = rowNumber(items, min(from+l, to-1))
		}
		for t := range g.tiles {
			s.kernels.Gather(words[t*size:(t+1)*size], p, &g.rows[t])
		}
	}
	next := min(from/kernel.Lanes*size+len(words), len(p.Words))
	sc.ahead.Memory(s.kernels, numbers(p.Words[next:min(next+len(words), len(p.Words))]))
	if g.tiles > 2 {
		sc.ahead.Hurry() // a matrix unit takes fewer steps
	}
	return g, words
}

// computeLogits leaves the query's logits over τ in the scratch, computed from the words of
// tiles in bfloat16 or int8.
func (b *bounds) computeLogits(sc *scratch, g *group, words []uint32) {
	s := b.e.s
	sc.logits = grow(&sc.logits, g.tiles*s.c.logitTile())
	if b.packing.Format == rerank.FormatInt8 {
		b.logitsFromInt8(sc, g, words)
		return
	}
	halves := b.e.split()
	prod, calls, stepC, stepB := s.c.logitProduct(sc, g, s.c.logitTile(), len(words)/g.tiles, s.c.Dim/2*kernel.Lanes)
	prod.C, prod.Groups, prod.CGroup, prod.BGroup = sc.logits, calls, stepC, stepB
	if !b.rough {
		s.kernels.MultiplyBFloat16(halves.low, words, &prod)
		prod.Add = true
	}
	s.kernels.MultiplyBFloat16(halves.high, words, &prod)
}

// gates computes the inputs of the softmax from logits and weights in bfloat16.
func (b *bounds) gates(sc *scratch, g *group, logits []float32, logitTile int) {
	s, r := b.e.s, b.e.s.reduced
	rounded, pairs := s.c.logitTile()/2, s.c.pairs()&^1
	hidden := kernel.Padded(s.byPair.hidden()) * kernel.Lanes / 2
	words := grow(&sc.halves, g.tiles*(rounded+hidden)+2*kernel.Lanes)
	layer := words[g.tiles*rounded+2*kernel.Lanes:]
	clear(sc.lost[:g.tiles])
	for t := range g.tiles {
		s.kernels.Round(words[t*rounded:], &sc.lost[t], logits[t*logitTile:][:pairs*kernel.Lanes])
		if pairs < s.c.pairs() {
			roundOddRow(words[t*rounded+pairs/2*kernel.Lanes:], &sc.lost[t], logits[t*logitTile+pairs*kernel.Lanes:])
		}
	}
	sc.gateHidden = grow(&sc.gateHidden, g.tiles*2*hidden)
	clear(sc.widths[:g.tiles])
	sc.narrow = kernel.Narrow{Words: layer, Tile: hidden, Squares: sc.widths[:]}
	s.kernels.MultiplyBFloat16(r.first, words, &kernel.Product{
		Tiles: g.tiles, C: sc.gateHidden, CTile: 2 * hidden, BTile: rounded, Bias: s.byPair.first.biases, SiLU: true, Rough: true, Ahead: &sc.ahead,
		Narrow: &sc.narrow,
	})
	sc.gates = grow(&sc.gates, g.tiles*s.c.gateTile())
	p := kernel.Product{Tiles: g.tiles, C: sc.gates, CTile: s.c.gateTile(), BTile: hidden, Bias: b.e.bias, SiLU: s.c.Combination == GLUSiLU, Rough: true, Ahead: &sc.ahead}
	if g.gates != nil {
		p.Factor, p.Plus, p.PlusTile = b.e.factor, g.gates, g.gatesTile
	}
	s.kernels.MultiplyBFloat16(r.second, layer, &p)
}

// roundOddRow rounds the last row of values of a tile if the number of rows is odd, as
// kernel.Set.Round does for pairs of rows.
func roundOddRow(dst []uint32, lost *[kernel.Lanes]float32, values []float32) {
	for l, v := range values[:kernel.Lanes] {
		h := kernel.RoundBFloat16(v)
		dst[l] = uint32(h)
		rest := v - kernel.WidenBFloat16(h)
		lost[l] += rest * rest
	}
}

// widenItemGates sets the group's gates, converted to float32 from the words of packed tiles, if
// the model has an item's part of the gates and they are not set.
func (b *bounds) widenItemGates(sc *scratch, g *group, words []uint32) {
	s := b.e.s
	if g.gates != nil || !s.byItem.exists() {
		return
	}
	size := len(words) / g.tiles
	g.gates, g.gatesTile = grow(&sc.item, g.tiles*s.c.gateTile()), s.c.gateTile()
	packing := b.packing
	packing.Block = s.c.Dim // bfloat16 has the same words in blocks of any even length
	for t := range g.tiles {
		for block := s.c.PairsItem; block < packing.Blocks(); block++ {
			s.kernels.WidenBlock(g.gates[t*s.c.gateTile()+(block-s.c.PairsItem)*s.c.Dim*kernel.Lanes:], packing, block, words[t*size:])
		}
	}
}
