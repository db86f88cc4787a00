package companion

import (
	"context"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// judge measures the companion and the model's own first stages on the held-out queries. The vectors
// of the items are computed as they are for a companion collection.
func (f *fitter) judge(ctx context.Context, r *Report, tensors tensor.Set, heldOut []int32) error {
	o, spec := f.options, f.Similarity.Spec()
	c, err := companion.Read(tensors, spec.QueryDim, features(f.anchors[0]).Cols)
	if err != nil {
		return err
	}
	stored, err := f.stored()
	if err != nil {
		return err
	}
	done := o.Progress.Begin("ranking by the model, held-out queries", len(heldOut))
	exam, err := teacher.NewExam(ctx, f.Teacher, stored, heldOut, min(o.K, stored.Rows-1), o.Depths, done)
	if err != nil {
		return err
	}
	items, err := f.place(ctx, c)
	if err != nil {
		return err
	}
	queries := rerank.NewMatrix(len(heldOut), c.Dim())
	for i, q := range heldOut {
		e, err := f.Encode(q)
		if err != nil {
			return err
		}
		copy(queries.Row(i), c.Query(features(e)))
	}
	own := exam.Products(rerank.FirstStage{Strategy: rerank.Companion, Companion: true}, queries, items)
	others, err := exam.Strategies(rerank.Distilled, rerank.Average, rerank.PerEmbedding)
	if err != nil {
		return err
	}
	r.Dim, r.RecallTable = c.Dim(), exam.Table(append([]rerank.FirstStage{own}, others...)...)
	return nil
}

// stored returns the stored vectors as the database compares them: of an item of several vectors, their
// mean.
func (f *fitter) stored() (rerank.Matrix, error) {
	if f.Encoded.Starts != nil {
		return late.Means(f.Encoded.Features, f.Encoded.Starts), nil
	}
	m, _, err := samples.Scale("items", f.Items, f.Similarity.Spec().Normalise, nil)
	return m, err
}

// place computes the vectors of the sampled items.
func (f *fitter) place(ctx context.Context, c *companion.Companion) (rerank.Matrix, error) {
	vectors := rerank.NewMatrix(f.Encoded.Len(), c.Dim())
	solver, err := companion.NewSolver(c, f.anchors, f.Abilities)
	if err != nil {
		return vectors, err
	}
	done := f.options.Progress.Begin("placing the items", vectors.Rows)
	return vectors, linalg.ParallelErr(vectors.Rows, 256, func(from, to int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		defer done(to - from)
		return solver.Solve(vectors.Slice(from, to), f.Encoded.Slice(from, to))
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
