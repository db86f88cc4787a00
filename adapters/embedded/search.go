package embedded

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// chunkRows is the number of rows that a worker scores at once. A chunk fits the
// second-level cache while every probe passes over it.
const chunkRows = 128

// Search scores every row that matches the filter. Lists are exact. Their Epsilon is
// adapters.Epsilon32 of the field's dimension, the probe's norm and the greatest norm
// of a row. A vector that is not finite ranks last.
//
// Like the other stores, Search accepts an L2 field only with UnitVectors.
func (s *Store) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	if err := r.Check(s.limits); err != nil {
		return nil, err
	}
	if len(r.Partitions) > 0 {
		return nil, fmt.Errorf("%w: partitions %q; an embedded collection has none", adapters.ErrUnsupported, r.Partitions)
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
	keep, err := c.compileFilter(r.Filter)
	if err != nil {
		return nil, err
	}
	if keep, err = c.without(keep, r.Exclude, r.Owner); err != nil {
		return nil, err
	}
	found, err := c.topK(ctx, s.turns, probes, keep)
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
		if f.MaxSim {
			return nil, fmt.Errorf("%w: field %q of collection %q has several vectors a row, which the embedded store does not search; search a field of one vector a row", adapters.ErrField, f.Name, c.name)
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

// topK returns the best rows of each probe. One worker, and another for each idle
// core, take chunks of rows and fill their own heaps, which are merged at the end.
func (c *collection) topK(ctx context.Context, t *turns.Turns, probes []probe, keep func(int) bool) ([][]rerank.Scored, error) {
	groups := grouped(probes)
	workers, err := t.Some(ctx, (c.rows+chunkRows-1)/chunkRows)
	if err != nil {
		return nil, err
	}
	defer t.GiveAll(workers)
	scorers := make([]*scorer, workers)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		s := newScorer(c, probes, keep)
		scorers[w] = s
		g.Go(func() error {
			for {
				from := int(next.Add(chunkRows)) - chunkRows
				if from >= c.rows {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				s.scoreRows(groups, from, min(from+chunkRows, c.rows))
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return merged(scorers, len(probes)), nil
}

func merged(scorers []*scorer, probes int) [][]rerank.Scored {
	found := make([][]rerank.Scored, probes)
	for i := range found {
		best := scorers[0].heaps[i]
		for _, s := range scorers[1:] {
			for _, row := range s.heaps[i].Sorted() {
				best.Push(row)
			}
		}
		found[i] = best.Sorted()
	}
	return found
}

// fieldProbes holds the probes of one field as a matrix.
type fieldProbes struct {
	field   *field
	probes  []int
	vectors rerank.Matrix
}

func grouped(probes []probe) []*fieldProbes {
	var groups []*fieldProbes
	of := map[*field]*fieldProbes{}
	for i, p := range probes {
		g := of[p.field]
		if g == nil {
			g = &fieldProbes{field: p.field, vectors: rerank.Matrix{Cols: p.field.Dim}}
			of[p.field] = g
			groups = append(groups, g)
		}
		g.probes = append(g.probes, i)
		g.vectors.Data = append(g.vectors.Data, p.Vector...)
		g.vectors.Rows++
	}
	return groups
}

// scorer is one worker of a search.
type scorer struct {
	c      *collection
	kernel *kernel.Set
	keep   func(int) bool
	heaps  []*rerank.TopK
	rows   []int     // rows of the chunk that match the filter
	scores []float32 // scores of the chunk, for each probe of a group
	copied []float32 // copies of the matching rows, if the filter leaves gaps
}

func newScorer(c *collection, probes []probe, keep func(int) bool) *scorer {
	s := &scorer{c: c, kernel: kernel.Best(), keep: keep, rows: make([]int, 0, chunkRows), scores: make([]float32, chunkRows*len(probes))}
	for _, p := range probes {
		s.heaps = append(s.heaps, rerank.NewTopK(min(p.Depth, c.rows)))
	}
	return s
}

// scoreRows offers rows from to to−1 to every heap. The rows stay in the cache while all
// probes of a field pass over them.
func (s *scorer) scoreRows(groups []*fieldProbes, from, to int) {
	s.rows = s.rows[:0]
	for r := from; r < to; r++ {
		if s.keep == nil || s.keep(r) {
			s.rows = append(s.rows, r)
		}
	}
	if len(s.rows) == 0 {
		return
	}
	for _, g := range groups {
		s.kernel.MulT(s.scores, chunkRows, g.vectors, s.chunkOf(g.field.vectors, from, to), nil)
		for j, i := range g.probes {
			s.offer(s.heaps[i], s.scores[j*chunkRows:][:len(s.rows)])
		}
	}
}

// chunkOf returns the matching rows of the range as a matrix, without a copy if all
// rows match.
func (s *scorer) chunkOf(m rerank.Matrix, from, to int) rerank.Matrix {
	if len(s.rows) == to-from {
		return m.Slice(from, to)
	}
	s.copied = s.copied[:0]
	for _, r := range s.rows {
		s.copied = append(s.copied, m.Row(r)...)
	}
	return rerank.Matrix{Rows: len(s.rows), Cols: m.Cols, Data: s.copied}
}

func (s *scorer) offer(heap *rerank.TopK, scores []float32) {
	for k, score := range scores {
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
	if r.Payload {
		read, err := c.read(numbers, selection{payload: true, payloadFields: r.PayloadFields})
		if err != nil {
			return l, err
		}
		l.Payloads = read.Payloads
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
