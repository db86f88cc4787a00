// Package judge measures how well held-out queries find their items among all items
// of a collection, and compares two rankings of the same queries.
package judge

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// The sizes of the blocks of scores that are computed at a time.
const (
	queryBlock = 512
	itemBlock  = 4096
)

// Judge ranks all items for some queries and finds the wanted ones. A wanted item
// neither helps nor hinders another wanted item of the same query. Items that the
// query chose and that are not wanted are left out of the ranking, and so are the
// query's twins and the items that were seen before it.
//
// If the log says which items were shown, a query ranks these alone: nobody could choose another
// one, so the log does not say how good it is.
type Judge struct {
	measure fit.Measure
	log     *samples.Log
	wanted  func(item int32) bool // nil: every item is wanted

	// Queries are the rows of the queries, Vectors their vectors.
	Queries []int32
	Vectors rerank.Matrix
	// FirstItems holds the first wanted item of each query, WantedCounts how many
	// items of the query are wanted, Weights the mean weight of these pairs.
	FirstItems   []int32
	WantedCounts []int32
	Weights      []float64
}

// New makes a judge that measures by m how well rankings find the chosen items for which wanted is true. It leaves
// out queries that chose no such item. If wanted is nil, every item is wanted.
func New(l *samples.Log, m fit.Measure, queries []int32, wanted func(item int32) bool) *Judge {
	j := &Judge{measure: m, log: l, wanted: wanted}
	for _, q := range queries {
		j.addQuery(q)
	}
	j.gatherVectors()
	return j
}

// NewShuffled makes the judge of a decision, which takes the queries in order until it knows enough. It wants every
// item, and shuffles the queries by the seed alone.
func NewShuffled(l *samples.Log, m fit.Measure, queries []int32, seed uint64) *Judge {
	queries = slices.Clone(queries)
	rand.New(rand.NewPCG(seed, 0x9ed9e)).Shuffle(len(queries), func(i, j int) { queries[i], queries[j] = queries[j], queries[i] })
	return New(l, m, queries, nil)
}

// addQuery adds query q, unless it chose no wanted item.
func (j *Judge) addQuery(q int32) {
	var count int32
	var weight float64
	first := int32(-1)
	for i, x := range j.log.Relevant[q] {
		if !j.wants(q, x) {
			continue
		}
		count, weight = count+1, weight+j.log.JudgingWeight(q, i)
		if first < 0 {
			first = x
		}
	}
	if count > 0 {
		j.Queries, j.FirstItems, j.WantedCounts = append(j.Queries, q), append(j.FirstItems, first), append(j.WantedCounts, count)
		j.Weights = append(j.Weights, weight/float64(count))
	}
}

func (j *Judge) gatherVectors() {
	j.Vectors = linalg.Gather(j.log.Queries, j.Queries)
}

// Cost returns how many multiplications a ranking of all items takes at most.
func (j *Judge) Cost() float64 {
	return float64(len(j.Queries)) * float64(j.log.Items.Rows) * float64(j.log.Items.Cols)
}

// Part returns a judge of the queries at the places from to to.
func (j *Judge) Part(from, to int) *Judge {
	return &Judge{
		measure: j.measure, log: j.log, wanted: j.wanted, Queries: j.Queries[from:to], Vectors: j.Vectors.Slice(from, to),
		FirstItems: j.FirstItems[from:to], WantedCounts: j.WantedCounts[from:to], Weights: j.Weights[from:to],
	}
}

// Within returns a judge of every n-th query, so that a ranking of all items costs no more
// than this many multiplications, but of at least the given number of queries where there are
// so many. A fit is judged after every round; what judges it there costs no more than a round
// should.
func (j *Judge) Within(multiplications float64, least int) *Judge {
	step := 1
	for len(j.Queries)/(step+1) >= least && j.Cost()/float64(step) > multiplications {
		step++
	}
	return j.Thin(step)
}

// Mix returns a judge for the queries of two judges, in which the second judge's queries have the
// given share of the weight. It only compares ranks that the two judges have computed.
func Mix(first, second *Judge, share float64) *Judge {
	scaled := func(j *Judge, share float64) []float64 {
		var total float64
		for _, w := range j.Weights {
			total += w
		}
		weights := make([]float64, len(j.Weights))
		for i, w := range j.Weights {
			weights[i] = w * share / max(total, math.SmallestNonzeroFloat64)
		}
		return weights
	}
	return &Judge{
		measure: first.measure, log: first.log, Queries: slices.Concat(first.Queries, second.Queries), FirstItems: slices.Concat(first.FirstItems, second.FirstItems),
		Vectors: rerank.Matrix{
			Rows: first.Vectors.Rows + second.Vectors.Rows, Cols: first.Vectors.Cols, Data: slices.Concat(first.Vectors.Data, second.Vectors.Data),
		},
		WantedCounts: slices.Concat(first.WantedCounts, second.WantedCounts),
		Weights:      slices.Concat(scaled(first, 1-share), scaled(second, share)),
	}
}

// Thin returns a judge of every step-th query.
func (j *Judge) Thin(step int) *Judge {
	if step == 1 {
		return j
	}
	thin := &Judge{measure: j.measure, log: j.log, wanted: j.wanted}
	for i := 0; i < len(j.Queries); i += step {
		thin.Queries, thin.FirstItems = append(thin.Queries, j.Queries[i]), append(thin.FirstItems, j.FirstItems[i])
		thin.WantedCounts, thin.Weights = append(thin.WantedCounts, j.WantedCounts[i]), append(thin.Weights, j.Weights[i])
	}
	thin.gatherVectors()
	return thin
}

// wants reports whether item x, which query q chose, is to be found: x is wanted and
// no twin of q, unless the twin is all that q chose.
func (j *Judge) wants(q, x int32) bool {
	return (j.wanted == nil || j.wanted(x)) && (!j.log.IsTwin(q, x) || len(j.log.Relevant[q]) == 1)
}

// LeavesOut reports whether the ranking of query q is without item x.
func (j *Judge) LeavesOut(q, x int32) bool {
	if _, relevant := slices.BinarySearch(j.log.Relevant[q], x); relevant {
		return !j.wants(q, x)
	}
	return j.log.IsTwin(q, x) || j.log.IsSeen(q, x) || !j.log.IsShown(q, x)
}

// isRelevant reports whether query q chose item x.
func (j *Judge) isRelevant(q, x int32) bool {
	_, in := slices.BinarySearch(j.log.Relevant[q], x)
	return in
}

// Probe writes a vector for each query, so that the inner product of the vector with
// an item is the score of that item.
type Probe func(vectors, queries rerank.Matrix)

// InnerProduct is the Probe of the plain inner product, which is the cosine of unit
// vectors.
func InnerProduct(vectors, queries rerank.Matrix) { copy(vectors.Data, queries.Data) }

// FindHits returns the hits of each query in a ranking of all items by a probe.
// Items of equal scores rank by row.
//
// The items are scored in blocks. A query is done as soon as ten other items are surely
// before its best wanted one, because it has no hit then: in a large collection most
// queries that find nothing are done after a block or two.
func (j *Judge) FindHits(probe Probe) []Hits {
	found := make([]Hits, len(j.Queries))
	block := min(queryBlock, len(j.Queries))
	vectors := rerank.NewMatrix(block, j.log.Items.Cols)
	var r ranking
	for from := 0; from < len(j.Queries); from += block {
		to := min(from+block, len(j.Queries))
		vectors := vectors.Slice(0, to-from)
		probe(vectors, j.Vectors.Slice(from, to))
		r.begin(j, vectors, j.Queries[from:to])
		r.rank()
		for i, q := range j.Queries[from:to] {
			found[from+i] = j.hitsAt(&r.tops[i], q)
		}
	}
	return found
}

// HitsOf returns the hits of query q in a ranking by scores, one an item row. It
// overwrites the scores of items that are left out.
func (j *Judge) HitsOf(scores []float32, q int32) Hits {
	j.hide(scores, 0, q)
	var t top
	t.add(scores, 0)
	return j.hitsAt(&t, q)
}

// leftOut is the score of items that are left out of a ranking.
var leftOut = float32(math.Inf(-1))

// hide overwrites the scores of the items that the ranking of query q leaves out. scores
// begins with the score of item row first.
func (j *Judge) hide(scores []float32, first int, q int32) {
	set := func(x int32) {
		if at := int(x) - first; at >= 0 && at < len(scores) {
			scores[at] = leftOut
		}
	}
	if j.log.Looks != nil {
		hideUnshown(scores, first, j.log.Looks[q])
	}
	relevant := j.log.Relevant[q]
	for _, x := range relevant {
		if !j.wants(q, x) {
			set(x)
		}
	}
	if j.log.Twins != nil {
		for _, x := range j.log.Twins[q] {
			if !j.wants(q, x) || !slices.Contains(relevant, x) {
				set(x)
			}
		}
	}
	if j.log.Seen != nil {
		for _, x := range j.log.Seen[q] {
			set(x)
		}
	}
}

// hideUnshown overwrites the scores of items that were not shown. scores begins with the score of item
// row first.
func hideUnshown(scores []float32, first int, shown []clicks.Look) {
	next := 0
	for _, l := range shown {
		at := int(l.Item) - first
		if at < 0 || at >= len(scores) {
			continue
		}
		for ; next < at; next++ {
			scores[next] = leftOut
		}
		next = at + 1
	}
	for ; next < len(scores); next++ {
		scores[next] = leftOut
	}
}

// hitsAt returns the hits of query q among its first items.
func (j *Judge) hitsAt(t *top, q int32) Hits {
	var found Hits
	for place := range t.n {
		if t.scores[place] > leftOut && j.isRelevant(q, t.rows[place]) {
			found |= 1 << place
		}
	}
	return found
}

// HitsAmong returns the hits of query q in a ranking that is given as the items of
// its first places.
func (j *Judge) HitsAmong(items []int32, q int32) Hits {
	var found Hits
	for place, x := range items {
		if j.isRelevant(q, x) {
			found |= 1 << place
		}
	}
	return found
}

// MarkOfPairs returns the judge's measure of a ranking for a user who asks query q again and looks for one item,
// chosen as the log's users chose: the mean over the wanted items of q, by the weights of the pairs. The ranking is given
// as the items of its first places.
func (j *Judge) MarkOfPairs(items []int32, q int32) float64 {
	var sum, total float64
	for i, x := range j.log.Relevant[q] {
		if !j.wants(q, x) {
			continue
		}
		weight := float64(j.log.Weight(q, i))
		total += weight
		if place := slices.Index(items, x); place >= 0 {
			sum += weight * Hits(1<<place).Mark(j.measure, 1)
		}
	}
	return sum / total
}

// Marks returns the judge's measure of each query's ranking by a probe.
func (j *Judge) Marks(probe Probe) []float64 {
	return j.MarksOf(j.FindHits(probe))
}

// MarksOf returns the judge's measure of each query's ranking, whose hits are given in the
// order of Queries.
func (j *Judge) MarksOf(hits []Hits) []float64 {
	marks := make([]float64, len(hits))
	for i, h := range hits {
		marks[i] = h.Mark(j.measure, j.WantedCounts[i])
	}
	return marks
}

// Rate returns every measure of each query's ranking, whose hits are given in the order of
// Queries.
func (j *Judge) Rate(hits []Hits) Ratings {
	var r Ratings
	for i, h := range hits {
		r.MRR, r.NDCG = append(r.MRR, h.ReciprocalRank()), append(r.NDCG, h.NDCG(j.WantedCounts[i]))
	}
	return r
}

// Quality returns the mean of MRR@10, which sees the first right place, and nDCG@10,
// which sees the whole first page.
func (j *Judge) Quality(probe Probe) float64 {
	r := j.Rate(j.FindHits(probe))
	return (j.Mean(r.MRR) + j.Mean(r.NDCG)) / 2
}

// Mean returns the weighted mean of one number a query.
func (j *Judge) Mean(marks []float64) float64 { return Mean(marks, j.Weights) }
