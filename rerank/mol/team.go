package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank/kernel"
)

// team is a number of queries that are scored together. Their components form one matrix, so
// that a tile is read from memory, and put together from rows, once for all of them.
type team struct {
	s       *Similarity
	queries []*encoded
	scaled  []kernel.Weights // f_i / τ of all queries, one entry per stretch of columns
	joined  []kernel.Weights // memory for scaled
}

// teamLogits is the most logits of a team's group in the scratch: half of a second-level cache
// of 256 KiB.
const teamLogits = 128 << 10 / 4

// alone returns a team that holds the query e alone.
func (e *encoded) alone() team { return team{s: e.s, queries: []*encoded{e}, scaled: e.scaled} }

// teams divides the queries into teams, for groups of the given number of tiles. Their memory
// belongs to the scratch.
func (s *Similarity) teams(sc *scratch, queries []*encoded, tiles int) []team {
	size := max(1, teamLogits/(tiles*s.c.logitTile()))
	n := (len(queries) + size - 1) / size
	for len(sc.teams) < n {
		sc.teams = append(sc.teams, team{})
	}
	for i := range n {
		sc.teams[i].gather(s, queries[i*size:min((i+1)*size, len(queries))])
	}
	return sc.teams[:n]
}

// gather makes a team of the queries.
func (t *team) gather(s *Similarity, queries []*encoded) {
	t.s, t.queries = s, queries
	if len(queries) == 1 {
		t.scaled = queries[0].scaled
		return
	}
	if len(t.joined) != len(s.stretches) {
		t.joined = make([]kernel.Weights, len(s.stretches))
	}
	t.scaled = t.joined
	parts := make([]kernel.Weights, len(queries))
	for k := range t.scaled {
		for q, e := range queries {
			parts[q] = e.scaled[k]
		}
		t.scaled[k].Join(parts)
	}
}

// logitTile returns the numbers in a tile of logits of all queries: one query's logits after
// the other's.
func (t *team) logitTile() int { return len(t.queries) * t.s.c.logitTile() }

// computeLogits leaves the logits over τ of a group in the scratch, one item component after
// the other. Logit (i, j) of query q is row i·P_X + j of the query's part of a tile.
func (t *team) computeLogits(sc *scratch, g *group) {
	s, c := t.s, &t.s.c
	sc.logits = grow(&sc.logits, g.tiles*t.logitTile())
	if g.x != nil {
		t.logitsInTiles(sc, g)
		return
	}
	p := kernel.Product{Tiles: g.tiles, CTile: t.logitTile(), CRow: c.PairsItem * kernel.Lanes, Ahead: &sc.ahead}
	var squares [kernel.MaxBatch]float64 // of the tiles' components
	for j := range c.PairsItem {
		p.C = sc.logits[j*kernel.Lanes:]
		for k, r := range s.stretches {
			x, size := g.columns(s.kernels, j*c.Dim+r.from, j*c.Dim+r.to, &sc.part, r.to-r.from)
			for i := 0; i < g.tiles && !c.hasUnitComponents(); i++ {
				_, norm := tileExtent(s.kernels, x[i*size:][:(r.to-r.from)*kernel.Lanes])
				squares[i] += norm * norm
			}
			p.BTile, p.Add = size, k > 0
			s.kernels.Multiply(t.scaled[k], x, &p)
		}
	}
	greatest := 0.0
	for _, v := range squares {
		greatest = max(greatest, v)
	}
	t.raiseComponents(math.Sqrt(greatest))
}

// raiseComponents tells the queries the norm of an item's components.
func (t *team) raiseComponents(norm float64) {
	for _, e := range t.queries {
		e.seen.components.raise(norm)
	}
}

// logitsInTiles computes the logits of items that already lie in tiles.
func (t *team) logitsInTiles(sc *scratch, g *group) {
	s := t.s
	for i := 0; i < g.tiles && !s.c.hasUnitComponents(); i++ {
		_, norm := tileExtent(s.kernels, g.x[i*g.size:][:s.c.PairsItem*s.c.Dim*kernel.Lanes])
		t.raiseComponents(norm)
	}
	p, calls, stepC, stepB := s.c.logitProduct(sc, g, t.logitTile(), g.size, s.c.Dim*kernel.Lanes)
	for i := range calls {
		p.C = sc.logits[i*stepC:]
		for k, r := range s.stretches {
			p.Add = k > 0
			s.kernels.Multiply(t.scaled[k], g.x[i*stepB+r.from*kernel.Lanes:], &p)
		}
	}
}

// logitProduct prepares the products that compute the logits of whole tiles. logitTile is the
// numbers in a tile of logits, size the elements of a tile of rows, component the elements of one item component in it; stepC and stepB
// are how far C and the tiles advance from call to call. If the number of item components
// is even, each call treats the components as the product's tiles, because a product takes
// two tiles at a time. Otherwise there is one call per component.
func (c *Config) logitProduct(sc *scratch, g *group, logitTile, size, component int) (p kernel.Product, calls, stepC, stepB int) {
	p = kernel.Product{CRow: c.PairsItem * kernel.Lanes, Ahead: &sc.ahead}
	if c.PairsItem%2 > 0 {
		p.Tiles, p.CTile, p.BTile = g.tiles, logitTile, size
		return p, c.PairsItem, kernel.Lanes, component
	}
	p.Tiles, p.CTile, p.BTile = c.PairsItem, kernel.Lanes, component
	return p, g.tiles, logitTile, size
}
