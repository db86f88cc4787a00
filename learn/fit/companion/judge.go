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
		wanted := map[int]bool{}
		for _, x := range best(scores, r.K).Sorted() {
			wanted[x.Index] = true
		}
		kernel.Best().Rows(scores, c.Query(features(encoded[i])), vectors, nil)
		found[i] = make([]float64, len(r.Depths))
		for rank, x := range best(scores, r.Depths[len(r.Depths)-1]).Sorted() {
			for d, depth := range r.Depths {
				if wanted[x.Index] && rank < depth {
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

// best returns the k greatest scores, whose Index is the row.
func best(scores []float32, k int) *rerank.TopK {
	top := rerank.NewTopK(k)
	for x, v := range scores {
		top.Push(rerank.Scored{Score: v, Index: x})
	}
	return top
}
