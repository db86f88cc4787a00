package mol

import (
	"fmt"
	"math"
	"sync"

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

// reduced is the gates' network in bfloat16, with bounds of its rounding errors
// (the package comment has the formulae). A norm of a matrix is an upper bound of its
// spectral norm.
type reduced struct {
	first, second kernel.WeightsBFloat16
	// For each layer: the norm of its weights and of their rounding errors. row and lostRow
	// are the greatest row norms of the second layer's weights and errors.
	w, lost      [2]float64
	row, lostRow float64
	// through and throughRow bound how much both layers amplify an error of the logits: the
	// norm of all outputs' errors, and the greatest error of an output.
	through, throughRow float64
	bias                float64 // norm of the first layer's bias
	inner, hidden       float64 // rounding of the first and second product, in units of ‖logits‖ and ‖hidden layer‖
	rough               float64 // norm of the error of the approximate SiLU over the hidden layer
}

// reduce converts the network to bfloat16 for screens. It returns nil if there is no hidden
// layer.
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
	r.through, r.throughRow = m.amplify()
	r.through, r.throughRow = min(r.through, siluSlope*r.w[1]*r.w[0]), min(r.throughRow, siluSlope*r.row*r.w[0])
	r.inner = kernel.Gamma(m.first.w.Cols+2) * rerank.Norm(m.first.w.Data)
	r.rough = roughSiLU * math.Sqrt(float64(m.second.w.Cols))
	r.hidden = kernel.Gamma(m.second.w.Cols+18) * rerank.Norm(m.second.w.Data) // with the exponential and an outer SiLU
	return r
}

// amplify bounds how much the layers amplify an error of the logits: the spectral norm, and the
// greatest row norm, of W₂·D·W₁ for every diagonal D of slopes of SiLU. Those lie within σ − ½ of
// ½, so D = ½ + D′ with ‖D′‖ ≤ σ − ½, and W₂·D′·W₁ = (W₂·S⁻¹)·D′·(S·W₁) for every diagonal S.
func (m *mlp) amplify() (all, row float64) {
	first, second := balance(m.first.w, m.second.w)
	product := rerank.NewMatrix(second.Rows, first.Cols)
	kernel.MulT(product.Data, product.Cols, second, kernel.Transpose(first), nil)
	rounding := kernel.Gamma(first.Rows+1) * rerank.Norm(first.Data) * rerank.Norm(second.Data)
	into := (siluSlope - 0.5) * kernel.SpectralNorm(first)
	for r := range product.Rows {
		row = max(row, (rerank.Norm(product.Row(r))+rounding)/2+into*rerank.Norm(second.Row(r)))
	}
	return (kernel.SpectralNorm(product)+rounding)/2 + into*kernel.SpectralNorm(second), row
}

// balance returns S·W₁ and W₂·S⁻¹, whose weights into and out of a hidden unit have about the same
// norm. S has powers of two, so that nothing is rounded.
func balance(first, second rerank.Matrix) (in, out rerank.Matrix) {
	in, out = kernel.Transpose(kernel.Transpose(first)), kernel.Transpose(second)
	for h := range in.Rows {
		power := math.Round(math.Log2(rerank.Norm(out.Row(h))/rerank.Norm(in.Row(h))) / 2)
		if !(math.Abs(power) < 32) { // also a unit without weights
			continue
		}
		by := float32(math.Exp2(power))
		for k := range in.Row(h) {
			in.Row(h)[k] *= by
		}
		for k := range out.Row(h) {
			out.Row(h)[k] /= by
		}
	}
	return in, kernel.Transpose(out)
}

// roughSiLU bounds the error of the approximate SiLU, with a margin for its roundings.
const roughSiLU = kernel.RoughSiLU * (1 + 1e-3)

// longestRow returns the greatest norm of a row.
func longestRow(m rerank.Matrix) (top float64) {
	for r := range m.Rows {
		top = max(top, rerank.Norm(m.Row(r)))
	}
	return top
}

// approximation describes the query's side in a number format: f_i/τ, and what the format leaves
// of them.
type approximation struct {
	scaled rerank.Matrix // f_i/τ
	norm   []float64     // norm of each row of scaled
	all    float64       // Frobenius norm of scaled
	// spectral bounds the spectral norm of scaled.
	spectral float64
	// The error of representing f_i/τ by one matrix of the format (index 0) and by a sum of
	// two (index 1): the norm of each row, and the spectral norm.
	lost    [2][]float64
	lostAll [2]float64
}

// measure sets scaled and its norms.
func (a *approximation) measure(e *encoded) {
	a.scaled = rerank.NewMatrix(e.components.Rows, e.components.Cols)
	for k := range a.scaled.Data {
		a.scaled.Data[k] = e.components.Data[k] * e.s.maxScore()
	}
	a.all, a.spectral = rerank.Norm(a.scaled.Data), kernel.SpectralNorm(a.scaled)
	for i := range a.scaled.Rows {
		a.norm = append(a.norm, rerank.Norm(a.scaled.Row(i)))
	}
}

// leave records what the matrices up to `part` leave of scaled.
func (a *approximation) leave(part int, rest rerank.Matrix) {
	a.lostAll[part] = kernel.SpectralNorm(rest)
	for i := range rest.Rows {
		a.lost[part] = append(a.lost[part], rerank.Norm(rest.Row(i)))
	}
}

// approximation returns the query's side as screens of the items have it.
func (e *encoded) approximation(items rerank.Items) *approximation {
	if e.s.inInt8(items.Packed) {
		return &e.int8Parts().approximation
	}
	return &e.split().approximation
}

// split is the query's side for tiles of bfloat16: f_i/τ as a sum high + low of two
// bfloat16 matrices.
type split struct {
	once sync.Once
	approximation
	high, low kernel.WeightsBFloat16
}

func (e *encoded) split() *split {
	s := &e.halves
	s.once.Do(func() {
		s.measure(e)
		left := [2]rerank.Matrix{rerank.NewMatrix(s.scaled.Rows, s.scaled.Cols), rerank.NewMatrix(s.scaled.Rows, s.scaled.Cols)}
		for k, v := range s.scaled.Data {
			for i := range left {
				v -= kernel.WidenBFloat16(kernel.RoundBFloat16(v)) // exact
				left[i].Data[k] = v
			}
		}
		for i, rest := range left {
			s.leave(i, rest)
		}
		s.high, s.low = kernel.PackBFloat16(s.scaled), kernel.PackBFloat16(left[0])
	})
	return s
}

// logitError bounds how far a screen's logits differ from Score's logits, and from exact
// ones: the greatest difference, and the norm of all differences. rough means that one matrix
// of the rows' format represents the query.
func (e *encoded) logitError(items rerank.Items, loss rerank.Loss, rough bool) (greatest, norm float64) {
	c, s, half := &e.s.c, e.approximation(items), 1
	if rough {
		half = 0
	}
	rounding, rest, restAll := 3*kernel.Gamma(2*c.Dim+2), s.lost[half], s.lostAll[half]
	if items.Packed == nil { // the same logits as Score's
		rounding, rest, restAll = kernel.Gamma(c.Dim+4), make([]float64, c.PairsQuery), 0
	}
	var squares float64
	for j := range c.PairsItem {
		lost, length := e.s.lost(loss, j), e.s.length(loss, j)
		for i, n := range s.norm {
			greatest = max(greatest, n*lost+(rest[i]+rounding*(n+rest[i]))*length+1e-30)
		}
		d := s.spectral*lost + (restAll+rounding*(s.all+restAll))*length + 1e-28
		squares += d * d
	}
	return greatest, math.Sqrt(squares)
}

// length bounds the norm of component j of an item, packed or not.
func (s *Similarity) length(loss rerank.Loss, j int) float64 {
	if length := s.blockNorm(loss, j); !math.IsInf(length, 1) {
		return length
	}
	return s.norm(loss, j) // not measured
}

// itemError bounds the norm of the error of the item's part of the gates.
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

// Screens implements rerank.Screener. φ is at most the largest logit; gates in bfloat16
// give a tighter bound if the model has a logit part of the gates.
func (e *encoded) Screens(items rerank.Items) int {
	switch {
	case e.s.reduced == nil:
		return 1
	case e.s.inBFloat16(items.Packed):
		return 3
	}
	return 2
}

// inBFloat16 reports whether the logits can be computed from the packed rows without
// unpacking them.
func (s *Similarity) inBFloat16(p *rerank.Packed) bool {
	return p != nil && p.Format == rerank.FormatBFloat16 && s.c.Dim%2 == 0 && s.c.pairs()%2 == 0
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
	if s.inInt8(items.Packed) {
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
				b.group(sc, &g, sc.logits, s.logitTile(), dst[q*n+from:q*n+to], words)
			}
			continue
		}
		sc.ahead.Hurry() // layers in bfloat16 have half the steps
		q := 0
		for i := range teams {
			team := &teams[i]
			team.computeLogits(sc, &g)
			for member := range team.queries {
				sc.bounds[q].group(sc, &g, sc.logits[member*s.logitTile():], team.logitTile(), dst[q*n+from:q*n+to], nil)
				q++
			}
		}
	}
}

// begin prepares for the bounds of a query's scores.
func (b *bounds) begin(e *encoded, level int, items rerank.Items, loss rerank.Loss, reach float32) {
	b.e, b.gated, b.reach, b.mix = e, level >= byGates, reach, 2*mixError(inFloat32, e.s.c.pairs())
	if items.Packed != nil {
		b.packing = items.Packed.Packing
	}
	b.rough = level == byGates && e.s.inBFloat16(items.Packed)
	b.logit, b.logits = e.logitError(items, loss, b.rough)
	if b.gated {
		errors := e.gateErrors(b.logits, e.itemError(items, loss), e.inputSize(loss))
		b.error = errors.forKernel()
	}
}

// gateErrors bounds the errors of the softmax inputs, given the norms of the errors of the
// logits and of the item's part of the gates, and the largest summand of an input apart
// from the logits' part.
func (e *encoded) gateErrors(logits, item, summand float64) gateErrors {
	errors, root := e.s.reduced.errors(logits, item), sqrt(e.s.c.pairs())
	rounding := 2 * (kernel.Gamma(e.s.byPair.hidden()+6)*summand + 8*inFloat32.unit*(summand+1)) // of Screen and of Score
	if e.s.c.Combination == GLUSiLU {
		errors.scale(siluSlope)
		rounding = siluSlope*rounding + inFloat32.siluError(summand, 1)
		errors.all[0] += roughSiLU * root
		errors.each[0] += roughSiLU
	}
	errors.all[0] += rounding * root
	errors.each[0] += rounding
	return errors
}

// inputSize bounds the summands of a softmax input apart from the logits' part.
func (e *encoded) inputSize(loss rerank.Loss) float64 {
	n, item := e.norms(), 0.0
	if e.s.byItem.exists() {
		for p := e.s.c.PairsItem; p < e.s.c.PairsItem+(e.s.c.pairs()+e.s.c.Dim-1)/e.s.c.Dim; p++ {
			item = max(item, e.s.blockNorm(loss, p))
		}
	}
	return n.bias + n.factor*item
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
		b.byGates(dst[t*kernel.Lanes:], &[4]*[kernel.Lanes]float32{&b.extent[t][2], &sc.widths[t][0], &sc.lost[t], &sc.widths[t][1]}, b.off[t], logits[t*logitTile:][:s.c.pairs()*kernel.Lanes], sc.gates[t*s.gateTile():])
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

// normError is the relative error of computed norms.
const normError = 1e-4

// gateErrors bounds the errors of the softmax inputs: all bounds their norm, each the
// greatest single error. Index 0 is a constant. The other indices are factors of four
// norms: of the computed logits, of the computed hidden layer, and of the rounding errors
// of the two.
type gateErrors struct{ all, each [5]float64 }

// errors returns the gate errors for logits and item parts whose errors have the given
// norms.
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

// forKernel converts the bounds for the kernel, which multiplies them with square roots of
// computed sums of squares; it adds the error of those roots.
func (e *gateErrors) forKernel() (out kernel.GateErrors) {
	for i := range e.all {
		above := 1 + normError*float64(min(i, 1)) + 1e-6
		out.All[i], out.Each[i] = float32(e.all[i]*above), float32(e.each[i]*above)
	}
	return out
}

// gateError bounds the error of the logits' part of the gates: the norm of the errors of
// all outputs, and the greatest error of one. The computed logits have the norm `norm`, and
// their errors a norm of at most off. hidden is the norm of the computed hidden layer,
// before or after rounding. Rounding changed the logits by taken and the hidden layer by
// takenHidden. The result is linear in its six arguments; `one` is the factor of the
// constant terms.
func (r *reduced) gateError(one, off, norm, hidden, taken, takenHidden float64) (all, each float64) {
	const silu = 1e-6 // twice the error of an exact SiLU, relative to its argument; the approximate one's is r.rough
	in := off + taken
	rounding := (r.lost[0]+r.inner)*(norm+in) + 1e-6*r.bias*one // of the first product
	before := r.w[0]*in + rounding
	// own is the error of the hidden layer apart from what it passes on from the logits.
	own := siluSlope*rounding + silu*(r.w[0]*(norm+off)+r.bias*one+before) + takenHidden + r.rough*one
	hidden += takenHidden + siluSlope*r.w[0]*in + own // the greater of the two possible norms, and all errors
	rest := 2 * r.hidden * hidden
	return r.through*in + r.w[1]*own + r.lost[1]*hidden + rest, r.throughRow*in + r.row*own + r.lostRow*hidden + rest
}

// above returns a float32 that is not below x. It propagates NaN.
func above(x float64) float32 { return float32(x + math.Abs(x)*0x1p-23) }

// tilesOf describes the items [from, to). If the logits can be computed from the words of
// packed tiles, it returns those words.
func (s *Similarity) tilesOf(sc *scratch, items rerank.Items, from, to int) (group, []uint32) {
	p := items.Packed
	if !s.inBFloat16(p) && !s.inInt8(p) {
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
	sc.logits = grow(&sc.logits, g.tiles*s.logitTile())
	if b.packing.Format == rerank.FormatInt8 {
		b.logitsFromInt8(sc, g, words)
		return
	}
	halves := b.e.split()
	prod, calls, stepC, stepB := s.logitProduct(sc, g, s.logitTile(), len(words)/g.tiles, s.c.Dim/2*kernel.Lanes)
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
	rounded, pairs := s.logitTile()/2, s.c.pairs()&^1
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
	sc.gates = grow(&sc.gates, g.tiles*s.gateTile())
	p := kernel.Product{Tiles: g.tiles, C: sc.gates, CTile: s.gateTile(), BTile: hidden, Bias: b.e.bias, SiLU: s.c.Combination == GLUSiLU, Rough: true, Ahead: &sc.ahead}
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
	g.gates, g.gatesTile = grow(&sc.item, g.tiles*s.gateTile()), s.gateTile()
	packing := b.packing
	packing.Block = s.c.Dim // bfloat16 has the same words in blocks of any even length
	for t := range g.tiles {
		for block := s.c.PairsItem; block < packing.Blocks(); block++ {
			s.kernels.WidenBlock(g.gates[t*s.gateTile()+(block-s.c.PairsItem)*s.c.Dim*kernel.Lanes:], packing, block, words[t*size:])
		}
	}
}
