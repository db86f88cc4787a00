package mol

import (
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// The levels of Screen: by the largest logit, and by gates in bfloat16. Of items in
// bfloat16 there is one between them, byGates with the query in bfloat16 too.
const (
	byLogits = iota
	byGates
)

// reduced is the gates' network in bfloat16, with what its rounding can do
// (docs/design.md, the scan's bounds). Norms of matrices are bounds of the spectral
// norm.
type reduced struct {
	first, second kernel.WeightsBFloat16
	// Of both layers: the weights' norm, that of their rounding, and the greatest
	// norms of a row of each.
	w, lost       [2]float64
	row, lostRow  float64
	bias          float64 // norm of the first layer's
	inner, hidden float64 // rounding of the products, in units of ‖l‖ and ‖h‖
	rough         float64 // norm of what a rough SiLU takes of the hidden layer
}

// reduce makes the gates' network for screens.
func (m *mlp) reduce() *reduced {
	if m.hidden() == 0 {
		return nil
	}
	r := &reduced{first: kernel.PackBFloat16(m.first.w), second: kernel.PackBFloat16(m.second.w), bias: rerank.Norm(m.first.bias)}
	for i, w := range []rerank.Matrix{m.first.w, m.second.w} {
		lost := rerank.NewMatrix(w.Rows, w.Cols)
		for k, v := range w.Data {
			lost.Data[k] = v - kernel.WidenBFloat16(kernel.RoundBFloat16(v))
		}
		r.w[i], r.lost[i] = kernel.SpectralNorm(w), kernel.SpectralNorm(lost)
		if i == 1 {
			r.row, r.lostRow = longestRow(w), longestRow(lost)
		}
	}
	r.inner = kernel.Gamma(m.first.w.Cols+2) * rerank.Norm(m.first.w.Data)
	r.rough = roughSiLU * math.Sqrt(float64(m.second.w.Cols))
	r.hidden = kernel.Gamma(m.second.w.Cols+2) * rerank.Norm(m.second.w.Data)
	return r
}

// roughSiLU is what a rough SiLU takes, with room for its roundings.
const roughSiLU = kernel.RoughSiLU * (1 + 1e-3)

// longestRow is the greatest norm of a row.
func longestRow(m rerank.Matrix) (top float64) {
	for r := range m.Rows {
		top = max(top, rerank.Norm(m.Row(r)))
	}
	return top
}

// split is the query's side for tiles of bfloat16: f_i/τ as a sum of two.
type split struct {
	once      sync.Once
	high, low kernel.WeightsBFloat16
	scaled    rerank.Matrix // f_i/τ
	norm      []float64     // of each row
	all       float64       // of all rows
	// What the first of the sum leaves out, and what both do: of each row, and the
	// spectral norm.
	lost    [2][]float64
	lostAll [2]float64
}

func (e *encoded) split() *split {
	s := &e.halves
	s.once.Do(func() {
		rows, cols := e.components.Rows, e.components.Cols
		s.scaled = rerank.NewMatrix(rows, cols)
		left := [2]rerank.Matrix{rerank.NewMatrix(rows, cols), rerank.NewMatrix(rows, cols)}
		for k, v := range e.components.Data[:rows*cols] {
			v *= e.s.maxScore()
			s.scaled.Data[k] = v
			for i := range left {
				v -= kernel.WidenBFloat16(kernel.RoundBFloat16(v)) // exact
				left[i].Data[k] = v
			}
		}
		s.all = rerank.Norm(s.scaled.Data)
		for i := range rows {
			s.norm = append(s.norm, rerank.Norm(s.scaled.Row(i)))
		}
		for h, m := range left {
			s.lostAll[h] = kernel.SpectralNorm(m)
			for i := range rows {
				s.lost[h] = append(s.lost[h], rerank.Norm(m.Row(i)))
			}
		}
		s.high, s.low = kernel.PackBFloat16(s.scaled), kernel.PackBFloat16(left[0])
	})
	return s
}

// logitError bounds what the logits of packed rows are off those that Score
// computes, with the query in bfloat16 (rough) or not: the greatest of them, and
// the norm of them all.
func (e *encoded) logitError(items rerank.Items, loss rerank.Loss, rough bool) (greatest, norm float64) {
	c, s, half := &e.s.c, e.split(), 1
	if items.Packed == nil {
		return 0, 0
	}
	if rough {
		half = 0
	}
	rounding := 3 * kernel.Gamma(2*c.Dim+2)
	var squares float64
	for j := range c.PairsItem {
		lost, length := e.s.lost(loss, j), float64(loss.Row.Norm)
		if loss.Block == e.s.spec.Block && j < len(loss.Blocks) {
			length = min(length, float64(loss.Blocks[j].Norm))
		}
		for i, n := range s.norm {
			greatest = max(greatest, n*lost+(s.lost[half][i]+rounding*n)*length+1e-30)
		}
		d := s.all*lost + (s.lostAll[half]+rounding*s.all)*length + 1e-28
		squares += d * d
	}
	return greatest, math.Sqrt(squares)
}

// itemError bounds the norm of what the item's part of the gates is off.
func (e *encoded) itemError(items rerank.Items, loss rerank.Loss) float64 {
	if items.Packed == nil || !e.s.byItem.exists() {
		return 0
	}
	var squares, factor float64
	for j := range (e.s.c.pairs() + e.s.c.Dim - 1) / e.s.c.Dim {
		lost := e.s.lost(loss, e.s.c.PairsItem+j)
		squares += lost * lost
	}
	for _, v := range e.factor {
		factor = max(factor, math.Abs(float64(v)))
	}
	return factor * math.Sqrt(squares)
}

// Screens implements rerank.Screener: φ is at most the largest logit, and gates in
// bfloat16 come near it where the model has a part of the gates that the logits decide.
func (e *encoded) Screens(items rerank.Items) int {
	switch {
	case e.s.reduced == nil:
		return 1
	case e.s.inBFloat16(items.Packed):
		return 3
	}
	return 2
}

// inBFloat16 reports whether logits are computed from rows as they lie.
func (s *Similarity) inBFloat16(p *rerank.Packed) bool {
	return p != nil && p.Format == rerank.FormatBFloat16 && s.c.Dim%2 == 0 && s.c.pairs()%2 == 0
}

var _ rerank.Screener = (*encoded)(nil)

// Screen implements rerank.Screener.
func (e *encoded) Screen(level int, dst []float32, items rerank.Items, loss rerank.Loss, reach float32) error {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return err
	}
	sc := e.s.borrow()
	defer e.s.scratch.Put(sc)
	b := bounds{e: e, gated: level >= byGates, reach: reach}
	b.rough = level == byGates && e.s.inBFloat16(items.Packed)
	b.logit, b.logits = e.logitError(items, loss, b.rough)
	if b.gated {
		errors := e.gateErrors(b.logits, e.itemError(items, loss))
		b.error = errors.forKernel()
	}
	batch := e.s.kernels.Batch() * kernel.Lanes
	for from := 0; from < len(dst); from += batch {
		b.group(sc, dst, items, from, min(from+batch, len(dst)))
	}
	return nil
}

// gateErrors bounds what the inputs of the softmax are off, where the errors of the
// logits and of the item's part of the gates have these norms.
func (e *encoded) gateErrors(logits, item float64) gateErrors {
	errors := e.s.reduced.errors(logits, item)
	if e.s.c.Combination == GLUSiLU {
		errors.scale(siluSlope)
		errors.all[0] += roughSiLU * math.Sqrt(float64(e.s.c.pairs()))
		errors.each[0] += roughSiLU
	}
	return errors
}

// bounds is one call of Screen.
type bounds struct {
	e            *encoded
	gated, rough bool
	reach        float32
	// Error of a logit, and norm of that of all.
	logit, logits float64
	error         kernel.GateErrors

	extent [kernel.MaxBatch][3][kernel.Lanes]float32
	off    [kernel.MaxBatch]float32 // error of φ besides that of the gates, of a tile
	mean   [2][kernel.Lanes]float32
	bound  [kernel.Lanes]float32
}

// group bounds the items [from, to), a batch of tiles at most.
func (b *bounds) group(sc *scratch, dst []float32, items rerank.Items, from, to int) {
	s := b.e.s
	g, words := b.load(sc, items, from, to)
	if words == nil {
		sc.ahead.Hurry() // layers in bfloat16 have half the steps
		sc.logits = grow(&sc.logits, g.tiles*s.logitTile())
		b.e.computeLogits(sc, &g)
	}
	out := dst[from:to]
	reaches := false
	for t := range g.tiles {
		s.kernels.Extent(&b.extent[t], sc.logits[t*s.logitTile():][:s.c.pairs()*kernel.Lanes])
		reaches = b.byLogits(out[t*kernel.Lanes:], &b.extent[t], &b.off[t]) || reaches
	}
	if !b.gated || !reaches {
		return
	}
	b.gates(sc, &g, words)
	for t := range g.tiles {
		b.byGates(out[t*kernel.Lanes:], &[4]*[kernel.Lanes]float32{&b.extent[t][2], &sc.widths[t][0], &sc.lost[t], &sc.widths[t][1]}, b.off[t], sc.logits[t*s.logitTile():][:s.c.pairs()*kernel.Lanes], sc.gates[t*s.gateTile():])
	}
}

// byLogits bounds φ by the largest logit, and reports whether any bound reaches
// what matters. 2·10⁻⁵ of the greatest norm of the tile's logits is for the rounding of
// Score, and of a screen that computes as Score does; 2⁻²⁰ for that of bounds.
func (b *bounds) byLogits(dst []float32, extent *[3][kernel.Lanes]float32, off *float32) bool {
	squares := kernel.Greatest(&extent[2])
	norm := rootAbove(squares) + b.logit
	*off = above(b.logit+(2*kernelError+0x1p-20)*norm) + 0*squares // NaN stays
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

// byGates bounds φ by what gates in bfloat16 make of it, and what they can be off by the squares of a tile: of the logits, of
// the hidden layer, and of what rounding the one and the other takes.
func (b *bounds) byGates(dst []float32, squares *[4]*[kernel.Lanes]float32, off float32, logits, gates []float32) {
	b.e.s.kernels.Weigh(&b.mean, logits, gates[:len(logits)])
	b.e.s.kernels.Bound(&b.bound, &b.mean, squares, &b.error, b.reach-off)
	for l := range min(len(dst), kernel.Lanes) {
		if bound := b.bound[l] + off; !(bound >= dst[l]) { // NaN stays: where dst is, off is
			dst[l] = bound
		}
	}
}

// rootAbove is above the norm of which x is the computed square.
func rootAbove(x float32) float64 { return float64(float32(math.Sqrt(float64(x)))) * (1 + normError) }

// normError is what norms are computed with, relatively.
const normError = 1e-4

// gateErrors bound the error of the inputs of the softmax, its norm and the greatest
// of an input: a sum, of a number and of these times the norms of the computed logits, of their
// computed hidden layer, and of what rounding took of both.
type gateErrors struct{ all, each [5]float64 }

// errors is of logits whose errors have a norm, and item parts with an error.
func (r *reduced) errors(logits, item float64) (e gateErrors) {
	for i := range e.all {
		var at [5]float64
		at[i] = 1
		e.all[i], e.each[i] = r.gateError(at[0], logits*at[0], at[1], at[2], at[3], at[4])
	}
	e.all[0] += item
	e.each[0] += item
	return e
}

func (e *gateErrors) scale(by float64) {
	for i := range e.all {
		e.all[i], e.each[i] = e.all[i]*by, e.each[i]*by
	}
}

// forKernel is for roots of sums of squares as they are computed.
func (e *gateErrors) forKernel() (out kernel.GateErrors) {
	for i := range e.all {
		above := 1 + normError*float64(min(i, 1)) + 1e-6
		out.All[i], out.Each[i] = float32(e.all[i]*above), float32(e.each[i]*above)
	}
	return out
}

// gateError bounds the error of the logits' part of the gates: its norm, and the
// greatest of an input. The computed logits have a norm, and their errors no greater
// one than off; hidden is the norm of the computed hidden layer, as it is rounded or before. Rounding took
// taken of the logits, and takenHidden of the layer. It is linear in the six, with one for 1.
func (r *reduced) gateError(one, off, norm, hidden, taken, takenHidden float64) (all, each float64) {
	const silu = 1e-6 // SiLU's own, twice, of its argument, besides the rough one's
	in := off + taken
	before := r.w[0]*in + (r.lost[0]+r.inner)*(norm+in) + 1e-6*r.bias*one
	hidden += takenHidden // of both, the greater
	in = siluSlope*before + silu*(r.w[0]*(norm+off)+r.bias*one+before) + takenHidden + r.rough*one
	rest := 2 * r.hidden * (hidden + in)
	return r.w[1]*in + r.lost[1]*(hidden+in) + rest, r.row*in + r.lostRow*(hidden+in) + rest
}

// above is a float32 that is not below x; NaN stays.
func above(x float64) float32 { return float32(x + math.Abs(x)*0x1p-23) }

// load describes the items [from, to). Of packed rows of bfloat16 it computes the
// logits at once, as they lie, and returns the words of the tiles.
func (b *bounds) load(sc *scratch, items rerank.Items, from, to int) (group, []uint32) {
	s, p := b.e.s, items.Packed
	if !s.inBFloat16(p) {
		return s.group(sc, items, from, to, false), nil
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
	sc.logits = grow(&sc.logits, g.tiles*s.logitTile())
	halves := b.e.split()
	next := min(from/kernel.Lanes*size+len(words), len(p.Words))
	sc.ahead.Memory(s.kernels, numbers(p.Words[next:min(next+len(words), len(p.Words))]))
	if g.tiles > 2 {
		sc.ahead.Hurry() // a unit for matrices has fewer steps
	}
	prod, calls, stepC, stepB := s.logitProduct(sc, &g, size, s.c.Dim/2*kernel.Lanes)
	prod.C, prod.Groups, prod.CGroup, prod.BGroup = sc.logits, calls, stepC, stepB
	if !b.rough {
		s.kernels.MultiplyBFloat16(halves.low, words, &prod)
		prod.Add = true
	}
	s.kernels.MultiplyBFloat16(halves.high, words, &prod)
	return g, words
}

// gates computes the inputs of the softmax from logits and weights in bfloat16.
func (b *bounds) gates(sc *scratch, g *group, packed []uint32) {
	s, r := b.e.s, b.e.s.reduced
	logits, pairs := s.logitTile()/2, s.c.pairs()&^1
	hidden := kernel.Padded(s.byPair.hidden()) * kernel.Lanes / 2
	words := grow(&sc.halves, g.tiles*(logits+hidden)+2*kernel.Lanes)
	layer := words[g.tiles*logits+2*kernel.Lanes:]
	clear(sc.lost[:g.tiles])
	for t := range g.tiles {
		s.kernels.Round(words[t*logits:], &sc.lost[t], sc.logits[t*s.logitTile():][:pairs*kernel.Lanes])
		if pairs < s.c.pairs() {
			roundOddRow(words[t*logits+pairs/2*kernel.Lanes:], &sc.lost[t], sc.logits[t*s.logitTile()+pairs*kernel.Lanes:])
		}
	}
	sc.gateHidden = grow(&sc.gateHidden, g.tiles*2*hidden)
	clear(sc.widths[:g.tiles])
	sc.narrow = kernel.Narrow{Words: layer, Tile: hidden, Squares: sc.widths[:]}
	s.kernels.MultiplyBFloat16(r.first, words, &kernel.Product{
		Tiles: g.tiles, C: sc.gateHidden, CTile: 2 * hidden, BTile: logits, Bias: s.byPair.first.biases, SiLU: true, Rough: true, Ahead: &sc.ahead,
		Narrow: &sc.narrow,
	})
	sc.gates = grow(&sc.gates, g.tiles*s.gateTile())
	p := kernel.Product{Tiles: g.tiles, C: sc.gates, CTile: s.gateTile(), BTile: hidden, Bias: b.e.bias, SiLU: s.c.Combination == GLUSiLU, Rough: true, Ahead: &sc.ahead}
	if s.byItem.exists() {
		p.Factor = b.e.factor
		p.Plus, p.PlusTile = b.itemGates(sc, g, packed)
	}
	s.kernels.MultiplyBFloat16(r.second, layer, &p)
}

// roundOddRow rounds a last value that has none beside it, as kernel.Set.Round does.
func roundOddRow(dst []uint32, lost *[kernel.Lanes]float32, values []float32) {
	for l, v := range values[:kernel.Lanes] {
		h := kernel.RoundBFloat16(v)
		dst[l] = uint32(h)
		rest := v - kernel.WidenBFloat16(h)
		lost[l] += rest * rest
	}
}

// itemGates is the item's part of the gates as Score reads it, widened where it is
// packed.
func (b *bounds) itemGates(sc *scratch, g *group, packed []uint32) ([]float32, int) {
	s := b.e.s
	if packed == nil {
		return s.itemGates(sc, g)
	}
	size := len(packed) / g.tiles
	first := s.c.PairsItem * s.c.Dim / 2 * kernel.Lanes
	item := grow(&sc.item, g.tiles*s.gateTile())
	part := rerank.Packing{Format: rerank.FormatBFloat16, Cols: s.c.pairs()}
	for t := range g.tiles {
		s.kernels.Widen(item[t*s.gateTile():][:part.Cols*kernel.Lanes], part, packed[t*size+first:])
	}
	return item, s.gateTile()
}
