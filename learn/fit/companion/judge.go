package companion

import (
	"context"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// judge returns the mean share of the exact top K among the first r.Depths candidates of the companion.
// The vectors of the items are computed as they are for a companion collection.
func (t *teacher) judge(ctx context.Context, c *companion.Companion, anchors []rerank.Encoded, heldOut []int32, r Report, progress fit.Progress) ([]float64, error) {
	vectors, err := t.place(ctx, c, anchors, progress)
	if err != nil {
		return nil, err
	}
	encoded, err := t.encode(heldOut)
	if err != nil {
		return nil, err
	}
	found := make([][]float64, len(encoded))
	err = t.eachScored(ctx, encoded, progress.Begin("judging", len(encoded)), func(i int, scores []float32) {
		best := rowsOf(scores, r.K)
		wanted := make(map[int]bool, len(best))
		for _, x := range best {
			wanted[x] = true
		}
		kernel.Best().Rows(scores, c.Query(features(encoded[i])), vectors, nil)
		found[i] = make([]float64, len(r.Depths))
		for rank, x := range rowsOf(scores, r.Depths[len(r.Depths)-1]) {
			for d, depth := range r.Depths {
				if wanted[x] && rank < depth {
					found[i][d] += 1 / float64(len(wanted))
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	recall := make([]float64, len(r.Depths))
	for _, f := range found {
		for d, v := range f {
			recall[d] += v / float64(len(found))
		}
	}
	return recall, nil
}

// place computes the vectors of the sampled items.
func (t *teacher) place(ctx context.Context, c *companion.Companion, anchors []rerank.Encoded, progress fit.Progress) (rerank.Matrix, error) {
	vectors := rerank.NewMatrix(t.features.Rows, c.Dim())
	solver := companion.NewSolver(c, anchors, features, t.batch.ScoreBatch)
	done := progress.Begin("placing the items", vectors.Rows)
	return vectors, linalg.ParallelErr(vectors.Rows, 256, func(from, to int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		defer done(to - from)
		return solver.Solve(vectors.Slice(from, to), t.features.Slice(from, to))
	})
}

// rowsOf returns the rows with the k greatest scores, greatest first.
func rowsOf(scores []float32, k int) []int {
	best := rerank.NewTopK(k)
	for x, v := range scores {
		best.Push(rerank.Scored{Score: v, Index: x})
	}
	var rows []int
	for _, s := range best.Sorted() {
		rows = append(rows, s.Index)
	}
	return rows
}
