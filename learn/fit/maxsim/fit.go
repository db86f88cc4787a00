// Package maxsim fits behavioural vectors to a log: for each item, centres of the
// queries that chose it, which the item owns beside its own vector (MVG).
package maxsim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// VectorSink receives the behavioural vectors of an item. It must not keep the matrix. Items come
// in the order of their rows, each at most once.
type VectorSink func(item int, vectors rerank.Matrix) error

// Fitted is the outcome of a fit, without the vectors.
type Fitted struct {
	Config maxsim.Config
	Report Report
}

// Fit fits behavioural vectors (MVG). It divides a budget of vectors among the items by
// the number of their queries, clusters the queries of each item on the unit sphere
// around the item's own vector and new centres, and gives the new centres to sink. Of
// several budgets, and powers of the number of queries by which to divide one, it takes the
// smallest that is as good as the best on held-out queries, and on queries seen before where
// traffic repeats. Then it clusters all pairs.
//
// Fit keeps eight to twelve bytes a pair and copies the vectors of the items that it
// clusters at the moment, no others: d.Items and d.Queries may be mapped files. It uses
// every core. It returns fit.ErrData, fit.ErrOption, fit.ErrCheckpoint, or the error of
// the context, the checkpoint or the sink.
func Fit(ctx context.Context, d fit.Data, o Options, sink VectorSink) (*Fitted, error) {
	if err := o.check(d); err != nil {
		return nil, err
	}
	if err := d.CheckInnerProduct(); err != nil {
		return nil, err
	}
	log, err := samples.PrepareUnscaled(d)
	if err != nil {
		return nil, err
	}
	split, err := log.Split(o.Common)
	if err != nil {
		return nil, err
	}
	trials, err := train.OpenTrials(o.Checkpoint, "maxsim", d, o)
	if err != nil {
		return nil, err
	}
	f := &fitter{log: log, options: o, split: split, trials: trials}
	f.report = Report{Counts: log.Counts, Seed: o.Seed, Measure: o.Measure, Beta: o.Betas[0]}
	if err := f.chooseBudget(ctx); err != nil {
		return nil, err
	}
	if err := f.clusterAll(ctx, sink); err != nil {
		return nil, err
	}
	return &Fitted{Config: maxsim.Config{Dim: d.Items.Cols, Normalise: true}, Report: f.report}, nil
}

// fitter is one run of Fit.
type fitter struct {
	log     *samples.Log
	options Options
	split   samples.Split
	trials  *train.Trials
	report  Report

	touched []bool // items to cluster; nil: all
	before  Previous
}

// totalBudget returns the total number of vectors for a given average per item.
func (f *fitter) totalBudget(average float64) int {
	return int(math.Round(average * float64(f.log.Items.Rows)))
}

// clusterAll clusters all pairs with the chosen budget, and gives the vectors to sink.
func (f *fitter) clusterAll(ctx context.Context, sink VectorSink) error {
	if f.report.MAvg == 0 {
		return nil
	}
	queries := f.split.All()
	slices.Sort(queries)
	return f.clusterQueries(ctx, queries, sink)
}

// clusterQueries clusters the pairs of the queries, which ascend.
func (f *fitter) clusterQueries(ctx context.Context, queries []int32, sink VectorSink) error {
	r := &f.report
	pairs := groupByItem(f.log, queries)
	r.Budget = min(f.totalBudget(r.MAvg), len(pairs.queries))
	return f.cluster(ctx, "clustering all queries", pairs, r.MAvg, r.Beta, func(from int, vectors []rerank.Matrix) error {
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
}

// Items are clustered in chunks, and the vectors of a chunk are used before the next is
// begun: a chunk has enough items to keep the cores busy, and its vectors need little
// memory beside the collection.
const (
	chunkItems   = 4096
	chunkPairs   = 1 << 16
	chunkNumbers = 1 << 24 // the most numbers in all vectors of a chunk
)

// cluster finds the vectors of all items for a budget of vectors per item, divided by beta. It calls yield for
// consecutive chunks of items: vectors[i] holds the vectors of item row from+i.
func (f *fitter) cluster(ctx context.Context, stage string, pairs itemPairs, average, beta float64, yield func(from int, vectors []rerank.Matrix) error) error {
	items := f.log.Items
	budgets := Budgets(pairs.counts(), pairs.traffic(), beta, f.totalBudget(average))
	done := f.options.Progress.Begin(stage, items.Rows)
	pool := sync.Pool{New: func() any { return &clustering{source: f.log.Queries} }}
	for from := 0; from < items.Rows; {
		to := endOfChunk(pairs, budgets, from, items.Cols)
		if err := ctx.Err(); err != nil {
			return err
		}
		vectors := make([]rerank.Matrix, to-from)
		block := max(1, (to-from)/(16*runtime.GOMAXPROCS(0)))
		linalg.Parallel(to-from, block, func(a, b int) {
			c := pool.Get().(*clustering)
			defer pool.Put(c)
			for i := a; i < b && ctx.Err() == nil; i++ {
				vectors[i] = f.clusterItem(c, pairs, from+i, budgets[from+i])
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

// endOfChunk returns the first item after the chunk that begins with item from.
func endOfChunk(pairs itemPairs, budgets []int, from, dim int) int {
	to, chunkedPairs, numbers := from, 0, 0
	for to < len(budgets) && to-from < chunkItems && chunkedPairs < chunkPairs && numbers < chunkNumbers {
		chunkedPairs += pairs.starts[to+1] - pairs.starts[to]
		numbers += budgets[to] * dim
		to++
	}
	return to
}

// clusterItem returns the vectors of an item from the best of several clusterings (the first of
// equally good ones), or the previous ones of an item that an update does not touch.
func (f *fitter) clusterItem(c *clustering, pairs itemPairs, item, budget int) rerank.Matrix {
	if f.touched != nil && !f.touched[item] {
		return f.before.VectorsOf(item)
	}
	var best rerank.Matrix
	if budget == 0 {
		return best
	}
	queries, weights := pairs.of(item)
	c.begin(f.log.Items.Row(item), queries, weights, budget)
	rng := rand.New(rand.NewPCG(f.options.Seed, uint64(item)))
	most := math.Inf(-1)
	for range f.options.Restarts {
		c.seedCentres(rng)
		if objective := c.runLloyd(f.options.Passes); objective > most {
			most, best = objective, c.foundCentres()
		}
	}
	return best
}
