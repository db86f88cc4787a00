package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/learn/fit"
	fitcompanion "github.com/likenessdb/likeness/learn/fit/companion"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// companionOf fits a learned companion to the ranker's scores for the given queries, which are all its
// calls, and returns its scores of all items for every query, items by queries. base holds the queries'
// vectors in the database, from which alone the companion knows a query.
func companionOf(ctx context.Context, scores, base rerank.Matrix, learn []int, seed uint64) (rerank.Matrix, error) {
	r := ranker{scores: scores, base: base, columns: map[string]int{}}
	data := fit.Data{Items: rerank.NewMatrix(scores.Rows, 1), Queries: rerank.Matrix{Cols: base.Cols}}
	for x := range data.Items.Data {
		data.Items.Data[x] = float32(x)
	}
	for _, q := range learn {
		r.columns[keyOf(base.Row(q))] = q
		data.Queries.Data, data.Queries.Rows = append(data.Queries.Data, base.Row(q)...), data.Queries.Rows+1
	}
	o := fitcompanion.DefaultOptions()
	o.Seed, o.HeldOut = seed, 0.02 // of learn; other queries judge here
	f, err := fitcompanion.Fit(ctx, r, data, o)
	if err != nil {
		return rerank.Matrix{}, err
	}
	c, err := companion.Read(f.Tensors, base.Cols, base.Cols)
	if err != nil {
		return rerank.Matrix{}, err
	}
	solver, err := c.Solver(r)
	if err != nil {
		return rerank.Matrix{}, err
	}
	vectors := rerank.NewMatrix(scores.Rows, c.Dim())
	if err := solver.Solve(vectors, rerank.Items{Features: data.Items}); err != nil {
		return rerank.Matrix{}, err
	}
	out, column := rerank.NewMatrix(scores.Rows, scores.Cols), make([]float32, scores.Rows)
	for q := range scores.Cols {
		kernel.Best().Rows(column, c.Query(base.Slice(q, q+1)), vectors, nil)
		for x, v := range column {
			out.Row(x)[q] = v
		}
	}
	return out, nil
}

// ranker is a ranker as a similarity of an item's number and a query's vector. It knows the scores of
// all queries whose vectors are in columns.
type ranker struct {
	scores, base rerank.Matrix
	columns      map[string]int
}

// keyOf returns the bytes of a vector.
func keyOf(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return string(b)
}

// Spec implements rerank.Similarity.
func (r ranker) Spec() rerank.Spec {
	return rerank.Spec{Kind: "ranker", QueryDim: r.base.Cols, ItemDim: 1, Features: 1, MaxScore: float32(math.Inf(1))}
}

// EncodeItems implements rerank.Similarity.
func (r ranker) EncodeItems(dst, base rerank.Matrix) error {
	copy(dst.Data, base.Data)
	return nil
}

// Encode implements rerank.Similarity.
func (r ranker) Encode(q rerank.Query) (rerank.Encoded, error) {
	at, known := r.columns[keyOf(q.Vector)]
	if !known {
		return nil, fmt.Errorf("%w: the ranker was not called for it", rerank.ErrQuery)
	}
	return asked{r, at}, nil
}

// ScoreBatch implements rerank.BatchScorer.
func (r ranker) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	n := items.Len()
	for i, q := range queries {
		if err := q.Score(dst[i*n:(i+1)*n], items); err != nil {
			return err
		}
	}
	return nil
}

// asked is a query that the ranker was called for, by its column of the scores.
type asked struct {
	ranker
	query int
}

var (
	_ rerank.Encoded      = asked{}
	_ rerank.FeatureOwner = asked{}
)

// QueryFeatures implements rerank.FeatureOwner.
func (a asked) QueryFeatures() rerank.Matrix {
	v := a.base.Row(a.query)
	return rerank.Matrix{Rows: 1, Cols: len(v), Data: v}
}

// Score implements rerank.Encoded.
func (a asked) Score(dst []float32, items rerank.Items) error {
	for i := range dst {
		x := i
		if items.Rows != nil {
			x = int(items.Rows[i])
		}
		dst[i] = a.scores.Row(int(items.Features.Row(x)[0]))[a.query]
	}
	return nil
}

// Probes implements rerank.Encoded: a ranker is no inner product.
func (a asked) Probes(rerank.Plan) ([]rerank.Probe, error) {
	return nil, fmt.Errorf("%w: a ranker has no probes", rerank.ErrStrategy)
}

// ScoreWide implements rerank.Encoded. The stored scores are exact.
func (a asked) ScoreWide(dst []float64, items rerank.Items) (epsilon float64, err error) {
	scores := make([]float32, len(dst))
	err = a.Score(scores, items)
	for i, v := range scores {
		dst[i] = float64(v)
	}
	return 0, err
}

// Bound implements rerank.Encoded: lists say nothing about a ranker.
func (a asked) Bound([]rerank.Probe, []rerank.List) rerank.Bound {
	return rerank.Bound{Max: float32(math.Inf(1))}
}
