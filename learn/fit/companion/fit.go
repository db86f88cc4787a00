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
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/late"
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
	// RecallTable has the share of the exact answer that each first stage finds by depth, the companion first, for
	// the held-out queries and the sampled items.
	rerank.RecallTable
	Warnings []string `json:"warnings,omitempty"`
}

// From queries of several vectors, a fit takes one whole query for every anchorsPerWhole of Options.Anchors, and
// vectorsPerAnchor single vectors for each.
const (
	anchorsPerWhole  = 8
	vectorsPerAnchor = 3
)

// The first hidden unit is above 0 for the share leastOn of the query vectors, the last for mostOn. minSpread is how many
// anchors, if there are as many, tell how the query vectors spread.
const (
	leastOn   = 0.01
	mostOn    = 0.3
	minSpread = 4096
)

// maxHeldOut bounds the queries that judge the companion.
const maxHeldOut = 512

// Fit chooses ψ and the anchors of a companion. For anchor queries q and items x it minimises
//
//	Σ_q Σ_x (⟨ψ(q), w_x⟩ − y(q, x))²
//
// where y is the score as companion.Target changes it, minus its mean over the items of each query.
// ψ is linear in the features of companion.Expand. Fit solves a ridge regression for each item by
// itself (LEMUR, ICML 2026), and keeps the Dim directions in which the predictions vary most
// (reduced-rank regression: Izenman 1975). It needs no labels and uses every core.
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
	d.UserIDs = nil
	if err := checkData(m.Spec(), d); err != nil {
		return nil, err
	}
	anchors, heldOut, err := divide(d, o)
	if err != nil {
		return nil, err
	}
	queries := d.QueryCount()
	if m.Spec().ManyVectors {
		o.Leak = 1 // the score is a sum, and a part of a sum has no threshold
	}
	if d.QueryStarts != nil {
		d, anchors = withVectors(d, anchors, o)
	}
	items := sampleItems(d, o)
	t, err := teacher.New(m, items)
	if err != nil {
		return nil, err
	}
	f := &fitter{Teacher: t, options: o}
	tensors, err := f.learn(ctx, anchors)
	if err != nil {
		return nil, err
	}
	r := Report{Seed: o.Seed, Items: d.ItemCount(), SampledItems: items.ItemCount(), Queries: queries, Anchors: len(anchors), HeldOutQueries: len(heldOut)}
	if err := f.judge(ctx, &r, tensors, heldOut); err != nil {
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
	queries := late.Means(d.Queries, d.QueryStarts)
	l := &samples.Log{Items: d.Items, Queries: queries, Times: d.Times, Relevant: make([][]int32, queries.Rows)}
	for q := range queries.Rows {
		if rerank.Norm(queries.Row(q)) > 0 {
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

// withVectors returns the data with single vectors of the anchors as queries of their own, and anchors that are those
// vectors and some of the whole queries. Late interaction is a sum over the vectors of a query, so ψ and w_x can be fitted to
// its parts: a log has many more vectors than queries, and their scores cost less. The whole queries keep the errors of
// the parts from adding up.
func withVectors(d fit.Data, anchors []int32, o Options) (fit.Data, []int32) {
	rng := rand.New(rand.NewPCG(o.Seed, 0x70c5))
	var rows []int32
	for _, a := range anchors {
		for r := d.QueryStarts[a]; r < d.QueryStarts[a+1]; r++ {
			if rerank.Norm(d.Queries.Row(int(r))) > 0 {
				rows = append(rows, r)
			}
		}
	}
	rows = samples.Choose(rows, vectorsPerAnchor*o.Anchors, rng)
	anchors = samples.Choose(anchors, max(1, o.Anchors/anchorsPerWhole), rng)
	queries, starts := rerank.NewMatrix(d.Queries.Rows+len(rows), d.Queries.Cols), slices.Clone(d.QueryStarts)
	copy(queries.Data, d.Queries.Data)
	for i, r := range rows {
		copy(queries.Row(d.Queries.Rows+i), d.Queries.Row(int(r)))
		anchors = append(anchors, int32(len(starts)-1))
		starts = append(starts, starts[len(starts)-1]+1)
	}
	d.Queries, d.QueryStarts, d.Times = queries, starts, nil
	return d, anchors
}

// fitter is one run of Fit.
type fitter struct {
	*teacher.Teacher
	options Options
	// anchors are the queries that place the items.
	anchors []rerank.Encoded
}

// sampleItems returns the data with its items, or a random choice of them.
func sampleItems(d fit.Data, o Options) fit.Data {
	if d.ItemCount() <= o.Items {
		return d
	}
	all := make([]int32, d.ItemCount())
	for i := range all {
		all[i] = int32(i)
	}
	chosen := samples.Choose(all, o.Items, rand.New(rand.NewPCG(o.Seed, 0x17e5)))
	slices.Sort(chosen)
	d.Items, d.ItemStarts = gather(d.Items, d.ItemStarts, chosen)
	return d
}

// gather copies the vectors of the chosen items or queries.
func gather(m rerank.Matrix, starts, chosen []int32) (rerank.Matrix, []int32) {
	own := rerank.Items{Features: m, Starts: starts}.Pick(chosen)
	return linalg.Gather(m, own.Rows), own.Starts
}

// features returns the features of an encoded query, which learn has checked.
func features(e rerank.Encoded) rerank.Matrix {
	return rerank.EncodedAbilitiesOf(e).Features.QueryFeatures()
}

// learn returns the tensors of the companion, and keeps the encoded anchors.
func (f *fitter) learn(ctx context.Context, anchors []int32) (tensor.Set, error) {
	o, n := f.options, len(anchors)
	first, err := f.Encode(anchors[0])
	if err != nil {
		return nil, err
	}
	if rerank.EncodedAbilitiesOf(first).Features == nil || f.Abilities.ScoreBatch == nil {
		return nil, fmt.Errorf("%w: a model of kind %s cannot have a learned companion", fit.ErrData, f.Similarity.Spec().Kind)
	}
	vectors, err := f.queryVectors(anchors)
	if err != nil {
		return nil, err
	}
	hidden, bias := hiddenUnits(vectors, o.Hidden)
	f.anchors = make([]rerank.Encoded, n)
	expanded := rerank.NewMatrix(n, 1+features(first).Cols+o.Hidden)
	targets := rerank.NewMatrix(n, f.Encoded.Len())
	threshold, mean := make([]float32, n), make([]float32, n)
	focus := min(o.Focus, max(1, f.Encoded.Len()/8))
	err = f.EachScored(ctx, anchors, o.Progress.Begin("scoring items by the model", n), func(i int, e rerank.Encoded, scores []float32) error {
		f.anchors[i] = e
		companion.Expand(expanded.Row(i), features(e), hidden, bias)
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	out, err := reducedRank(ctx, expanded, targets, o)
	if err != nil {
		return nil, err
	}
	anchorVectors, starts := gather(f.Queries, f.QueryStarts, anchors)
	tensors := tensor.Set{
		companion.Anchors:   {Shape: []int{anchorVectors.Rows, anchorVectors.Cols}, Data: anchorVectors.Data},
		companion.Hidden:    {Shape: []int{hidden.Rows, hidden.Cols}, Data: hidden.Data},
		companion.Bias:      {Shape: []int{len(bias)}, Data: bias},
		companion.Out:       {Shape: []int{out.Rows, out.Cols}, Data: out.Data},
		companion.Threshold: {Shape: []int{len(threshold)}, Data: threshold},
		companion.Mean:      {Shape: []int{len(mean)}, Data: mean},
		companion.Leak:      {Shape: []int{1}, Data: []float32{float32(o.Leak)}},
	}
	if starts != nil {
		counts := make([]float32, n)
		for a := range counts {
			counts[a] = float32(starts[a+1] - starts[a])
		}
		tensors[companion.Counts] = tensor.Tensor{Shape: []int{n}, Data: counts}
	}
	return tensors, nil
}

// queryVectors returns one vector, as the model has it, of each of some anchors in random order.
func (f *fitter) queryVectors(anchors []int32) (rerank.Matrix, error) {
	rng := rand.New(rand.NewPCG(f.options.Seed, 0x4e1d))
	anchors = samples.Choose(anchors, max(f.options.Hidden, minSpread), rng)
	m := rerank.NewMatrix(len(anchors), f.Queries.Cols)
	for i, a := range anchors {
		e, err := f.Encode(a)
		if err != nil {
			return m, err
		}
		own := features(e)
		copy(m.Row(i), own.Row(rng.IntN(own.Rows)))
	}
	return m, nil
}

// hiddenUnits returns weights (count, m.Cols) and biases of units max(0, ⟨w, q⟩ + b), from query vectors in random order. Each w
// is one of the vectors less their mean, and b makes the unit 0 for all but a share of the vectors. So a unit tells the
// neighbours of its vector from all others: few units fire for many vectors, which small models need, and many for few.
func hiddenUnits(m rerank.Matrix, count int) (weights rerank.Matrix, bias []float32) {
	mean := make([]float32, m.Cols)
	linalg.SumRows(mean, m)
	weights, bias = rerank.NewMatrix(count, m.Cols), make([]float32, count)
	for h := range count {
		w := weights.Row(h)
		copy(w, m.Row(h%m.Rows))
		linalg.AddScaled(w, mean, -1/float64(m.Rows))
		rerank.Normalise(w)
	}
	products := rerank.NewMatrix(count, m.Rows)
	linalg.Multiply(products, weights, false, m, true)
	for h := range bias {
		own := products.Row(h)
		slices.Sort(own)
		share := leastOn * math.Pow(mostOn/leastOn, float64(h)/float64(count))
		bias[h] = -own[max(0, min(int((1-share)*float64(m.Rows)), m.Rows-2))]
	}
	return weights, bias
}
