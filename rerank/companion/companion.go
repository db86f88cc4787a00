// Package companion implements learned companions: a vector w_x of each item and a vector ψ(q) of
// each query, such that ⟨ψ(q), w_x⟩ ranks like a similarity φ(q, x) that is no inner product. One
// search of a field that holds the w_x finds the candidates of φ.
//
// ψ is the same for all items. w_x is the least-squares solution for the item's own scores by a
// fixed set of queries, the anchors, so a new item needs no new fit (LEMUR, which does this for
// max-sim). ψ of a query of several vectors is the sum of ψ of each. Package learn/fit/companion
// chooses ψ and the anchors.
package companion

import (
	"fmt"
	"math"
	"strings"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/tensor"
)

const (
	// Prefix begins the names of all tensors of this package in a model's tensor set.
	Prefix = "companion."
	// Field is the name of the vector field that holds the items' vectors.
	Field = "learned"
)

// Names of the tensors.
const (
	Anchors   = Prefix + "anchors"
	Counts    = Prefix + "counts"
	Hidden    = Prefix + "hidden.weight"
	Bias      = Prefix + "hidden.bias"
	Out       = Prefix + "out.weight"
	Threshold = Prefix + "threshold"
	Leak      = Prefix + "leak"
	Mean      = Prefix + "mean"
)

// Companion is the learned companion of a model. It is immutable and safe for concurrent use.
type Companion struct {
	anchors     rerank.Matrix
	starts      []int32 // anchor a is the vectors starts[a]:starts[a+1]
	hidden, out rerank.Matrix
	bias        []float32 // of the hidden units; nil if each is 0
	// threshold and mean belong to each anchor: see Target.
	threshold, mean []float32
	leak            float32
}

// Read extracts the companion from a model's tensor set, for queries with the given number of
// features, the first query_dim of which are the query vector:
//
//	companion.anchors        (v, query_dim): the vectors of n anchors
//	companion.counts         (n): how many vectors each anchor has; absent if each has one
//	companion.hidden.weight  (h, query_dim): hidden units of the query vector
//	companion.hidden.bias    (h): their biases; absent if each is 0
//	companion.out.weight     (dim, 1 + features + h)
//	companion.threshold      (n), .mean (n), .leak (1): see Target
//
// It returns nil if the set has no such tensor, and rerank.ErrModel or tensor.ErrShape.
func Read(t tensor.Set, queryDim, features int) (*Companion, error) {
	own := tensor.Set{}
	for name, v := range t {
		if strings.HasPrefix(name, Prefix) {
			own[name] = v
		}
	}
	if len(own) == 0 {
		return nil, nil //nolint:nilnil // most models have none
	}
	r := tensor.NewReader(own)
	v, n, h, dim := r.Dim(Anchors, 0), r.Dim(Threshold, 0), r.Dim(Hidden, 0), r.Dim(Out, 0)
	c := &Companion{
		anchors:   rerank.Matrix{Rows: v, Cols: queryDim, Data: r.Get(Anchors, v, queryDim)},
		hidden:    rerank.Matrix{Rows: h, Cols: queryDim, Data: r.Get(Hidden, h, queryDim)},
		out:       rerank.Matrix{Rows: dim, Cols: 1 + features + h, Data: r.Get(Out, dim, 1+features+h)},
		threshold: r.Get(Threshold, n),
		mean:      r.Get(Mean, n),
	}
	if leak := r.Get(Leak, 1); leak != nil {
		c.leak = leak[0]
	}
	if r.Has(Bias) {
		c.bias = r.Get(Bias, h)
	}
	var counts []float32
	if r.Has(Counts) {
		counts = r.Get(Counts, n)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", rerank.ErrModel, err)
	}
	if n < 1 || dim < 1 {
		return nil, fmt.Errorf("%w: a companion of %d anchors and %d numbers; want one of each at least", rerank.ErrModel, n, dim)
	}
	var err error
	c.starts, err = readCounts(counts, n, v)
	return c, err
}

// readCounts returns the starts of n anchors that have v vectors together. It returns rerank.ErrModel.
func readCounts(counts []float32, n, v int) ([]int32, error) {
	if v > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %s has %d vectors, at most %d", rerank.ErrModel, Anchors, v, math.MaxInt32)
	}
	starts := make([]int32, 1, n+1)
	for a := range n {
		count := float32(1)
		if counts != nil {
			count = counts[a]
		}
		if !(count >= 1 && count <= rerank.MaxQueryVectors) || count != float32(int32(count)) {
			return nil, fmt.Errorf("%w: %s: anchor %d has %g vectors, want 1 to %d", rerank.ErrModel, Counts, a, count, rerank.MaxQueryVectors)
		}
		end := int(starts[a]) + int(count)
		if end > v { // and an int32 could hold no more
			return nil, fmt.Errorf("%w: %s: %d anchors have %d vectors or more, and %s has %d", rerank.ErrModel, Counts, a+1, end, Anchors, v)
		}
		starts = append(starts, int32(end))
	}
	if int(starts[n]) != v {
		return nil, fmt.Errorf("%w: %s: %d anchors have %d vectors, and %s has %d", rerank.ErrModel, Counts, n, starts[n], Anchors, v)
	}
	return starts, nil
}

// Dim returns the length of ψ(q) and w_x.
func (c *Companion) Dim() int { return c.out.Rows }

// EncodeAnchors encodes the anchors by the similarity that the companion belongs to.
func (c *Companion) EncodeAnchors(s rerank.Similarity) ([]rerank.Encoded, error) {
	encoded := make([]rerank.Encoded, len(c.threshold))
	for a := range encoded {
		q := rerank.Query{Vectors: c.anchors.Slice(int(c.starts[a]), int(c.starts[a+1]))}
		if !s.Spec().ManyVectors {
			q = rerank.Query{Vector: q.Vectors.Data}
		}
		e, err := s.Encode(q)
		if err != nil {
			return nil, fmt.Errorf("anchor %d of the learned companion: %w", a, err)
		}
		encoded[a] = e
	}
	return encoded, nil
}

// Expand writes the features from which ψ is a linear map: the sums over the query's vectors q of 1,
// of their features, and of max(0, hidden·q + bias). dst has 1 + features.Cols + hidden.Rows elements; bias may be nil.
func Expand(dst []float32, features, hidden rerank.Matrix, bias []float32) {
	clear(dst)
	own, rest := dst[1:1+features.Cols], dst[1+features.Cols:]
	products := make([]float32, len(rest))
	for r := range features.Rows {
		row := features.Row(r)
		dst[0]++
		for i, v := range row {
			own[i] += v
		}
		q := rerank.Matrix{Rows: 1, Cols: hidden.Cols, Data: row[:hidden.Cols]}
		kernel.Best().MulT(products, len(products), q, hidden, bias)
		for i, v := range products {
			rest[i] += max(v, 0)
		}
	}
}

// Query returns ψ(q) of a query with the given features.
func (c *Companion) Query(features rerank.Matrix) []float32 {
	row := rerank.NewMatrix(1, c.out.Cols)
	Expand(row.Data, features, c.hidden, c.bias)
	psi := make([]float32, c.Dim())
	kernel.Best().MulT(psi, len(psi), row, c.out, nil)
	return psi
}

// Probe returns the probe of a query with the given features. It returns rerank.ErrStrategy if c is
// nil or the plan searches no companion collection, and rerank.ErrQuery if ψ(q) is not finite.
func (c *Companion) Probe(features rerank.Matrix, plan rerank.Plan) (rerank.Probe, error) {
	switch {
	case c == nil:
		return rerank.Probe{}, fmt.Errorf("%w: %s needs a learned companion and the model has none; "+
			"fit one with `likeness fit companion`, or use another strategy", rerank.ErrStrategy, rerank.Companion)
	case !plan.Derived:
		return rerank.Probe{}, fmt.Errorf("%w: %s searches a companion collection; "+
			"write one with `likeness index`, or use the strategy %s", rerank.ErrStrategy, rerank.Companion, rerank.Distilled)
	}
	psi := c.Query(features)
	if err := rerank.CheckFinite("learned companion", psi); err != nil { // a finite query can be too large for float32
		return rerank.Probe{}, err
	}
	return rerank.Probe{Field: Field, Vector: psi, Depth: plan.Depth}, nil
}

// Target turns the scores φ(q, x) of one query q into the numbers that ⟨ψ(q), w_x⟩ is fitted to: each
// score less the threshold and, if that is below 0, times leak. The threshold is the score of the last of
// q's best items, so that differences among the other items, which no answer shows, count less.
func Target(scores []float32, threshold, leak float32) {
	for i, v := range scores {
		if v -= threshold; v < 0 {
			v *= leak
		}
		scores[i] = v
	}
}

// Solver computes the vectors of items. It is immutable and safe for concurrent use.
type Solver struct {
	c *Companion
	// psi has ψ of anchor a as column a.
	psi rerank.Matrix
	// score writes the scores of all items, an item's scores by all anchors after the other's.
	score func(dst []float32, items rerank.Items) error
}

// Solver encodes the anchors by the similarity s that the companion belongs to, and returns a solver. s has the
// ability ScoreBatch, and its encoded queries have Features.
func (c *Companion) Solver(s rerank.Similarity) (*Solver, error) {
	anchors, err := c.EncodeAnchors(s)
	if err != nil {
		return nil, err
	}
	return NewSolver(c, anchors, rerank.AbilitiesOf(s))
}

// NewSolver returns a solver. anchors are c's anchors, encoded by the similarity with the abilities a, and have the
// ability Features. It returns rerank.ErrQuery for anchors of another similarity.
func NewSolver(c *Companion, anchors []rerank.Encoded, a rerank.Abilities) (*Solver, error) {
	s := &Solver{c: c, psi: rerank.NewMatrix(c.Dim(), len(anchors)), score: byAnchor(anchors, a.ScoreBatch)}
	for a, e := range anchors {
		for i, v := range c.Query(rerank.EncodedAbilitiesOf(e).Features.QueryFeatures()) {
			s.psi.Data[i*s.psi.Cols+a] = v
		}
	}
	if a.Transpose == nil {
		return s, nil
	}
	var err error
	s.score, err = a.Transpose.Transpose(anchors)
	return s, err
}

// byAnchor returns the scores of a similarity that cannot transpose.
func byAnchor(anchors []rerank.Encoded, batch rerank.BatchScorer) func(dst []float32, items rerank.Items) error {
	return func(dst []float32, items rerank.Items) error {
		scores := rerank.NewMatrix(len(anchors), items.Len())
		if err := batch.ScoreBatch(scores.Data, anchors, items); err != nil {
			return err
		}
		for a := range anchors {
			for i, v := range scores.Row(a) {
				dst[i*len(anchors)+a] = v
			}
		}
		return nil
	}
}

// solvedRows is the number of items that are solved together.
const solvedRows = 64

// Solve writes w_x of every item: n scores and one product with n·dim numbers each. dst has a row for
// each item, and c.Dim() columns. It returns rerank.ErrItems.
func (s *Solver) Solve(dst rerank.Matrix, items rerank.Items) error {
	if dst.Rows != items.Len() || dst.Cols != s.c.Dim() {
		return fmt.Errorf("%w: %d rows of %d numbers for the learned vectors of %d items, want rows of %d", rerank.ErrItems, dst.Rows, dst.Cols, items.Len(), s.c.Dim())
	}
	all := rerank.NewMatrix(min(solvedRows, dst.Rows), s.psi.Cols)
	for from := 0; from < dst.Rows; from += solvedRows {
		to := min(from+solvedRows, dst.Rows)
		targets := all.Slice(0, to-from)
		if err := s.score(targets.Data, items.Slice(from, to)); err != nil {
			return err
		}
		for i := range targets.Rows {
			row := targets.Row(i)
			for a, mean := range s.c.mean {
				Target(row[a:a+1], s.c.threshold[a], s.c.leak)
				row[a] -= mean
			}
		}
		kernel.Best().MulT(dst.Data[from*dst.Cols:], dst.Cols, targets, s.psi, nil)
	}
	return nil
}
