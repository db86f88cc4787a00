package mol

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// groupSize is how many candidates are scored at a time. Two tiles share each load of a
// weight.
const groupSize = 2 * kernel.Lanes

// stretchCols is the most columns in a stretch; two tiles of it take 16 KiB.
const stretchCols = 128

// aheadBytes is how much of each row is prefetched while the previous group is computed.
// The processor's own prefetcher handles the rest of a longer row.
const aheadBytes = 4096

// stretch is a range of a component's columns.
type stretch struct{ from, to int }

// prepareTiles computes the fields that scoring in tiles needs.
func (s *Similarity) prepareTiles() {
	for from := 0; from < s.c.Dim; from += stretchCols {
		s.stretches = append(s.stretches, stretch{from, min(from+stretchCols, s.c.Dim)})
	}
	s.byPair.first.pack()
	if !s.byPair.exists() { // no logits' part: a product without columns
		s.byPair.second.packed = kernel.Pack(rerank.Matrix{Rows: s.c.pairs()})
		return
	}
	s.byPair.second.pack()
}

// group describes candidates that are computed together: up to groupSize for scoring, up to
// a batch of the kernels for screens.
type group struct {
	count, tiles int
	// x holds whole tiles of size numbers each. If x is nil, rows of m are gathered one
	// stretch of columns at a time.
	x    []float32
	size int
	m    rerank.Matrix
	rows *[kernel.MaxBatch][kernel.Lanes]int32 // row numbers to gather; points into the scratch
}

// Score implements rerank.Encoded. Candidates lie in the lanes of tiles, so that the gates'
// weights are read once for many candidates. Models trained with softmax dropout
// renormalise the gates; Score skips this because it changes no more than one rounding.
func (e *encoded) Score(dst []float32, items rerank.Items) error {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return err
	}
	one := [1]*encoded{e}
	e.s.score(dst, one[:], items)
	return nil
}

var _ rerank.BatchScorer = (*Similarity)(nil)

// ScoreBatch implements rerank.BatchScorer. Each item is read and put into a tile once for
// all queries, and gets the same bits as from Score.
func (s *Similarity) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	if s.queryOnly() {
		return s.scoreFixed(dst, queries, items)
	}
	encodeds := make([]*encoded, len(queries))
	for i, q := range queries {
		e, ok := q.(*encoded)
		if !ok || e.s.scratch != s.scratch {
			return fmt.Errorf("%w: query %d of the batch was encoded by another similarity", rerank.ErrQuery, i)
		}
		encodeds[i] = e
	}
	if err := rerank.CheckBatch(len(dst), len(queries), items, s.spec); err != nil || len(queries) == 0 {
		return err
	}
	s.score(dst, encodeds, items)
	return nil
}

// score writes the scores of all queries, one query after the other.
func (s *Similarity) score(dst []float32, queries []*encoded, items rerank.Items) {
	sc := s.borrow()
	defer s.scratch.Put(sc)
	if p := items.Packed; p != nil && p.Format != rerank.FormatFloat32 {
		for _, e := range queries {
			e.seen.rounded.Store(true)
		}
	}
	n := items.Len()
	var out [kernel.Lanes]float32
	for from := 0; from < n; from += groupSize {
		g := s.group(sc, items, from, min(from+groupSize, n), len(queries) > 1)
		for q, e := range queries {
			e.computeTiles(sc, &g)
			for t := range g.tiles {
				logits, gates := sc.logits[t*s.logitTile():], sc.gates[t*s.gateTile():]
				s.kernels.Mix(&out, logits[:s.c.pairs()*kernel.Lanes], gates[:s.c.pairs()*kernel.Lanes])
				copy(dst[q*n+from+t*kernel.Lanes:q*n+from+g.count], out[:])
			}
		}
	}
}

// group describes candidates [from, to). Unused lanes repeat the last candidate. float32
// rows stay where they are unless whole is set; packed rows are unpacked into tiles.
func (s *Similarity) group(sc *scratch, items rerank.Items, from, to int, whole bool) group {
	g := group{count: to - from, size: s.spec.Features * kernel.Lanes, rows: &sc.numbers}
	g.tiles = (g.count + kernel.Lanes - 1) / kernel.Lanes
	p := items.Packed
	if p != nil && p.Format == rerank.FormatFloat32 {
		if p.Tiled && items.Rows == nil && from%kernel.Lanes == 0 {
			at, next := from/kernel.Lanes*g.size, min((from/kernel.Lanes+g.tiles)*g.size, len(p.Words))
			g.x = numbers(p.Words[at : at+g.tiles*g.size])
			sc.ahead.Memory(s.kernels, numbers(p.Words[next:min(next+g.tiles*g.size, len(p.Words))]))
			return g
		}
		if !p.Tiled {
			g.m, p = rerank.Matrix{Rows: p.Rows, Cols: p.Cols, Data: numbers(p.Words)}, nil
		}
	} else if p == nil {
		g.m = items.Features
	}
	for l := range g.tiles * kernel.Lanes {
		g.rows[l/kernel.Lanes][l%kernel.Lanes] = rowNumber(items, min(from+l, to-1))
	}
	switch {
	case p != nil:
		s.unpack(sc, &g, p)
	case whole:
		g.x = grow(&sc.rows, (g.tiles*s.spec.Features+4)*kernel.Lanes)
		for t := range g.tiles {
			s.kernels.GatherColumns(g.x[t*g.size:], g.m, &g.rows[t], 0, s.spec.Features)
		}
		g.m = rerank.Matrix{}
	default:
		s.prefetchGroup(sc, g.m, items, to)
	}
	return g
}

// prefetchGroup starts loading the rows of the next group while the current one is
// computed.
func (s *Similarity) prefetchGroup(sc *scratch, m rerank.Matrix, items rerank.Items, from int) {
	var next [groupSize]int32
	n := min(groupSize, items.Len()-from)
	for l := range n {
		next[l] = rowNumber(items, from+l)
	}
	sc.ahead.Rows(s.kernels, m, next[:n], aheadBytes)
}

// unpack converts packed rows to float32 tiles.
func (s *Similarity) unpack(sc *scratch, g *group, p *rerank.Packed) {
	g.x = grow(&sc.rows, (g.tiles*s.spec.Features+4)*kernel.Lanes)
	words := grow(&sc.words, p.RowWords()*kernel.Lanes)
	for t := range g.tiles {
		s.kernels.Gather(words, p, &g.rows[t])
		s.kernels.Widen(g.x[t*g.size:][:g.size], p.Packing, words)
	}
}

// rowNumber returns the feature row of item i.
func rowNumber(items rerank.Items, i int) int32 {
	if items.Rows != nil {
		return items.Rows[i]
	}
	return int32(i)
}

// numbers reinterprets words as float32 with the same bits.
func numbers(words []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(words))), len(words))
}

// logitTile and gateTile return the numbers in a tile of logits and of gates. The rows of a
// product are padded.
func (s *Similarity) logitTile() int {
	return kernel.Padded(s.c.PairsQuery) * s.c.PairsItem * kernel.Lanes
}

func (s *Similarity) gateTile() int { return kernel.Padded(s.c.pairs()) * kernel.Lanes }

// computeTiles leaves the logits over τ and the inputs of the softmax of a group in the
// scratch.
func (e *encoded) computeTiles(sc *scratch, g *group) {
	s := e.s
	sc.logits = grow(&sc.logits, g.tiles*s.logitTile())
	e.computeLogits(sc, g)
	sc.gates = grow(&sc.gates, g.tiles*s.gateTile())
	p := kernel.Product{
		Tiles: g.tiles, C: sc.gates, CTile: s.gateTile(), Bias: e.bias, SiLU: s.c.Combination == GLUSiLU, Ahead: &sc.ahead,
	}
	if s.byItem.exists() {
		p.Factor = e.factor
		p.Plus, p.PlusTile = s.itemGates(sc, g)
		for t := range g.tiles {
			largest, _ := s.tileExtent(p.Plus[t*p.PlusTile:][:s.c.pairs()*kernel.Lanes])
			e.seen.item.raise(largest)
		}
	}
	second, in := &s.byPair.second, sc.logits
	p.BTile = s.logitTile()
	if s.byPair.hidden() > 0 {
		in, p.BTile = s.byPair.hiddenTiles(s.kernels, sc, in, p.BTile, g.tiles)
	}
	s.kernels.Multiply(second.packed, in, &p)
}

// computeLogits computes the logits, one item component after the other, in the order i·P_X + j.
func (e *encoded) computeLogits(sc *scratch, g *group) {
	c := &e.s.c
	if g.x != nil {
		e.logitsInTiles(sc, g)
		return
	}
	p := kernel.Product{Tiles: g.tiles, CTile: e.s.logitTile(), CRow: c.PairsItem * kernel.Lanes, Ahead: &sc.ahead}
	var squares [2]float64 // of the tiles' components
	for j := range c.PairsItem {
		p.C = sc.logits[j*kernel.Lanes:]
		for i, r := range e.s.stretches {
			x, size := e.s.columns(g, j*c.Dim+r.from, j*c.Dim+r.to, &sc.part, r.to-r.from)
			for t := 0; t < g.tiles && !c.hasUnitComponents(); t++ {
				_, norm := e.s.tileExtent(x[t*size:][:(r.to-r.from)*kernel.Lanes])
				squares[t] += norm * norm
			}
			p.BTile, p.Add = size, i > 0
			e.s.kernels.Multiply(e.scaled[i], x, &p)
		}
	}
	e.seen.components.raise(math.Sqrt(max(squares[0], squares[1])))
}

// logitsInTiles computes the logits of items that already lie in tiles.
func (e *encoded) logitsInTiles(sc *scratch, g *group) {
	for t := 0; t < g.tiles && !e.s.c.hasUnitComponents(); t++ {
		_, norm := e.s.tileExtent(g.x[t*g.size:][:e.s.c.PairsItem*e.s.c.Dim*kernel.Lanes])
		e.seen.components.raise(norm)
	}
	p, calls, stepC, stepB := e.s.logitProduct(sc, g, g.size, e.s.c.Dim*kernel.Lanes)
	for i := range calls {
		p.C = sc.logits[i*stepC:]
		for k, r := range e.s.stretches {
			p.Add = k > 0
			e.s.kernels.Multiply(e.scaled[k], g.x[i*stepB+r.from*kernel.Lanes:], &p)
		}
	}
}

// logitProduct prepares the products that compute the logits of whole tiles. size is the
// elements of a tile, component the elements of one item component in it; stepC and stepB
// are how far C and the tiles advance from call to call. If the number of item components
// is even, each call treats the components as the product's tiles, because a product takes
// two tiles at a time. Otherwise there is one call per component.
func (s *Similarity) logitProduct(sc *scratch, g *group, size, component int) (p kernel.Product, calls, stepC, stepB int) {
	p = kernel.Product{CRow: s.c.PairsItem * kernel.Lanes, Ahead: &sc.ahead}
	if s.c.PairsItem%2 > 0 {
		p.Tiles, p.CTile, p.BTile = g.tiles, s.logitTile(), size
		return p, s.c.PairsItem, kernel.Lanes, component
	}
	p.Tiles, p.CTile, p.BTile = s.c.PairsItem, kernel.Lanes, component
	return p, g.tiles, s.logitTile(), size
}

// columns returns columns [from, to) of the tiles, and the distance between tiles. If it
// must gather, it writes to buf, with room for rows values per tile.
func (s *Similarity) columns(g *group, from, to int, buf *[]float32, rows int) ([]float32, int) {
	if g.x != nil {
		return g.x[from*kernel.Lanes:], g.size
	}
	x, size := grow(buf, g.tiles*rows*kernel.Lanes), rows*kernel.Lanes
	for t := range g.tiles {
		s.kernels.GatherColumns(x[t*size:], g.m, &g.rows[t], from, to)
	}
	return x, size
}

// itemGates returns the item's part of the gates, padded as the product requires.
func (s *Similarity) itemGates(sc *scratch, g *group) ([]float32, int) {
	first, pairs := s.c.PairsItem*s.c.Dim, s.c.pairs()
	x, size := s.columns(g, first, first+pairs, &sc.item, kernel.Padded(pairs))
	if g.x == nil || len(x) >= (g.tiles-1)*size+s.gateTile() {
		return x, size
	}
	item := grow(&sc.item, g.tiles*s.gateTile()) // reading padded rows would run past the end of the last tile
	for t := range g.tiles {
		copy(item[t*s.gateTile():], x[t*size:][:pairs*kernel.Lanes])
	}
	return item, s.gateTile()
}

// hiddenTiles computes the hidden layer of the given tiles, size numbers each, and returns
// it with its tile size.
func (m *mlp) hiddenTiles(k *kernel.Set, sc *scratch, x []float32, size, tiles int) ([]float32, int) {
	width := kernel.Padded(m.hidden()) * kernel.Lanes
	hidden := grow(&sc.gateHidden, tiles*width)
	k.Multiply(m.first.packed, x, &kernel.Product{
		Tiles: tiles, C: hidden, CTile: width, BTile: size, Bias: m.first.biases, SiLU: true, Ahead: &sc.ahead,
	})
	return hidden, width
}

// scoreFixed is ScoreBatch for gates that depend on the query alone.
func (s *Similarity) scoreFixed(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	products, err := inner.Batch(queries, func(q rerank.Encoded) (*inner.Product, bool) {
		f, ok := q.(*fixed)
		if !ok || f.e.s.scratch != s.scratch {
			return nil, false
		}
		return f.Product, true
	})
	if err != nil {
		return err
	}
	return inner.ScoreBatch(dst, products, items)
}
