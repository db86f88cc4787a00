package mol

import (
	"fmt"
	"sync"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

var _ rerank.Transposer = (*Similarity)(nil)

// Transpose implements rerank.Transposer. φ treats a query and an item alike, once both have components and
// parts of the gates. So the queries become feature rows in tiles, which are scored for the items.
func (s *Similarity) Transpose(queries []rerank.Encoded) (func(dst []float32, items rerank.Items) error, error) {
	encodeds, err := s.sameModel(queries)
	if err != nil {
		return nil, err
	}
	t := s.swapped()
	rows := rerank.Items{Packed: t.tiles(encodeds)}
	return func(dst []float32, items rerank.Items) error {
		n := items.Len()
		if len(dst) != n*len(queries) {
			return fmt.Errorf("%w: %d places for the scores of %d items for %d queries", rerank.ErrItems, len(dst), n, len(queries))
		}
		if err := items.Check(n, s.spec); err != nil {
			return err
		}
		swapped := make([]*encoded, n)
		for i := range swapped {
			swapped[i] = t.encodeRow(rowAt(items, i))
		}
		t.score(dst, swapped, rows)
		return nil
	}, nil
}

// swapped returns a similarity whose queries are the items of s, and whose items are the queries of s. It can
// only score.
func (s *Similarity) swapped() *Similarity {
	t := &Similarity{
		c: s.c.swapped(), byQuery: s.byItem, byItem: s.byQuery, kernels: s.kernels, scratch: &sync.Pool{New: func() any { return new(scratch) }},
	}
	first, second := s.byPair.first, s.byPair.second
	if s.byPair.hidden() > 0 {
		first.w = swapColumns(first.w, s.c)
	} else {
		second.w = swapColumns(second.w, s.c)
	}
	second.w = kernel.Transpose(swapColumns(kernel.Transpose(second.w), s.c))
	if second.bias != nil {
		second.bias = swapColumns(rowOf(second.bias), s.c).Data
	}
	t.byPair = mlp{first: first, second: second}
	t.prepareTiles()
	t.describe()
	return t
}

// swapped returns the configuration with the groups of queries and items exchanged.
func (c *Config) swapped() Config {
	other := *c
	other.PairsQuery, other.PairsItem = c.PairsItem, c.PairsQuery
	return other
}

// swapColumns returns a copy of m, which has a column for each pair of components in the order of a model with
// the configuration c, with the columns in the order of the swapped model.
func swapColumns(m rerank.Matrix, c Config) rerank.Matrix {
	out := rerank.NewMatrix(m.Rows, m.Cols)
	for r := range m.Rows {
		from, to := m.Row(r), out.Row(r)
		for l, v := range from {
			to[l%c.PairsItem*c.PairsQuery+l/c.PairsItem] = v
		}
	}
	return out
}

// tiles packs queries of a similarity as items of s, its transpose: a query's components and gate become one
// feature row.
func (s *Similarity) tiles(queries []*encoded) *rerank.Packed {
	rows := rerank.NewMatrix(len(queries), s.spec.Features)
	for i, e := range queries {
		n := copy(rows.Row(i), e.components.Data)
		if e.gate != nil {
			copy(rows.Row(i)[n:], swapColumns(rowOf(e.gate), *e.c).Data)
		}
	}
	p := &rerank.Packed{Packing: rerank.Packing{Format: rerank.FormatFloat32, Cols: rows.Cols}, Rows: rows.Rows, Tiled: true}
	p.Words = make([]uint32, p.Tiles()*kernel.Lanes*rows.Cols)
	var numbersOf [kernel.Lanes]int32
	for k := range p.Tiles() {
		for l := range numbersOf {
			numbersOf[l] = int32(min(k*kernel.Lanes+l, rows.Rows-1))
		}
		s.kernels.GatherColumns(numbers(p.Tile(k)), rows, &numbersOf, 0, rows.Cols)
	}
	return p
}

// encodeRow returns the query of the swapped similarity s that stands for a feature row of the other.
func (s *Similarity) encodeRow(row []float32) *encoded {
	n := s.c.PairsQuery * s.c.Dim
	e := &encoded{s: s, c: &s.c, components: rerank.Matrix{Rows: s.c.PairsQuery, Cols: s.c.Dim, Data: row[:n]}}
	if s.byQuery.exists() {
		e.gate = swapColumns(rowOf(row[n:]), s.c.swapped()).Data
	}
	e.prepareTiles()
	return e
}
