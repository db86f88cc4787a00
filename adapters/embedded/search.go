package embedded

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// chunk is the number of rows that a worker scores at once: few enough to stay
// in the second-level cache while every probe passes over them.
const chunk = 128

// Search scores every row that the filter lets through. Lists are exact; their
// Epsilon is adapters.Epsilon32 of the field's dimension, the probe's norm and
// the greatest norm of a row. A vector that is not finite ranks last.
//
// An L2 field is searched only with UnitVectors, as on the other stores.
func (s *Store) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	return s.search(ctx, r, float32(math.Inf(-1)), false)
}

// SearchRange is Search for the rows above a score.
func (s *Store) SearchRange(ctx context.Context, r adapters.SearchRequest, above float32) ([]rerank.List, error) {
	return s.search(ctx, r, above, true)
}

func (s *Store) search(ctx context.Context, r adapters.SearchRequest, above float32, ranged bool) ([]rerank.List, error) {
	if err := r.Check(s.limits); err != nil {
		return nil, err
	}
	c, err := s.open(ctx, r.Collection)
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	probes, err := c.bind(r)
	if err != nil {
		return nil, err
	}
	keep, err := c.match(r.Filter)
	if err != nil {
		return nil, err
	}
	found, err := c.topK(ctx, probes, keep, above, ranged)
	if err != nil {
		return nil, err
	}
	lists := make([]rerank.List, len(probes))
	for i, rows := range found {
		if lists[i], err = c.list(r, probes[i], rows); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

// probe is a probe and the field it searches.
type probe struct {
	rerank.Probe
	field *field
}

func (c *collection) bind(r adapters.SearchRequest) ([]probe, error) {
	probes := make([]probe, len(r.Probes))
	for i, p := range r.Probes {
		f, err := c.field(r.FieldOf(p))
		if err != nil {
			return nil, err
		}
		if len(p.Vector) != f.Dim {
			return nil, fmt.Errorf("%w: probes[%d] has %d elements, field %q of collection %q has %d",
				adapters.ErrDimension, i, len(p.Vector), f.Name, c.name, f.Dim)
		}
		if f.Metric == adapters.L2 && !r.UnitVectors {
			return nil, fmt.Errorf("%w: field %q of collection %q is compared by L2 distance, from which inner products follow only for unit vectors; set unit_vectors if they are",
				adapters.ErrMetric, f.Name, c.name)
		}
		probes[i] = probe{Probe: p, field: f}
	}
	return probes, nil
}

// topK returns the best rows of each probe. Workers take chunks of rows in
// turn and keep their own heaps, which are merged at the end.
func (c *collection) topK(ctx context.Context, probes []probe, keep func(int) bool, above float32, ranged bool) ([][]rerank.Scored, error) {
	if len(probes) == 0 {
		return nil, nil
	}
	workers := max(1, min(runtime.GOMAXPROCS(0), (c.rows+chunk-1)/chunk))
	heaps := make([][]*rerank.TopK, workers)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		heaps[w] = make([]*rerank.TopK, len(probes))
		for i, p := range probes {
			heaps[w][i] = rerank.NewTopK(p.Depth)
		}
		g.Go(func() error {
			s := scorer{c: c, probes: probes, keep: keep, above: above, ranged: ranged, heaps: heaps[w]}
			for {
				from := int(next.Add(chunk)) - chunk
				if from >= c.rows {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				s.score(from, min(from+chunk, c.rows))
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := make([][]rerank.Scored, len(probes))
	for i := range probes {
		for _, h := range heaps[1:] {
			for _, row := range h[i].Sorted() {
				heaps[0][i].Push(row)
			}
		}
		found[i] = heaps[0][i].Sorted()
	}
	return found, nil
}

// scorer is one worker of a search.
type scorer struct {
	c      *collection
	probes []probe
	keep   func(int) bool
	above  float32
	ranged bool
	heaps  []*rerank.TopK
	rows   [chunk]int
	scores [4][chunk]float32
}

// score offers rows [from, to) to every heap, four probes of a field at a time.
func (s *scorer) score(from, to int) {
	n := 0
	for r := from; r < to; r++ {
		if s.keep == nil || s.keep(r) {
			s.rows[n] = r
			n++
		}
	}
	if n == 0 {
		return
	}
	for i := 0; i < len(s.probes); {
		m := 1
		for m < 4 && i+m < len(s.probes) && s.probes[i+m].field == s.probes[i].field {
			m++
		}
		s.multiply(s.probes[i:i+m], n)
		for j := range m {
			s.offer(i+j, s.scores[j][:n])
		}
		i += m
	}
}

func (s *scorer) multiply(probes []probe, n int) {
	x := &probes[0].field.vectors
	if len(probes) < 4 {
		for j, p := range probes {
			for k, r := range s.rows[:n] {
				s.scores[j][k] = dot(p.Vector, x.Row(r))
			}
		}
		return
	}
	for k, r := range s.rows[:n] {
		s.scores[0][k], s.scores[1][k], s.scores[2][k], s.scores[3][k] =
			dot4(probes[0].Vector, probes[1].Vector, probes[2].Vector, probes[3].Vector, x.Row(r))
	}
}

func (s *scorer) offer(probe int, scores []float32) {
	heap := s.heaps[probe]
	for k, score := range scores {
		if s.ranged && !(score > s.above) {
			continue
		}
		heap.Push(rerank.Scored{ID: s.c.id(s.rows[k]), Score: score, Index: s.rows[k]})
	}
}

func (c *collection) list(r adapters.SearchRequest, p probe, rows []rerank.Scored) (rerank.List, error) {
	l := rerank.List{
		IDs:       make([]rerank.ID, len(rows)),
		Scores:    make([]float32, len(rows)),
		Exhausted: len(rows) < p.Depth,
		Exact:     true,
		Epsilon:   adapters.Epsilon32(p.field.Dim, rerank.Norm(p.Vector), p.field.norm()),
	}
	numbers := make([]int, len(rows))
	for i, row := range rows {
		l.IDs[i], l.Scores[i], numbers[i] = row.ID, row.Score, row.Index
	}
	if r.WithVectors {
		l.Vectors = gather(p.field.vectors, numbers)
	}
	if r.Owner == "" {
		return l, nil
	}
	var err error
	l.Owners, err = c.ownersOf(r.Owner, numbers)
	return l, err
}

func gather(m rerank.Matrix, rows []int) rerank.Matrix {
	out := rerank.NewMatrix(len(rows), m.Cols)
	for i, r := range rows {
		copy(out.Row(i), m.Row(r))
	}
	return out
}
