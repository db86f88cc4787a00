// Package companion fits learned companions: vectors of items and queries whose inner products rank
// like a similarity that is no inner product (package rerank/companion).
package companion

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Fitted is the outcome of a fit.
type Fitted struct {
	// Tensors are the tensors of the companion, for the model's file beside its own.
	Tensors tensor.Set
	Report  Report
}

// Report says how good a learned companion is as a first stage.
type Report struct {
	Seed uint64 `json:"seed"`
	// Items is the size of the collection, SampledItems how many of them the fit looked at.
	Items        int `json:"items"`
	SampledItems int `json:"sampled_items"`
	// Queries counts the query vectors; Anchors of them place the items, HeldOutQueries judge.
	Queries        int `json:"queries"`
	Anchors        int `json:"anchors"`
	HeldOutQueries int `json:"held_out_queries"`
	// Dim is the length of an item's vector.
	Dim int `json:"dim"`
	K   int `json:"k"`
	// Recall holds the mean share of the exact top K of the sampled items among the first Depths
	// candidates, over the held-out queries.
	Depths   []int     `json:"depths"`
	Recall   []float64 `json:"recall"`
	Warnings []string  `json:"warnings,omitempty"`
}

// maxHeldOut bounds the queries that judge the companion.
const maxHeldOut = 512

// Fit chooses ψ and the anchors of a companion. For anchor queries q and items x it minimises
//
//	Σ_q Σ_x (⟨ψ(q), w_x⟩ − y(q, x))²
//
// where y is the score as companion.Target changes it, without its mean over the items of each query.
// ψ is linear in the features of companion.Expand. The solution is that of ridge regression for each
// item by itself (LEMUR, ICML 2026), of which the Dim directions are kept that hold most of the
// predictions (reduced-rank regression: Izenman 1975). It needs no labels and uses every core.
//
// Fit returns fit.ErrData, fit.ErrOption or the context's error.
func Fit(ctx context.Context, m rerank.Similarity, d fit.Data, o Options) (*Fitted, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Normalise = m.Spec().Normalise
	if err := o.Common.Check(d); err != nil {
		return nil, err
	}
	if err := checkData(m.Spec(), d); err != nil {
		return nil, err
	}
	anchors, heldOut, err := divide(d, o)
	if err != nil {
		return nil, err
	}
	t := &teacher{similarity: m, batch: rerank.AbilitiesOf(m).ScoreBatch, queries: d.Queries}
	if err := t.sampleItems(d.Items, o); err != nil {
		return nil, err
	}
	encoded, err := t.encode(anchors)
	if err != nil {
		return nil, err
	}
	tensors, err := t.learn(ctx, encoded, anchors, o)
	if err != nil {
		return nil, err
	}
	c, err := companion.Read(tensors, m.Spec().QueryDim, len(features(encoded[0])))
	if err != nil {
		return nil, err
	}
	r := Report{
		Seed: o.Seed, Items: d.Items.Rows, SampledItems: t.features.Rows, Queries: d.Queries.Rows, Anchors: len(anchors), HeldOutQueries: len(heldOut),
		Dim: c.Dim(), K: min(o.K, t.features.Rows-1), Depths: slices.Compact(slices.Sorted(slices.Values(o.Depths))),
	}
	if r.Recall, err = t.judge(ctx, c, encoded, heldOut, r, o.Progress); err != nil {
		return nil, err
	}
	r.warn(m.Spec())
	return &Fitted{tensors, r}, nil
}

// warn adds warnings to the report.
func (r *Report) warn(s rerank.Spec) {
	if r.Anchors < 4*s.QueryDim {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d queries are few to place items by queries of %d numbers; bring more if there are, labels are not needed", r.Anchors, s.QueryDim))
	}
	if r.SampledItems < r.Items {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the recall is that among %d sampled items; `likeness eval --strategies companion:DEPTH` measures it among all %d", r.SampledItems, r.Items))
	}
}

// divide returns the anchors and the queries that judge.
func divide(d fit.Data, o Options) (anchors, heldOut []int32, err error) {
	l := &samples.Log{Items: d.Items, Queries: d.Queries, Times: d.Times, Relevant: make([][]int32, d.Queries.Rows)}
	for q := range d.Queries.Rows {
		if rerank.Norm(d.Queries.Row(q)) > 0 {
			l.Relevant[q] = []int32{0} // so that the split divides every query that can be asked
			l.Counts.Queries++
		}
	}
	split, err := l.Split(o.Common)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: of %d queries %d are left to place items by and %d to judge; bring more queries or change the share held out (%g)",
			fit.ErrData, l.Counts.Queries, len(split.Train), len(split.HeldOut), o.HeldOut)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0xc0a7))
	return samples.Choose(split.Train, o.Anchors, rng), samples.Choose(split.HeldOut, maxHeldOut, rng), nil
}

// teacher is the similarity whose ranking the companion reproduces, with a sample of the items.
type teacher struct {
	similarity rerank.Similarity
	batch      rerank.BatchScorer
	queries    rerank.Matrix
	features   rerank.Matrix // feature rows of the sampled items
}

// sampleItems encodes the items, or a random choice of them.
func (t *teacher) sampleItems(items rerank.Matrix, o Options) error {
	if items.Rows > o.Items {
		rows := rand.New(rand.NewPCG(o.Seed, 0x17e5)).Perm(items.Rows)[:o.Items]
		slices.Sort(rows)
		chosen := rerank.NewMatrix(len(rows), items.Cols)
		for i, r := range rows {
			copy(chosen.Row(i), items.Row(r))
		}
		items = chosen
	}
	t.features = rerank.NewMatrix(items.Rows, t.similarity.Spec().Features)
	if err := t.similarity.EncodeItems(t.features, items); err != nil {
		return fmt.Errorf("%w: items: %w", fit.ErrData, err)
	}
	return nil
}

// encode encodes queries. It returns fit.ErrData.
func (t *teacher) encode(rows []int32) ([]rerank.Encoded, error) {
	out := make([]rerank.Encoded, len(rows))
	for i, q := range rows {
		e, err := t.similarity.Encode(rerank.Query{Vector: t.queries.Row(int(q))})
		if err != nil {
			return nil, fmt.Errorf("%w: query %d: %w", fit.ErrData, q, err)
		}
		if rerank.EncodedAbilitiesOf(e).Features == nil || t.batch == nil {
			return nil, fmt.Errorf("%w: a model of kind %s cannot have a learned companion", fit.ErrData, t.similarity.Spec().Kind)
		}
		out[i] = e
	}
	return out, nil
}

// scoreBatch is the number of queries that are scored together.
const scoreBatch = 8

// eachScored scores the sampled items for every query, on every core, and calls f with each query's number and
// scores, which f may change.
func (t *teacher) eachScored(ctx context.Context, queries []rerank.Encoded, done func(int), f func(i int, scores []float32)) error {
	return linalg.ParallelErr(len(queries), scoreBatch, func(from, to int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := t.features.Rows
		scores := make([]float32, (to-from)*n)
		if err := t.batch.ScoreBatch(scores, queries[from:to], rerank.Items{Features: t.features}); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			f(i, scores[(i-from)*n:(i-from+1)*n])
		}
		done(to - from)
		return nil
	})
}

// features returns the features of an encoded query, which encode has checked.
func features(e rerank.Encoded) []float32 {
	return rerank.EncodedAbilitiesOf(e).Features.QueryFeatures()
}

// learn returns the tensors of the companion.
func (t *teacher) learn(ctx context.Context, encoded []rerank.Encoded, anchors []int32, o Options) (tensor.Set, error) {
	hidden := randomFeatures(o, t.queries.Cols)
	expanded := rerank.NewMatrix(len(encoded), 1+len(features(encoded[0]))+o.Hidden)
	for i, e := range encoded {
		companion.Expand(expanded.Row(i), features(e), hidden)
	}
	targets := rerank.NewMatrix(len(encoded), t.features.Rows)
	threshold, mean := make([]float32, len(encoded)), make([]float32, len(encoded))
	focus := min(o.Focus, max(1, t.features.Rows/8))
	err := t.eachScored(ctx, encoded, o.Progress.Begin("scoring items by the model", len(encoded)), func(i int, scores []float32) {
		threshold[i] = best(scores, focus).Threshold()
		companion.Target(scores, threshold[i], float32(o.Leak))
		var sum float64
		for _, v := range scores {
			sum += float64(v)
		}
		mean[i] = float32(sum / float64(len(scores)))
		for x, v := range scores {
			targets.Row(i)[x] = v - mean[i]
		}
	})
	if err != nil {
		return nil, err
	}
	out, err := reducedRank(ctx, expanded, targets, o)
	if err != nil {
		return nil, err
	}
	vectors := rerank.NewMatrix(len(anchors), t.queries.Cols)
	linalg.GatherRows(vectors, t.queries, anchors)
	return tensor.Set{
		companion.Anchors:   {Shape: []int{vectors.Rows, vectors.Cols}, Data: vectors.Data},
		companion.Hidden:    {Shape: []int{hidden.Rows, hidden.Cols}, Data: hidden.Data},
		companion.Out:       {Shape: []int{out.Rows, out.Cols}, Data: out.Data},
		companion.Threshold: {Shape: []int{len(threshold)}, Data: threshold},
		companion.Mean:      {Shape: []int{len(mean)}, Data: mean},
		companion.Leak:      {Shape: []int{1}, Data: []float32{float32(o.Leak)}},
	}, nil
}

// randomFeatures draws the matrix of the random features of a query. Divided by the root of their number, the
// features together have about the norm of the query vector.
func randomFeatures(o Options, queryDim int) rerank.Matrix {
	hidden := rerank.NewMatrix(o.Hidden, queryDim)
	rng := rand.New(rand.NewPCG(o.Seed, 0x4e1d))
	for i := range hidden.Data {
		hidden.Data[i] = float32(rng.NormFloat64() / math.Sqrt(float64(o.Hidden)))
	}
	return hidden
}
