// Package judge measures how well held-out queries find their items among all items
// of a collection, and compares two rankings of the same queries.
package judge

import (
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
)

// maxProducts bounds the inner products of one judgement: a large collection is
// judged on fewer queries.
const maxProducts = 1 << 28

// Judge ranks all items for some queries and finds the wanted ones. A wanted item
// neither helps nor hinders another wanted item of the same query. Items that the
// query chose and that are not wanted are left out of the ranking, and so are the
// query's twins.
type Judge struct {
	log    *samples.Log
	wanted func(item int32) bool // nil: every item is wanted

	// Queries are the rows of the queries, Vectors their vectors.
	Queries []int32
	Vectors rerank.Matrix
	// FirstItems holds the first wanted item of each query, WantedCounts how many
	// items of the query are wanted, Weights the mean weight of these pairs.
	FirstItems   []int32
	WantedCounts []int32
	Weights      []float64
}

// New makes a judge of the queries that have a wanted item, or of every n-th such query
// where all would take too long. If wanted is nil, every item is wanted.
func New(l *samples.Log, queries []int32, wanted func(item int32) bool) *Judge {
	j := &Judge{log: l, wanted: wanted}
	most := max(200, maxProducts/(l.Items.Rows*l.Items.Cols/64+1))
	step := max(1, len(queries)/most)
	for i := 0; i < len(queries); i += step {
		j.addQuery(queries[i])
	}
	j.gatherVectors()
	return j
}

// addQuery adds a query that has a wanted item.
func (j *Judge) addQuery(q int32) {
	var count int32
	var weight float64
	first := int32(-1)
	for i, x := range j.log.Relevant[q] {
		if !j.wants(q, x) {
			continue
		}
		count, weight = count+1, weight+float64(j.log.Weight(q, i))
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
	j.Vectors = rerank.NewMatrix(len(j.Queries), j.log.Queries.Cols)
	linalg.GatherRows(j.Vectors, j.log.Queries, j.Queries)
}

// Thin returns a judge of every step-th query.
func (j *Judge) Thin(step int) *Judge {
	if step == 1 {
		return j
	}
	thin := &Judge{log: j.log, wanted: j.wanted}
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
	return j.log.IsTwin(q, x)
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
func (j *Judge) FindHits(probe Probe) []Hits {
	items := j.log.Items
	found := make([]Hits, len(j.Queries))
	block := max(1, min(512, (1<<22)/items.Rows))
	vectors, scores := rerank.NewMatrix(block, items.Cols), rerank.NewMatrix(block, items.Rows)
	for from := 0; from < len(j.Queries); from += block {
		to := min(from+block, len(j.Queries))
		vectors, scores := vectors.Slice(0, to-from), scores.Slice(0, to-from)
		probe(vectors, j.Vectors.Slice(from, to))
		linalg.Multiply(scores, vectors, false, items, true)
		linalg.Parallel(to-from, 16, func(a, b int) {
			for i := a; i < b; i++ {
				found[from+i] = j.HitsOf(scores.Row(i), j.Queries[from+i])
			}
		})
	}
	return found
}

// HitsOf returns the hits of query q in a ranking by scores, one an item row. It
// overwrites the scores of items that are left out.
func (j *Judge) HitsOf(scores []float32, q int32) Hits {
	leftOut := float32(math.Inf(-1))
	relevant := j.log.Relevant[q]
	for _, x := range relevant {
		if !j.wants(q, x) {
			scores[x] = leftOut
		}
	}
	if j.log.Twins != nil {
		for _, x := range j.log.Twins[q] {
			if !j.wants(q, x) || !slices.Contains(relevant, x) {
				scores[x] = leftOut
			}
		}
	}
	var found Hits
	for place, x := range firstRows(scores) {
		if x >= 0 && scores[x] > leftOut && j.isRelevant(q, x) {
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

// firstRows returns the rows of the greatest scores, greatest first, and −1 where
// there are fewer rows than places.
func firstRows(scores []float32) [Cutoff]int32 {
	var rows [Cutoff]int32
	n := 0
	for x, v := range scores {
		if n == Cutoff && v <= scores[rows[n-1]] {
			continue
		}
		if n < Cutoff {
			n++
		}
		i := n - 1
		for ; i > 0 && scores[rows[i-1]] < v; i-- {
			rows[i] = rows[i-1]
		}
		rows[i] = int32(x)
	}
	for ; n < Cutoff; n++ {
		rows[n] = -1
	}
	return rows
}

// ReciprocalRanks returns 1/rank of the best wanted item of each query under a
// probe, 0 where the item is beyond the first ten.
func (j *Judge) ReciprocalRanks(probe Probe) []float64 {
	hits := j.FindHits(probe)
	ranks := make([]float64, len(hits))
	for i, h := range hits {
		ranks[i] = h.ReciprocalRank()
	}
	return ranks
}

// Marks returns the reciprocal rank and the nDCG@10 of each query under a probe.
func (j *Judge) Marks(probe Probe) (reciprocalRanks, ndcg []float64) {
	return j.MarksOf(j.FindHits(probe))
}

// MarksOf returns the reciprocal rank and the nDCG@10 of each query, whose hits are
// given in the order of Queries.
func (j *Judge) MarksOf(hits []Hits) (reciprocalRanks, ndcg []float64) {
	for i, h := range hits {
		reciprocalRanks, ndcg = append(reciprocalRanks, h.ReciprocalRank()), append(ndcg, h.NDCG(j.WantedCounts[i]))
	}
	return reciprocalRanks, ndcg
}

// Quality returns the mean of MRR@10, which sees the first right place, and nDCG@10,
// which sees the whole first page.
func (j *Judge) Quality(probe Probe) float64 {
	reciprocalRanks, ndcg := j.Marks(probe)
	return (j.Mean(reciprocalRanks) + j.Mean(ndcg)) / 2
}

// Mean returns the weighted mean of one number a query.
func (j *Judge) Mean(marks []float64) float64 { return Mean(marks, j.Weights) }
