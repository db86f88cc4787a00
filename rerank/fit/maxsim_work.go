package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// maxsimWork is one run of MaxSim.
type maxsimWork struct {
	problem *problem
	options MaxSimOptions
	split   split
	keeper  *keeper
	state   maxsimState
	report  MaxSimReport
}

// maxsimState is what is known of a fit before its end: the marks of budgets.
type maxsimState struct{ Trials map[float64]maxsimMarks }

// byItem are pairs in the order of their items: those of item x are
// queries[starts[x]:starts[x+1]], ascending.
type byItem struct {
	starts  []int
	queries []int32
	weights []float32 // nil: 1 each
}

// group sorts the pairs of the queries by item, in two passes and in place.
func (p *problem) group(queries []int32) byItem {
	g := byItem{starts: make([]int, p.items.Rows+1)}
	for _, q := range queries {
		for _, x := range p.relevant[q] {
			g.starts[x+1]++
		}
	}
	for x := range p.items.Rows {
		g.starts[x+1] += g.starts[x]
	}
	g.queries = make([]int32, g.starts[p.items.Rows])
	if p.weights != nil {
		g.weights = make([]float32, len(g.queries))
	}
	for _, q := range queries {
		for i, x := range p.relevant[q] {
			at := g.starts[x]
			g.queries[at] = q
			if g.weights != nil {
				g.weights[at] = p.weights[q][i]
			}
			g.starts[x]++
		}
	}
	copy(g.starts[1:], g.starts) // each is where the next begins now
	g.starts[0] = 0
	return g
}

// counts are the numbers of pairs of the items.
func (g byItem) counts() []int {
	counts := make([]int, len(g.starts)-1)
	for x := range counts {
		counts[x] = g.starts[x+1] - g.starts[x]
	}
	return counts
}

func (g byItem) of(x int) (queries []int32, weights []float32) {
	from, to := g.starts[x], g.starts[x+1]
	if g.weights != nil {
		weights = g.weights[from:to]
	}
	return g.queries[from:to], weights
}

// budget is the number of vectors of an average, for the items that there are.
func (w *maxsimWork) budget(average float64) int {
	return int(math.Round(average * float64(w.problem.items.Rows)))
}

// A chunk of items is clustered before its vectors are used: enough to keep the
// cores busy, few enough that their vectors are small beside the collection.
const (
	chunkItems   = 4096
	chunkPairs   = 1 << 16
	chunkNumbers = 1 << 24 // of the vectors that it can make
)

// cluster finds the vectors of all items for a budget and calls yield with chunks
// of items, one after the other: vectors[i] are those of row from + i.
func (w *maxsimWork) cluster(ctx context.Context, stage string, g byItem, average float64, yield func(from int, vectors []rerank.Matrix) error) error {
	p := w.problem
	budgets := Budgets(g.counts(), w.options.Beta, w.budget(average))
	done := w.options.Progress.begin(stage, p.items.Rows)
	pool := sync.Pool{New: func() any { return &clusters{source: p.queries} }}
	for from := 0; from < p.items.Rows; {
		to, pairs, numbers := from, 0, 0
		for to < p.items.Rows && to-from < chunkItems && pairs < chunkPairs && numbers < chunkNumbers {
			pairs += g.starts[to+1] - g.starts[to]
			numbers += budgets[to] * p.items.Cols
			to++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		vectors := make([]rerank.Matrix, to-from)
		each := max(1, (to-from)/(16*runtime.GOMAXPROCS(0)))
		spread(to-from, each, func(a, b int) {
			c := pool.Get().(*clusters)
			defer pool.Put(c)
			for i := a; i < b && ctx.Err() == nil; i++ {
				vectors[i] = w.clusterItem(c, g, from+i, budgets[from+i])
			}
		})
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := yield(from, vectors); err != nil {
			return err
		}
		done(to - from)
		from = to
	}
	return nil
}

// clusterItem is the best of the restarts, the first of equal ones.
func (w *maxsimWork) clusterItem(c *clusters, g byItem, x, budget int) rerank.Matrix {
	var best rerank.Matrix
	if budget == 0 {
		return best
	}
	queries, weights := g.of(x)
	c.begin(w.problem.items.Row(x), queries, weights, budget)
	rng := rand.New(rand.NewPCG(w.options.Seed, uint64(x)))
	objective := math.Inf(-1)
	for range w.options.Restarts {
		c.seed(rng)
		if o := c.settle(w.options.Passes); o > objective {
			objective, best = o, c.found()
		}
	}
	return best
}

// finish clusters all pairs with the budget that was chosen.
func (w *maxsimWork) finish(ctx context.Context, sink VectorSink) error {
	r := &w.report
	if r.MAvg == 0 {
		return nil
	}
	all := w.split.all()
	slices.Sort(all)
	g := w.problem.group(all)
	r.Budget = min(w.budget(r.MAvg), len(g.queries))
	err := w.cluster(ctx, "clustering all queries", g, r.MAvg, func(from int, vectors []rerank.Matrix) error {
		for i, m := range vectors {
			if m.Rows == 0 {
				continue
			}
			r.Vectors += m.Rows
			r.ItemsWithVectors++
			if err := sink(from+i, m); err != nil {
				return fmt.Errorf("keeping the vectors of item row %d: %w", from+i, err)
			}
		}
		return nil
	})
	return err
}
