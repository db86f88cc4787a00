package mol

import (
	"fmt"
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
	// gates holds the item's part of the gates, padded as the product requires, in tiles of
	// gatesTile numbers. It is nil if the model has none, or if it has not been read.
	gates       []float32
	gatesTile   int
	largestGate float64 // the largest absolute value in gates
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

var (
	_ rerank.Batcher = (*encoded)(nil)
	_ rerank.Batch   = (*Similarity)(nil)
)

// Batch implements rerank.Batcher.
func (e *encoded) Batch() rerank.Batch { return e.s }

// ScoreBatch implements rerank.BatchScorer. Each item is read and put into a tile once for
// all queries, and gets the same bits as from Score.
func (s *Similarity) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	if s.queryOnly() {
		return s.scoreFixed(dst, queries, items)
	}
	encodeds, err := s.sameModel(queries)
	if err != nil {
		return err
	}
	if err := rerank.CheckBatch(len(dst), len(queries), items, s.spec); err != nil || len(queries) == 0 {
		return err
	}
	s.score(dst, encodeds, items)
	return nil
}

// sameModel returns the queries, which this similarity must have encoded.
func (s *Similarity) sameModel(queries []rerank.Encoded) ([]*encoded, error) {
	encodeds := make([]*encoded, len(queries))
	for i, q := range queries {
		e, ok := q.(*encoded)
		if !ok || e.s.scratch != s.scratch {
			return nil, fmt.Errorf("%w: query %d of the batch was encoded by another similarity", rerank.ErrQuery, i)
		}
		encodeds[i] = e
	}
	return encodeds, nil
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
	teams := s.teams(sc, queries, groupSize/kernel.Lanes)
	for from := 0; from < n; from += groupSize {
		g := s.group(sc, items, from, min(from+groupSize, n))
		s.readItemGates(sc, &g)
		done := 0
		for i := range teams {
			team := &teams[i]
			team.computeLogits(sc, &g)
			for q, e := range team.queries {
				logits := sc.logits[q*s.c.logitTile():]
				e.computeGates(sc, &g, logits, team.logitTile())
				for t := range g.tiles {
					gates := sc.gates[t*s.c.gateTile():]
					s.kernels.Mix(&out, logits[t*team.logitTile():][:s.c.pairs()*kernel.Lanes], gates[:s.c.pairs()*kernel.Lanes])
					copy(dst[(done+q)*n+from+t*kernel.Lanes:(done+q)*n+from+g.count], out[:])
				}
			}
			done += len(team.queries)
		}
	}
}

// group describes candidates [from, to). Unused lanes repeat the last candidate. float32
// rows stay where they are; packed rows are unpacked into tiles.
func (s *Similarity) group(sc *scratch, items rerank.Items, from, to int) group {
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
	if p != nil {
		g.unpack(s.kernels, sc, p)
	} else {
		prefetchGroup(s.kernels, sc, g.m, items, to)
	}
	return g
}

// prefetchGroup starts loading the rows of the next group while the current one is
// computed.
func prefetchGroup(k *kernel.Set, sc *scratch, m rerank.Matrix, items rerank.Items, from int) {
	var next [groupSize]int32
	n := min(groupSize, items.Len()-from)
	for l := range n {
		next[l] = rowNumber(items, from+l)
	}
	sc.ahead.Rows(k, m, next[:n], aheadBytes)
}

// unpack converts packed rows to float32 tiles.
func (g *group) unpack(k *kernel.Set, sc *scratch, p *rerank.Packed) {
	g.x = grow(&sc.rows, g.tiles*g.size+4*kernel.Lanes)
	words := grow(&sc.words, p.RowWords()*kernel.Lanes)
	for t := range g.tiles {
		k.Gather(words, p, &g.rows[t])
		k.Widen(g.x[t*g.size:][:g.size], p.Packing, words)
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
func (c *Config) logitTile() int {
	return kernel.Padded(c.PairsQuery) * c.PairsItem * kernel.Lanes
}

func (c *Config) gateTile() int { return kernel.Padded(c.pairs()) * kernel.Lanes }

// computeGates leaves the inputs of the softmax of a group in the scratch. Tile t of the
// query's logits over τ begins at logits[t*logitTile].
func (e *encoded) computeGates(sc *scratch, g *group, logits []float32, logitTile int) {
	s := e.s
	sc.gates = grow(&sc.gates, g.tiles*s.c.gateTile())
	p := kernel.Product{
		Tiles: g.tiles, C: sc.gates, CTile: s.c.gateTile(), Bias: e.bias, SiLU: s.c.Combination == GLUSiLU, Ahead: &sc.ahead,
	}
	if g.gates != nil {
		p.Factor, p.Plus, p.PlusTile = e.factor, g.gates, g.gatesTile
		e.seen.item.raise(g.largestGate)
	}
	in, second := logits, &s.byPair.second
	p.BTile = logitTile
	if s.byPair.hidden() > 0 {
		in, p.BTile = s.byPair.hiddenTiles(s.kernels, sc, logits, logitTile, g.tiles)
	}
	s.kernels.Multiply(second.packed, in, &p)
}

// columns returns columns [from, to) of the tiles, and the distance between tiles. If it
// must gather, it writes to buf, with room for rows values per tile.
func (g *group) columns(k *kernel.Set, from, to int, buf *[]float32, rows int) ([]float32, int) {
	if g.x != nil {
		return g.x[from*kernel.Lanes:], g.size
	}
	x, size := grow(buf, g.tiles*rows*kernel.Lanes), rows*kernel.Lanes
	for t := range g.tiles {
		k.GatherColumns(x[t*size:], g.m, &g.rows[t], from, to)
	}
	return x, size
}

// readItemGates sets the group's gates, if the model has an item's part of them.
func (s *Similarity) readItemGates(sc *scratch, g *group) {
	if !s.byItem.exists() {
		return
	}
	first, pairs := s.c.PairsItem*s.c.Dim, s.c.pairs()
	g.gates, g.gatesTile = g.columns(s.kernels, first, first+pairs, &sc.item, kernel.Padded(pairs))
	if g.x != nil && len(g.gates) < (g.tiles-1)*g.gatesTile+s.c.gateTile() { // reading padded rows would run past the end of the last tile
		item := grow(&sc.item, g.tiles*s.c.gateTile())
		for t := range g.tiles {
			copy(item[t*s.c.gateTile():], g.gates[t*g.gatesTile:][:pairs*kernel.Lanes])
		}
		g.gates, g.gatesTile = item, s.c.gateTile()
	}
	for t := range g.tiles {
		largest, _ := tileExtent(s.kernels, g.gates[t*g.gatesTile:][:pairs*kernel.Lanes])
		g.largestGate = max(g.largestGate, largest)
	}
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
